"""Kafka's rules for a log on disk, checked from outside: with kafka-python's reader, never with our own.

What a valid log is: segment files named by their base offset; batches whose CRC holds, whose offsets rise
without overlap, and that fill the file to its last byte; index entries that rise and point at the start of a
batch whose offsets they name; time index entries whose timestamps and offsets rise.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import kafka.record

_BATCH_HEAD = struct.Struct(">qi")
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_BATCH_HEAD_BYTES = 12


class InvalidLogError(Exception):
    """A file breaks one of the rules; the message names the file, the position and the rule."""


@dataclass(frozen=True, slots=True)
class LogSummary:
    """What a valid log holds."""

    segments: int
    batches: int
    records: int
    first_offset: int
    next_offset: int


def check_log(directory: Path, *, last_segments: int | None = None) -> LogSummary:
    """Check one partition's directory, or only its newest segments.

    Raises:
        InvalidLogError: the first broken rule.
    """
    names = sorted(directory.glob("*.log"))
    if last_segments is not None:
        names = names[-last_segments:]
    batches = records = 0
    first_offset = next_offset = -1
    for path in names:
        base_offset = int(path.stem)
        if next_offset >= 0 and base_offset < next_offset:
            raise InvalidLogError(f"{path}: named below {next_offset}, the end of the segment before")
        # Before the log: a broker that runs writes a batch first and its index entry then.
        offset_entries = _entries(path.with_suffix(".index"), _OFFSET_ENTRY)
        time_entries = _entries(path.with_suffix(".timeindex"), _TIME_ENTRY)
        starts, ends, count, segment_next = _check_segment(path, max(base_offset, next_offset))
        if first_offset < 0:
            first_offset = base_offset
        next_offset = max(segment_next, base_offset)
        batches += len(starts)
        records += count
        _check_offset_index(path.with_suffix(".index"), offset_entries, base_offset, starts, ends)
        _check_time_index(path.with_suffix(".timeindex"), time_entries, base_offset, next_offset)
    return LogSummary(len(names), batches, records, first_offset, next_offset)


def _check_segment(path: Path, lowest: int) -> tuple[dict[int, int], dict[int, int], int, int]:
    """Return base offset and last offset by position, the number of records, and the next offset."""
    data = path.read_bytes()
    starts: dict[int, int] = {}
    ends: dict[int, int] = {}
    count = position = 0
    while position < len(data):
        if position + _BATCH_HEAD_BYTES > len(data):
            raise InvalidLogError(f"{path}: {len(data) - position} bytes after the last batch")
        base_offset, length = _BATCH_HEAD.unpack_from(data, position)
        end = position + _BATCH_HEAD_BYTES + length
        if length <= 0 or end > len(data):
            raise InvalidLogError(f"{path}: batch of {length} bytes at {position} passes the end {len(data)}")
        batch = kafka.record.MemoryRecords(data[position:end]).next_batch()
        if batch is None or not batch.validate_crc():
            raise InvalidLogError(f"{path}: the CRC of the batch at {position} does not hold")
        offsets = [record.offset for record in batch]
        if base_offset < lowest or offsets != sorted(set(offsets)) or offsets[0] < base_offset:
            raise InvalidLogError(f"{path}: offsets {offsets[:3]}… at {position} do not rise above {lowest}")
        starts[position], ends[position] = base_offset, offsets[-1]
        lowest = offsets[-1] + 1
        count += len(offsets)
        position = end
    return starts, ends, count, lowest


def _check_offset_index(
    path: Path,
    entries: list[tuple[int, int]],
    base_offset: int,
    starts: dict[int, int],
    ends: dict[int, int],
) -> None:
    last_offset, last_position = -1, -1
    for number, (relative, position) in enumerate(entries):
        if number > 0 and relative == 0 and position == 0:
            break  # The rest of an active segment's index is preallocated zeroes.
        offset = base_offset + relative
        if position not in starts:
            raise InvalidLogError(f"{path}: entry {number} points at {position}, where no batch begins")
        if not starts[position] <= offset <= ends[position]:
            raise InvalidLogError(f"{path}: entry {number} names {offset}, which its batch has not")
        if offset <= last_offset or position <= last_position:
            raise InvalidLogError(f"{path}: entry {number} does not rise")
        last_offset, last_position = offset, position


def _check_time_index(path: Path, entries: list[tuple[int, int]], base_offset: int, next_offset: int) -> None:
    last_timestamp, last_offset = -1, -1
    for number, (timestamp, relative) in enumerate(entries):
        if timestamp == 0 and relative == 0:
            break
        offset = base_offset + relative
        if timestamp < last_timestamp or offset < last_offset:
            raise InvalidLogError(f"{path}: entry {number} does not rise")
        if not base_offset <= offset < max(next_offset, base_offset + 1):
            raise InvalidLogError(f"{path}: entry {number} names offset {offset}, which the segment has not")
        last_timestamp, last_offset = timestamp, offset


def _entries(path: Path, entry: struct.Struct) -> list[tuple[int, int]]:
    if not path.exists():
        return []
    data = path.read_bytes()
    return [entry.unpack_from(data, at) for at in range(0, len(data) - entry.size + 1, entry.size)]
