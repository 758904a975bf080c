"""Decodes fetched record batches to Arrow columns without creating an object per record.

`columnar_selection` chooses the batches. Their records are read by compiled code (`columnar_compiled`) where
the package was built with it, else by numpy (`columnar_numpy`). `record.iter_records` yields the same values
as rows; tests compare all three.

Both implementations return equal columns. The compiled one returns None for what it does not accept, and
numpy then decides, so that errors have one source.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kalda.records import columnar_numpy
from kalda.records.aborted_transactions import AbortedTransactions
from kalda.records.batch import Buffer
from kalda.records.columnar_fields import HEADERS_TYPE, WantedFields
from kalda.records.columnar_selection import Selection, select
from kalda.records.compression import DECOMPRESSED_SIZE_MAX
from kalda.records.decompression_buffer import DecompressionBuffer
from kalda.records.format_conversion import is_message_set, up_convert
from kalda.records.implementation import is_built, is_compiled

if is_built:
    from kalda.records import columnar_compiled

# Arrow's views and `binary` offsets are 32-bit, so one decode stays below 2 GiB of records.
_BUFFER_SIZE_MAX: Final = 0x7FFFFFFF


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
    aborted: Iterable[tuple[int, int]] | AbortedTransactions = (),
    check_crc: bool = True,
    want_headers: bool = False,
    want_keys: bool = True,
    want_values: bool = True,
    as_binary: bool = True,
    size_max: int = DECOMPRESSED_SIZE_MAX,
    decompressed_bytes: int = _BUFFER_SIZE_MAX,
    memory: DecompressionBuffer | None = None,
) -> ColumnarBatch:
    """Decode the whole batches at the front of `buffer`, a partition's records as a fetch returns them.

    Records below `start_offset` and from `end_offset` on are left out, as are control batches and, given
    the response's `aborted` list of (producer id, first offset), the batches of aborted transactions. A
    partial batch at the end is not consumed. Messages of format 0 and 1 are converted first, and a call ends
    where the format changes. With `as_binary`, keys and values are copied to ``binary``; else they stay
    ``binary_view``, which points into `buffer` if that is `bytes` and the records are not compressed. Without
    `want_keys` or `want_values`, that column is all null and its bytes are not copied.
    `size_max` bounds the decompressed size of one batch. After `decompressed_bytes` of decompressed records,
    the batches that follow are left for the next call: a decode that fits the processor's cache is faster.
    `memory` is for decompressed records, and may be given to the next call with `as_binary`; without it, each
    call takes memory of its own.

    Raises `CorruptRecordError`, `InvalidRecordError`, `UnsupportedCompressionTypeError` or
    `DecompressedSizeError`. Header bytes are checked only with `want_headers`.

    Continue by fetching from `next_offset`, with the new response's aborted list. To decode the rest of the
    same buffer instead, pass one `AbortedTransactions` to every call: with the list, records that a producer
    wrote after an abort that was already passed would be dropped.
    """
    if len(buffer) > _BUFFER_SIZE_MAX:
        raise ValueError(f"buffer of {len(buffer)} bytes is over {_BUFFER_SIZE_MAX}; decode it in parts")
    # Views outlive the call, and the caller's buffer may be used again; copies do not point to it.
    data = buffer if as_binary or isinstance(buffer, bytes) else bytes(buffer)
    if memory is None or not as_binary:
        # Views point into what is decompressed, so it must not be used again.
        memory = DecompressionBuffer()
    memory.clear()
    consumed_bytes = 0
    if is_message_set(data):
        # The batches made of them are decoded at once, so that `consumed_bytes` is that of `buffer`.
        data, consumed_bytes = up_convert(data, check_crc=check_crc, size_max=size_max, keeps_codecs=False)
        check_crc, decompressed_bytes = False, _BUFFER_SIZE_MAX
    selection = select(
        data, start_offset, end_offset, aborted, check_crc, size_max, decompressed_bytes, memory
    )
    if consumed_bytes:
        selection.consumed_bytes = consumed_bytes
    if not selection.headers:
        return _empty(selection, want_headers, as_binary)
    wanted = WantedFields(keys=want_keys, values=want_values, headers=want_headers)
    arguments = selection, start_offset, end_offset, wanted, as_binary
    columns = columnar_compiled.decode(*arguments) if is_compiled() else None
    batch = _to_batch(columnar_numpy.decode(*arguments) if columns is None else columns, selection)
    if as_binary:
        memory.clear()  # the columns are copies, and what becomes of them may take long
    return batch


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


def _to_batch(columns: list[pa.Array], selection: Selection) -> ColumnarBatch:
    offsets, timestamps, timestamp_types, keys, values, *headers = columns
    assert len({len(each) for each in columns}) == 1, f"columns of {[len(each) for each in columns]} rows"
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


def _empty(selection: Selection, want_headers: bool, as_binary: bool) -> ColumnarBatch:
    bytes_type = pa.binary() if as_binary else pa.binary_view()
    types = [pa.int64(), pa.int64(), pa.int32(), bytes_type, bytes_type]
    if want_headers:
        types.append(HEADERS_TYPE)
    return _to_batch([pa.nulls(0, column_type) for column_type in types], selection)
