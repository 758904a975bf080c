"""Looks at Arrow columns of bytes with numpy: where values end, how long they are, which are null.

Both encoders of records use it. It knows nothing of records.

A column may be a slice that begins anywhere in its buffers.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Integers = npt.NDArray[np.int64]


def as_binary(column: pa.Array) -> pa.Array:
    """Return a column of any binary or string type as one ``binary`` array."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column if column.type == pa.binary() else column.cast(pa.binary())


def binary_sizes(column: pa.Array) -> Integers:
    """Return the length of each value, 0 for nulls."""
    sizes = pc.binary_length(column)
    if column.null_count:
        sizes = pc.fill_null(sizes, 0)
    lengths: Integers = sizes.to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def binary_ends(column: pa.Array) -> npt.NDArray[np.int32]:
    """Return where the values of a ``binary`` column begin and end in its data."""
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


def is_null(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which values are null."""
    if not column.null_count:
        return np.zeros(len(column), np.bool_)
    nulls: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls
