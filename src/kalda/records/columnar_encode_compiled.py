"""Encodes Arrow columns to the records of a batch with compiled code.

This module hands the buffers of Arrow columns to `_records`, which writes record after record and copies keys
and values once, without the GIL.

The bytes equal those of `columnar_encode_numpy`, which also says what is an error: both functions return None
for columns that they do not accept.
"""

import pyarrow as pa

from kalda.records import _records
from kalda.records.columnar_binary import Integers, as_binary


def encode_records(
    keys: pa.Array | None, values: pa.Array, times: Integers, header_bytes: pa.Array | None, prefix: int
) -> bytearray | None:
    """Return `prefix` unset bytes and the records section behind them.

    Columns are ``binary``; `header_bytes` is what the function `header_bytes` returns.
    """
    return _records.encode_records(
        _buffers(keys), _buffers(values), _buffers(header_bytes), pa.py_buffer(times), len(values), prefix
    )


def header_bytes(headers: pa.Array) -> pa.Array | None:
    """Return each row's headers as encoded in a record, the count first."""
    if not isinstance(headers, pa.ListArray):
        return None
    count = len(headers)
    entries = headers.values
    keys, values = as_binary(entries.field("key")), as_binary(entries.field("value"))
    ends = pa.allocate_buffer(4 * count + 4)
    validity, list_ends = headers.buffers()[:2]
    if not count:
        return pa.array([], pa.binary())
    contents = _records.encode_headers(
        (headers.offset, validity, list_ends, None),
        _buffers(keys),
        _buffers(values),
        len(entries),
        count,
        ends,
    )
    if contents is None:
        return None
    return pa.Array.from_buffers(pa.binary(), count, [None, ends, pa.py_buffer(contents)], 0)


def _buffers(column: pa.Array | None) -> "_records.BinaryColumn | None":
    """Return the buffers of a ``binary`` column, None without rows: those may have no buffers."""
    if column is None or not len(column):
        return None
    validity, ends, data = column.buffers()
    return column.offset, validity, ends, data
