"""Decodes the records of selected batches to Arrow columns with compiled code.

One pass validates the records and fills the columns of numbers; a second one copies keys and values, once, to
where Arrow wants them. Both release the GIL, so that a client's loop thread receives at the same time. This
module allocates the buffers and puts the columns together; `_records` fills them.

The columns equal those of `columnar_numpy`, which also says what is an error: `decode` returns None for
records that it does not accept.
"""

from typing import Final

import numpy as np
import pyarrow as pa

from kalda.records import _records
from kalda.records.batch import Buffer, TimestampType
from kalda.records.columnar_fields import HEADERS_TYPE, WantedFields, as_strings
from kalda.records.columnar_selection import Selection

_RECORD_SIZE_MIN: Final = 7
"""Six varints and a byte of attributes; a larger count of records is refused without taking memory."""
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_NO_HEADER_ENTRIES: Final = pa.nulls(0, HEADERS_TYPE.value_type)


def decode(
    selection: Selection, start_offset: int, end_offset: int | None, wanted: WantedFields, as_binary: bool
) -> list[pa.Array] | None:
    """Return the columns that `columnar_numpy.decode` returns, or None where that function has to decide."""
    count = sum(header.record_count for header in selection.headers)
    size = sum(end - start for start, end in selection.sections)
    if count * _RECORD_SIZE_MIN > size:
        return None
    data = selection.data
    offsets, timestamps = pa.allocate_buffer(8 * count), pa.allocate_buffer(8 * count)
    timestamp_types = pa.allocate_buffer(4 * count)
    keys, values = _Fields(count), _Fields(count)
    headers = _Fields(count if wanted.headers else 0)
    totals = _records.scan(
        data,
        _sections(selection),
        max(start_offset, _INT64_MIN),
        _INT64_MAX if end_offset is None else min(end_offset - 1, _INT64_MAX),
        wanted.headers,
        (
            offsets,
            timestamps,
            timestamp_types,
            keys.starts,
            keys.ends,
            values.starts,
            values.ends,
            headers.starts,
            headers.ends,
        ),
    )
    if totals is None:
        return None
    rows, key_size, key_nulls, value_size, value_nulls, *header_totals = totals
    columns = [
        pa.Array.from_buffers(pa.int64(), rows, [None, offsets], 0),
        pa.Array.from_buffers(pa.int64(), rows, [None, timestamps], 0),
        pa.Array.from_buffers(pa.int32(), rows, [None, timestamp_types], 0),
    ]
    for is_wanted, fields, size, nulls in (
        (wanted.keys, keys, key_size, key_nulls),
        (wanted.values, values, value_size, value_nulls),
    ):
        if not is_wanted:
            columns.append(pa.nulls(rows, pa.binary() if as_binary else pa.binary_view()))
        else:
            columns.append(
                fields.binary(data, rows, size, nulls) if as_binary else fields.views(data, rows, nulls)
            )
    if wanted.headers:
        columns.append(_header_lists(data, rows, headers, header_totals))
    return columns


class _Fields:
    """Where the bytes of one field start in the data, -1 for a null, and where they end in Arrow's buffer."""

    __slots__ = ("ends", "starts")

    def __init__(self, count: int) -> None:
        self.starts: pa.Buffer = pa.allocate_buffer(4 * count)
        self.ends: pa.Buffer = pa.allocate_buffer(4 * count + 4)

    def binary(self, data: Buffer, rows: int, size: int, nulls: int) -> pa.Array:
        """Return a ``binary`` array of its own bytes."""
        if nulls == rows:
            return pa.nulls(rows, pa.binary())
        contents = pa.allocate_buffer(size)
        _records.copy_bytes(data, self.starts, self.ends, rows, contents)
        return pa.Array.from_buffers(
            pa.binary(), rows, [self._validity(rows, nulls), self.ends, contents], nulls
        )

    def views(self, data: Buffer, rows: int, nulls: int) -> pa.Array:
        """Return a ``binary_view`` array that points into `data`."""
        views = pa.allocate_buffer(16 * rows)
        _records.fill_views(data, self.starts, self.ends, rows, views)
        return pa.Array.from_buffers(
            pa.binary_view(), rows, [self._validity(rows, nulls), views, pa.py_buffer(data)], nulls
        )

    def _validity(self, rows: int, nulls: int) -> pa.Buffer | None:
        if not nulls:
            return None
        bits = pa.allocate_buffer((rows + 7) // 8)
        _records.fill_validity(self.starts, rows, bits)
        return bits


def _sections(selection: Selection) -> bytes:
    """Return the fields that `_records.scan` reads of each section."""
    return np.array(
        [
            (
                start,
                end,
                header.record_count,
                header.base_offset,
                header.base_timestamp,
                header.timestamp_type is TimestampType.LOG_APPEND_TIME,
                header.max_timestamp,
            )
            for (start, end), header in zip(selection.sections, selection.headers, strict=True)
        ],
        np.int64,
    ).tobytes()


def _header_lists(data: Buffer, rows: int, headers: _Fields, totals: list[int]) -> pa.Array:
    count, key_size, value_size, value_nulls = totals
    entries = _NO_HEADER_ENTRIES
    if count:
        keys, values = _Fields(count), _Fields(count)
        _records.fill_header_fields(
            data, headers.starts, headers.ends, rows, (keys.starts, keys.ends, values.starts, values.ends)
        )
        names = as_strings(keys.binary(data, count, key_size, 0))
        entries = pa.StructArray.from_arrays(
            [names, values.binary(data, count, value_size, value_nulls)], names=["key", "value"]
        )
    return pa.Array.from_buffers(HEADERS_TYPE, rows, [None, headers.ends], 0, children=[entries])
