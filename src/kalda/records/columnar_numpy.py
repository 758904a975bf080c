"""Decodes the records of selected batches to Arrow columns with numpy.

A plain loop finds where the records start, because a record's length is known only from the record itself;
small records without headers are found at once (`columnar_starts`). numpy then reads the varints of one field
of all records at once, and keys and values become views into the buffer. `record.iter_records` yields the
same values as rows; tests compare the two.

This module defines what the compiled code (`columnar_compiled`) has to return, and runs where that was not
built. Performance depends on one rule: the loop in `_walk_records` is the only code that runs once per
record.
"""

from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kalda.records.batch import BatchHeader, TimestampType
from kalda.records.columnar_fields import (
    Positions,
    WantedFields,
    binary_copies,
    binary_views,
    header_lists,
    read_varints,
    read_varlongs,
)
from kalda.records.columnar_selection import Selection
from kalda.records.columnar_starts import RECORDS_MIN, is_worthwhile, linked_starts
from kalda.records.errors import CorruptRecordError, NeedMoreBytes
from kalda.records.varint import read_varint

_RUN_MIN: Final = 16
"""The shortest run of equally sized records worth detecting; the loop walks a shorter one faster."""
_SKIP_MAX: Final = 1024
"""Records walked between two failed detections: one detection costs about as much as ten records."""
_PROBED: Final = 8
"""Known starts from which is judged whether all others can be found at once."""


def decode(
    selection: Selection, start_offset: int, end_offset: int | None, wanted: WantedFields, as_binary: bool
) -> list[pa.Array]:
    """Return offsets, timestamps, timestamp types, keys, values and, if they are wanted, headers.

    Raises `CorruptRecordError` where a record does not fill its length, or a batch has other records than it
    counts.
    """
    data = selection.data if isinstance(selection.data, bytes) else bytes(selection.data)
    array = np.frombuffer(data, np.uint8)
    batches = selection.headers
    counts = np.array([header.record_count for header in batches])
    starts = _record_starts(data, selection.sections, batches)
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    ends[np.cumsum(counts) - 1] = [end for _, end in selection.sections]

    sizes, at = read_varints(array, starts)
    _check_ends(at + sizes == ends, selection)
    # The attributes byte is unused in format 2 and skipped.
    timestamps, at = read_varlongs(array, at + 1)
    offsets, at = read_varints(array, at)
    key_sizes, key_starts = read_varints(array, at)
    value_sizes, value_starts = read_varints(array, key_starts + np.maximum(key_sizes, 0))
    header_counts, at = read_varints(array, value_starts + np.maximum(value_sizes, 0))
    # Without headers a record ends here; otherwise each header takes two bytes at least.
    _check_ends(np.where(header_counts == 0, at == ends, at + 2 * header_counts <= ends), selection)
    _check_ends(header_counts >= 0, selection)

    headers = header_lists(data, at, ends, header_counts) if wanted.headers else None
    offsets += np.repeat(np.array([header.base_offset for header in batches]), counts)
    timestamps, timestamp_types = _timestamps(timestamps, batches, counts)
    keep = offsets >= start_offset
    if end_offset is not None:
        keep &= offsets < end_offset
    if not keep.all():
        offsets, timestamps, timestamp_types = offsets[keep], timestamps[keep], timestamp_types[keep]
        key_starts, key_sizes = key_starts[keep], key_sizes[keep]
        value_starts, value_sizes = value_starts[keep], value_sizes[keep]
        headers = None if headers is None else headers.filter(pa.array(keep))
    to_arrow = binary_copies if as_binary else binary_views
    nothing = pa.nulls(len(offsets), pa.binary() if as_binary else pa.binary_view())
    keys = to_arrow(data, key_starts, key_sizes) if wanted.keys else nothing
    values = to_arrow(data, value_starts, value_sizes) if wanted.values else nothing
    columns = [pa.array(offsets), pa.array(timestamps), pa.array(timestamp_types), keys, values]
    if headers is not None:
        columns.append(headers)
    return columns


