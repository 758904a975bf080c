"""Decodes fetched record batches to Arrow columns without creating an object per record.

A plain loop finds where the records start, because a record's length is known only from the record itself;
small records without headers are found at once (`columnar_starts`). numpy then reads the varints of one field
of all records at once, and keys and values become views into the fetched buffer. `record.iter_records` yields
the same values as rows; tests compare the two.

Performance depends on one rule: the loop in `_walk_records` is the only code that runs once per record.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kalda.records.aborted_transactions import AbortedTransactions
from kalda.records.batch import HEADER_SIZE, BatchHeader, Buffer, TimestampType, iter_headers, validate
from kalda.records.columnar_fields import (
    HEADERS_TYPE,
    Positions,
    binary_copies,
    binary_views,
    header_lists,
    read_varints,
    read_varlongs,
)
from kalda.records.columnar_starts import RECORDS_MIN, is_worthwhile, linked_starts
from kalda.records.compression import DECOMPRESSED_SIZE_MAX, Compression
from kalda.records.errors import CorruptRecordError, NeedMoreBytes
from kalda.records.record import record_bytes
from kalda.records.varint import read_varint

# Arrow's views and `binary` offsets are 32-bit, so one decode stays below 2 GiB of records.
_BUFFER_SIZE_MAX: Final = 0x7FFFFFFF
# Decompressed records of one decode: well below the same bound, and within a small machine's memory.
_DATA_SIZE_MAX: Final = 512 * 1024 * 1024
_RUN_MIN: Final = 16
"""The shortest run of equally sized records worth detecting; the loop walks a shorter one faster."""
_SKIP_MAX: Final = 1024
"""Records walked between two failed detections: one detection costs about as much as ten records."""
_PROBED: Final = 8
"""Known starts from which is judged whether all others can be found at once."""


@dataclass(slots=True, eq=False, kw_only=True)
class ColumnarBatch:
    """The columns of one decode, and the offset and position that it reached.

    `next_offset` is the offset to fetch next. It passes aborted, control and compacted-away records, so a
    reader makes progress on them. `consumed_bytes` counts the whole batches decoded from the buffer's front.
    """

    offsets: pa.Array
    timestamps_ms: pa.Array
    timestamp_types: pa.Array
    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None
    next_offset: int
    consumed_bytes: int

    def __len__(self) -> int:
        return len(self.offsets)

    def to_record_batch(self) -> pa.RecordBatch:
        """Return key, value, offset, timestamp (UTC, ms), timestamp_type and, if they were read, headers."""
        arrays = [
            self.keys,
            self.values,
            self.offsets,
            self.timestamps_ms.view(pa.timestamp("ms", "UTC")),
            self.timestamp_types,
        ]
        names = ["key", "value", "offset", "timestamp", "timestamp_type"]
        if self.headers is not None:
            arrays.append(self.headers)
            names.append("headers")
        return pa.RecordBatch.from_arrays(arrays, names=names)


def decode_batches(
    buffer: Buffer,
    *,
    start_offset: int,
    end_offset: int | None = None,
    aborted: Iterable[tuple[int, int]] = (),
    check_crc: bool = True,
    want_headers: bool = False,
    as_binary: bool = True,
    size_max: int = DECOMPRESSED_SIZE_MAX,
) -> ColumnarBatch:
    """Decode the whole batches at the front of `buffer`, a partition's records as a fetch returns them.

    Records below `start_offset` and from `end_offset` on are left out, as are control batches and, given
    the response's `aborted` list of (producer id, first offset), the batches of aborted transactions. A
    partial batch at the end is not consumed. With `as_binary`, keys and values are copied to ``binary``;
    else they stay ``binary_view``, which points into `buffer` if that is `bytes` and the records are not
    compressed. `size_max` bounds the decompressed size of one batch.

    Raises `CorruptRecordError`, `UnsupportedMagicError`, `UnsupportedCompressionTypeError` or
    `DecompressedSizeError`. Header bytes are checked only with `want_headers`.

    Continue by fetching from `next_offset`, with the new response's aborted list. Decoding the rest of the
    same buffer with the old list would drop records that a producer wrote after an abort that was already
    passed.
    """
    if len(buffer) > _BUFFER_SIZE_MAX:
        raise ValueError(f"buffer of {len(buffer)} bytes is over {_BUFFER_SIZE_MAX}; decode it in parts")
    data = buffer if isinstance(buffer, bytes) else bytes(buffer)
    selection = _select(data, start_offset, end_offset, aborted, check_crc, size_max)
    if not selection.headers:
        return _empty(selection, want_headers, as_binary)
    return _decode(selection, start_offset, end_offset, want_headers, as_binary)


def iter_record_batches(
    buffer: Buffer,
    *,
    start_offset: int,
    end_offset: int | None = None,
    aborted: Iterable[tuple[int, int]] = (),
    check_crc: bool = True,
    want_headers: bool = False,
    as_binary: bool = True,
    rows_max: int = 10_000,
) -> Iterator[pa.RecordBatch]:
    """Decode `buffer` as `decode_batches` does; yield its rows as `RecordBatch`es of at most `rows_max`."""
    batch = decode_batches(
        buffer,
        start_offset=start_offset,
        end_offset=end_offset,
        aborted=aborted,
        check_crc=check_crc,
        want_headers=want_headers,
        as_binary=as_binary,
    ).to_record_batch()
    for start in range(0, batch.num_rows, rows_max):
        yield batch.slice(start, rows_max)


class _Selection:
    """The batches whose records are returned, and the positions of those records in `data`."""

    __slots__ = (
        "_data_size",
        "_fetched",
        "_parts",
        "consumed_bytes",
        "data",
        "headers",
        "next_offset",
        "sections",
    )

    def __init__(self, fetched: bytes, next_offset: int) -> None:
        self._fetched = fetched
        # Records sections. Once one batch is compressed, the section of every batch is a part.
        self._parts: list[bytes | memoryview] = []
        self._data_size = 0
        self.data = fetched
        self.headers: list[BatchHeader] = []
        self.sections: list[tuple[int, int]] = []
        self.next_offset = next_offset
        self.consumed_bytes = 0

    def add(self, position: int, header: BatchHeader, size_max: int) -> bool:
        """Add a batch; return False if it would make the decode too large."""
        is_plain = header.compression is Compression.NONE
        if is_plain and not self._parts:
            self.sections.append((position + HEADER_SIZE, position + header.size))
            self.headers.append(header)
            return True
        part: bytes | memoryview
        if is_plain:
            part = memoryview(self._fetched)[position + HEADER_SIZE : position + header.size]
        else:
            part = record_bytes(self._fetched, position, header, size_max)
        if not self._parts:
            self._move_to_parts()
        if self._parts and self._data_size + len(part) > _DATA_SIZE_MAX:
            return False
        self._add_part(part)
        self.headers.append(header)
        return True

    def finish(self) -> None:
        """Join all sections in one buffer, if compressed batches made several."""
        if self._parts:
            self.data = b"".join(self._parts)

    def _move_to_parts(self) -> None:
        sections = self.sections
        self.sections = []
        for start, end in sections:
            self._add_part(memoryview(self._fetched)[start:end])

    def _add_part(self, part: bytes | memoryview) -> None:
        self._parts.append(part)
        self.sections.append((self._data_size, self._data_size + len(part)))
        self._data_size += len(part)


def _select(
    data: bytes,
    start_offset: int,
    end_offset: int | None,
    aborted: Iterable[tuple[int, int]],
    check_crc: bool,
    size_max: int,
) -> _Selection:
    """Walk the batch headers and select the batches with records to return."""
    selection = _Selection(data, start_offset)
    transactions = AbortedTransactions(aborted)
    for position, header in iter_headers(data):
        if end_offset is not None and header.base_offset >= end_offset:
            selection.next_offset = max(start_offset, end_offset)
            break
        if check_crc:
            validate(data, position, header)
        is_dropped = transactions.drops(data, position, header)
        if header.next_offset > selection.next_offset:
            is_wanted = not is_dropped and not header.is_control and header.record_count > 0
            if is_wanted and not selection.add(position, header, size_max):
                break
            selection.next_offset = header.next_offset
        selection.consumed_bytes = position + header.size
    if end_offset is not None and selection.next_offset > end_offset:
        selection.next_offset = max(start_offset, end_offset)
    selection.finish()
    return selection


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


def _decode(
    selection: _Selection, start_offset: int, end_offset: int | None, want_headers: bool, as_binary: bool
) -> ColumnarBatch:
    data = selection.data
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

    headers = header_lists(data, at, ends, header_counts) if want_headers else None
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
    keys = to_arrow(data, key_starts, key_sizes)
    values = to_arrow(data, value_starts, value_sizes)
    columns = [pa.array(offsets), pa.array(timestamps), pa.array(timestamp_types), keys, values]
    if headers is not None:
        columns.append(headers)
    return _to_batch(columns, selection)


def _to_batch(columns: list[pa.Array], selection: _Selection) -> ColumnarBatch:
    offsets, timestamps, timestamp_types, keys, values, *headers = columns
    return ColumnarBatch(
        offsets=offsets,
        timestamps_ms=timestamps,
        timestamp_types=timestamp_types,
        keys=keys,
        values=values,
        headers=headers[0] if headers else None,
        next_offset=selection.next_offset,
        consumed_bytes=selection.consumed_bytes,
    )


def _empty(selection: _Selection, want_headers: bool, as_binary: bool) -> ColumnarBatch:
    bytes_type = pa.binary() if as_binary else pa.binary_view()
    types = [pa.int64(), pa.int64(), pa.int32(), bytes_type, bytes_type]
    if want_headers:
        types.append(HEADERS_TYPE)
    return _to_batch([pa.array([], column_type) for column_type in types], selection)


def _check_ends(is_right: npt.NDArray[np.bool_], selection: _Selection) -> None:
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
