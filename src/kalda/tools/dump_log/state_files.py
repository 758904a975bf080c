"""Dumps the small files beside the segments: producer snapshots, checkpoints, the partition's metadata."""

from collections.abc import Iterator

from kalda.common.types import uuid_to_text
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.storage.checkpoints import parse_leader_epochs, parse_offset_checkpoint, parse_partition_metadata
from kalda.storage.errors import CorruptCheckpointError, CorruptSnapshotError, NewerFormatError
from kalda.storage.producer_snapshot import parse_snapshot
from kalda.tools.bytes_text import JsonValue
from kalda.tools.dump_log.entries import DumpLine, Entry, Problem


def dump_producer_snapshot(path: str) -> Iterator[DumpLine]:
    """Yield the producers of a ``.snapshot`` file."""
    try:
        entries = parse_snapshot(OsFileSystem().read(path))
    except (CorruptSnapshotError, NewerFormatError) as error:
        yield Problem(path, None, str(error))
        return
    for entry in entries:
        fields: dict[str, JsonValue] = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": _or_none(entry.current_transaction_first_offset),
            "lastTimestamp": entry.last_timestamp,
        }
        for batch in list(entry.batches)[:1]:
            fields |= {
                "firstSequence": batch.first_sequence,
                "lastSequence": batch.last_sequence,
                "lastOffset": batch.last_offset,
                "offsetDelta": batch.offset_delta,
                "timestamp": batch.timestamp,
            }
        yield Entry("producer", fields)


def dump_leader_epochs(path: str) -> Iterator[DumpLine]:
    """Yield the lines of a ``leader-epoch-checkpoint``."""
    try:
        epochs = parse_leader_epochs(OsFileSystem().read(path))
    except (CorruptCheckpointError, NewerFormatError) as error:
        yield Problem(path, None, str(error))
        return
    for epoch, start_offset in epochs:
        yield Entry("leaderEpoch", {"leaderEpoch": epoch, "startOffset": start_offset})


def dump_offset_checkpoint(path: str) -> Iterator[DumpLine]:
    """Yield the lines of an offset checkpoint of a log directory."""
    try:
        offsets = parse_offset_checkpoint(OsFileSystem().read(path))
    except (CorruptCheckpointError, NewerFormatError) as error:
        yield Problem(path, None, str(error))
        return
    for partition, offset in offsets.items():
        yield Entry(
            "checkpoint", {"topic": partition.topic, "partition": partition.partition, "offset": offset}
        )


def dump_partition_metadata(path: str) -> Iterator[DumpLine]:
    """Yield the topic id of a partition's directory."""
    try:
        topic_id = parse_partition_metadata(OsFileSystem().read(path))
    except (CorruptCheckpointError, NewerFormatError) as error:
        yield Problem(path, None, str(error))
        return
    yield Entry("partitionMetadata", {"version": 0, "topicId": uuid_to_text(topic_id)})


def _or_none(offset: int) -> int | None:
    return None if offset < 0 else offset
