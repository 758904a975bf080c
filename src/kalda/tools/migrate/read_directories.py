"""Reads the log directories of a broker for `directory_checks`; changes nothing, and takes no lock."""

import os
import struct
from collections import Counter
from pathlib import Path
from typing import Final

from kalda.records.compression import Compression
from kalda.storage.checkpoints import parse_meta_properties
from kalda.storage.errors import CorruptCheckpointError
from kalda.storage.file_names import (
    FUTURE_DIRECTORY_SUFFIX,
    LOG_SUFFIX,
    META_PROPERTIES_FILE,
    STRAY_DIRECTORY_SUFFIX,
    parse_partition_directory_name,
)
from kalda.tools.migrate.directory_checks import DirectoryFacts

_HEAD_BYTES: Final = 23
"""Up to the attributes of a batch of format 2."""
_MAGIC_AT: Final = 16
_CODEC_BITS: Final = 0b111


def read_directory(path: str) -> DirectoryFacts:
    """Read one log directory: its owner, its partitions, and the first batch of every segment."""
    directory = Path(path)
    try:
        entries = sorted(os.scandir(directory), key=lambda each: each.name)
    except OSError as error:
        return DirectoryFacts(path=path, problem=f"cannot be read: {error.strerror}")
    folders = [each.name for each in entries if each.is_dir()]
    partitions = [name for name in folders if parse_partition_directory_name(name) is not None]
    formats: Counter[int] = Counter()
    codecs: Counter[str] = Counter()
    unreadable: list[str] = []
    is_owned = os.access(directory, os.W_OK)
    for name in partitions:
        is_owned = is_owned and os.access(directory / name, os.W_OK)
        for segment in sorted((directory / name).glob(f"*{LOG_SUFFIX}")):
            is_owned = is_owned and os.access(segment, os.W_OK)
            try:
                with segment.open("rb") as file:
                    head = file.read(_HEAD_BYTES)
            except OSError:
                unreadable.append(f"{name}/{segment.name}")
                continue
            found = _first_batch(head)
            if found is None:
                unreadable += [f"{name}/{segment.name}"] if head else []
                continue
            formats[found[0]] += 1
            codecs[found[1]] += 1
    version, broker_id, cluster_id, problem = _read_meta(directory / META_PROPERTIES_FILE)
    volume = os.statvfs(directory)
    return DirectoryFacts(
        path=path,
        meta_version=version,
        meta_broker_id=broker_id,
        meta_cluster_id=cluster_id,
        meta_problem=problem,
        partitions=partitions,
        futures=[name for name in folders if name.endswith(FUTURE_DIRECTORY_SUFFIX)],
        strays=[name for name in folders if name.endswith(STRAY_DIRECTORY_SUFFIX)],
        segments_by_format=formats,
        segments_by_codec=codecs,
        unreadable=unreadable,
        is_owned=is_owned,
        usable_bytes=volume.f_bavail * volume.f_frsize,
        total_bytes=volume.f_blocks * volume.f_frsize,
    )


def _first_batch(head: bytes) -> tuple[int, str] | None:
    """Return the format and the codec of the batch or message that a segment begins with.

    A segment that was allocated in advance and never written is of zeros, and has none.
    """
    if len(head) < _HEAD_BYTES or not any(head):
        return None
    magic = head[_MAGIC_AT]
    if magic not in (0, 1, 2):
        return None
    attributes = struct.unpack_from(">h", head, _MAGIC_AT + 5)[0] if magic == 2 else head[_MAGIC_AT + 1]
    try:
        return magic, Compression(attributes & _CODEC_BITS).name.lower()
    except ValueError:
        return None


def _read_meta(path: Path) -> tuple[int | None, int | None, str | None, str | None]:
    """Return version, broker id, cluster id and the problem of a ``meta.properties``."""
    try:
        data = path.read_bytes()
        properties = parse_meta_properties(data)
    except FileNotFoundError:
        return None, None, None, None
    except OSError as error:
        return None, None, None, f"{META_PROPERTIES_FILE} cannot be read: {error.strerror}"
    except CorruptCheckpointError as error:
        return None, None, None, str(error)
    version = 1 if b"\nversion=1" in b"\n" + data else 0
    return version, properties.broker_id, properties.cluster_id or None, None
