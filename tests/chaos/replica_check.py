"""Are the replicas of a partition the same, byte for byte, up to the high watermark?

Reads the log directories of stopped brokers from outside: no code of the broker's is used, so that a mistake
in it cannot hide itself.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

_BATCH_HEAD = struct.Struct(">qi")
_BATCH_HEAD_BYTES = 12
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23


class ReplicasDifferError(Exception):
    """Two replicas hold different bytes, or one lacks committed records; the message says where."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of a log."""

    base_offset: int
    last_offset: int
    data: bytes


def read_batches(log: Path) -> list[Batch]:
    """Return the batches of a partition's directory, in order."""
    batches = []
    for path in sorted(log.glob("*.log")):
        data = path.read_bytes()
        position = 0
        while position + _BATCH_HEAD_BYTES <= len(data):
            base_offset, length = _BATCH_HEAD.unpack_from(data, position)
            end = position + _BATCH_HEAD_BYTES + length
            (delta,) = _LAST_OFFSET_DELTA.unpack_from(data, position + _LAST_OFFSET_DELTA_AT)
            batches.append(Batch(base_offset, base_offset + delta, data[position:end]))
            position = end
    return batches


def high_watermark(log_directory: Path, topic: str, partition: int) -> int:
    """Return what a broker's checkpoint says; 0 where it says nothing."""
    lines = (log_directory / "replication-offset-checkpoint").read_text().splitlines()
    for line in lines[2:]:
        name, number, offset = line.rsplit(" ", 2)
        if (name, int(number)) == (topic, partition):
            return int(offset)
    return 0


def check_replicas(log_directories: list[Path], topic: str, partition: int) -> int:
    """Compare a partition's replicas; return the greatest high watermark, below which all must agree.

    Raises:
        ReplicasDifferError: they do not.
    """
    committed = max(high_watermark(directory, topic, partition) for directory in log_directories)
    reference: list[Batch] | None = None
    for directory in log_directories:
        log = directory / f"{topic}-{partition}"
        batches = [batch for batch in read_batches(log) if batch.last_offset < committed]
        end = batches[-1].last_offset + 1 if batches else 0
        if end != committed:
            raise ReplicasDifferError(f"{log} ends at {end}, but {committed} is committed")
        if reference is None:
            reference = batches
            continue
        for ours, theirs in zip(reference, batches, strict=False):
            if ours != theirs:
                raise ReplicasDifferError(
                    f"{log}: the batch at offset {theirs.base_offset} ({len(theirs.data)} bytes) is not that "
                    f"of {log_directories[0]}: offset {ours.base_offset}, {len(ours.data)} bytes"
                )
        if len(reference) != len(batches):
            raise ReplicasDifferError(f"{log} has {len(batches)} committed batches, not {len(reference)}")
    return committed
