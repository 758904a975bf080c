"""Chooses the dumper of a file by its name, and the files of a directory."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kalda.storage import file_names as names
from kalda.tools.dump_log import indexes, state_files
from kalda.tools.dump_log.entries import DumpLine, Problem
from kalda.tools.dump_log.segment import SegmentOptions, dump_segment

_CHECKPOINTS: Final = (
    names.RECOVERY_POINT_CHECKPOINT_FILE,
    names.LOG_START_OFFSET_CHECKPOINT_FILE,
    names.CLEANER_OFFSET_CHECKPOINT_FILE,
    names.REPLICATION_OFFSET_CHECKPOINT_FILE,
)


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """What is shown of which kind of file."""

    segment: SegmentOptions
    verify_index_only: bool = False
    index_sanity_check: bool = False


def files_of(path: str) -> list[str]:
    """Return the file itself, or the dumpable files of a directory in the order of their names.

    Raises:
        OSError: the path does not exist or cannot be read.
    """
    if not os.path.isdir(path):
        os.stat(path)
        return [path]
    entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    return [entry.path for entry in entries if entry.is_file() and is_known(entry.name)]


def is_known(name: str) -> bool:
    """Return whether files of this name can be dumped."""
    segment = names.parse_offset_file_name(name)
    if segment is not None:
        return segment[1] in (names.LOG_SUFFIX, names.PRODUCER_SNAPSHOT_SUFFIX, *names.INDEX_SUFFIXES)
    return name in (
        names.LEADER_EPOCH_CHECKPOINT_FILE,
        names.PARTITION_METADATA_FILE,
        *_CHECKPOINTS,
    )


def dump(path: str, options: DumpOptions) -> Iterator[DumpLine]:
    """Yield the lines of one file. A file that cannot be read gives a `Problem`."""
    try:
        yield from _dump(path, options)
    except OSError as error:
        yield Problem(path, None, f"cannot be read: {error.strerror}")


def _dump(path: str, options: DumpOptions) -> Iterator[DumpLine]:
    name = os.path.basename(path)
    segment = names.parse_offset_file_name(name)
    suffix = segment[1] if segment is not None else name
    verify_only, sanity_only = options.verify_index_only, options.index_sanity_check
    match suffix:
        case names.LOG_SUFFIX:
            return dump_segment(path, options.segment)
        case names.OFFSET_INDEX_SUFFIX:
            return indexes.dump_offset_index(path, verify_only=verify_only, sanity_only=sanity_only)
        case names.TIME_INDEX_SUFFIX:
            return indexes.dump_time_index(path, verify_only=verify_only, sanity_only=sanity_only)
        case names.TRANSACTION_INDEX_SUFFIX:
            return indexes.dump_transaction_index(path)
        case names.PRODUCER_SNAPSHOT_SUFFIX:
            return state_files.dump_producer_snapshot(path)
        case names.LEADER_EPOCH_CHECKPOINT_FILE:
            return state_files.dump_leader_epochs(path)
        case names.PARTITION_METADATA_FILE:
            return state_files.dump_partition_metadata(path)
    if name in _CHECKPOINTS:
        return state_files.dump_offset_checkpoint(path)
    allowed = ".log, .index, .timeindex, .txnindex, .snapshot, leader-epoch-checkpoint and offset checkpoints"
    return iter([Problem(path, None, f"is of no kind that can be dumped; known are {allowed}")])