def _record_starts(data: bytes, sections: list[tuple[int, int]], headers: list[BatchHeader]) -> Positions:
    """Return where each record's length varint starts, batch after batch.

    Odd (negative) lengths are not checked here; the field arrays detect them.

    Plain records of many sizes are found at once; see `columnar_starts`. A run of records of one size is
    added in one step. Detection runs often while it succeeds and ever more rarely while it fails, so records
    of many sizes cost next to nothing extra.
    """
    pieces: list[Positions] = []
    starts: list[int] = []
    skip = _RUN_MIN
    # Records to walk one by one before the next run detection; carried over from batch to batch.
    walk = 0
    for (position, end), header in zip(sections, headers, strict=True):
        remaining = header.record_count
        is_tried = False
        try:
            while remaining:
                if not walk:
                    run, size = _run_of_one_size(data, position, end, remaining)
                    starts.extend(range(position, position + run * size, size))
                    position += run * size
                    remaining -= run
                    if run >= _RUN_MIN:
                        skip = _RUN_MIN
                        continue
                    walk = skip
                    skip = min(2 * skip, _SKIP_MAX)
                count = min(walk, remaining)
                position = _walk_records(data, position, count, starts)
                walk -= count
                remaining -= count
                if remaining < RECORDS_MIN or is_tried:
                    continue
                if is_worthwhile(data, starts[-_PROBED:], position, end, remaining):
                    is_tried = True
                    linked = linked_starts(data, position, end, remaining)
                    if linked is not None:
                        pieces += [np.array(starts, np.int64), linked]
                        starts.clear()
                        position, remaining, skip = end, 0, _RUN_MIN
        except (IndexError, NeedMoreBytes):
            position = -1
        if position != end:
            raise CorruptRecordError(
                f"batch at offset {header.base_offset} does not end with its {header.record_count} records"
            )
    rest = np.fromiter(starts, np.int64, len(starts))
    return np.concatenate([*pieces, rest]) if pieces else rest


def _run_of_one_size(data: bytes, position: int, end: int, count: int) -> tuple[int, int]:
    """Return how many records from `position` on have the size of the first, and that size with its varint.

    If the varints at positions p, p+s, p+2s, … all encode the size s, each record ends where the next begins,
    so the run is certain. The loop handles runs whose length varint has three bytes.
    """
    byte = data[position]
    varint_size = 1
    size = 1 + (byte >> 1)
    if byte >= 0x80:
        if (second := data[position + 1]) >= 0x80:
            return 0, 1
        varint_size = 2
        size = (byte >> 1) + (second << 6) - 62
    count = min(count, (end - position) // size)
    # Check the second record first: most detections fail there.
    for window in (min(count, _RUN_MIN), count):
        run = window
        for start in range(position, position + varint_size):
            varint_bytes = data[start : position + window * size : size]
            run = min(run, window - len(varint_bytes.lstrip(varint_bytes[:1])))
        if run < window:
            break
    return run, size


def _walk_records(data: bytes, position: int, count: int, starts: list[int]) -> int:
    """Add the starts of `count` records to `starts`; return the position behind the last."""
    append = starts.append
    for _ in repeat(None, count):
        append(position)
        byte = data[position]
        if byte < 0x80:
            position += 1 + (byte >> 1)
        elif (second := data[position + 1]) < 0x80:
            # ((byte & 0x7F) | second << 7) >> 1 bytes behind a varint of two.
            position += (byte >> 1) + (second << 6) - 62
        else:
            size, position = read_varint(data, position)
            position += size
    return position


def _check_ends(is_right: npt.NDArray[np.bool_], selection: Selection) -> None:
    if is_right.all():
        return
    row = int(np.argmin(is_right))
    for header in selection.headers:
        if row < header.record_count:
            raise CorruptRecordError(
                f"batch at offset {header.base_offset}: record {row} does not end where its length says"
            )
        row -= header.record_count


def _timestamps(
    deltas: Positions, batches: list[BatchHeader], counts: npt.NDArray[np.int64]
) -> tuple[Positions, npt.NDArray[np.int32]]:
    """Return each record's timestamp and its type; log-append time applies to every record of a batch."""
    is_appended = np.array([header.timestamp_type is TimestampType.LOG_APPEND_TIME for header in batches])
    timestamps = np.repeat(np.array([header.base_timestamp for header in batches]), counts) + deltas
    if is_appended.any():
        append_times = np.repeat(np.array([header.max_timestamp for header in batches]), counts)
        timestamps = np.where(np.repeat(is_appended, counts), append_times, timestamps)
    return timestamps, np.repeat(is_appended, counts).astype(np.int32)
