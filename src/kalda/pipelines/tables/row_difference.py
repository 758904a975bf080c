"""Computes the rows that a version of a table changed, where its log names only the files it replaced.

An upsert that writes files again removes and adds each row of them, also those that it left alone. Rows that
are equal on both sides cancel each other out, as often as they are there. Deletions come before insertions,
and the order is the same each time, because a publisher resumes in the middle.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kalda.pipelines.tables.model import ChangeSet
from kalda.pipelines.tables.reading import BATCH_ROWS

COMPARED_BYTES_MAX: Final = 512 * 1024 * 1024
"""Rows that the driver holds in memory to compare them. A version that replaced more is given as all the rows
that it removed and then all that it added: the result is the same, with more changes than necessary."""

Rows = Callable[[], Iterator[pa.RecordBatch]]
"""Reads rows from their beginning, each time it is called."""

_SIDE: Final = "side"
_ROW: Final = "row"


def changed_rows(
    version: int, removed: Rows, added: Rows, *, bytes_max: int = COMPARED_BYTES_MAX
) -> Iterator[ChangeSet]:
    """Return the deletions and then the insertions of a version, by the rows of the files on both sides.

    Example: removed (1, a), (2, b); added (1, a), (2, c) → delete (2, b), insert (2, c).
    """
    # A version that only adds or only removes files has nothing to compare.
    has_both = next(removed(), None) is not None and next(added(), None) is not None
    difference = _difference(removed, added, bytes_max) if has_both else None
    if difference is None:
        for kind, rows in (("delete", removed), ("insert", added)):
            for batch in rows():
                yield ChangeSet(version, kind, batch)
        return
    for kind, table in zip(("delete", "insert"), difference, strict=True):
        for batch in table.to_batches(max_chunksize=BATCH_ROWS):
            yield ChangeSet(version, kind, batch)


def _difference(removed: Rows, added: Rows, bytes_max: int) -> tuple[pa.Table, pa.Table] | None:
    """Return the rows that are on one side only; None for too many."""
    batches: list[pa.RecordBatch] = []
    counts = []
    size = 0
    for rows in (removed, added):
        count = 0
        for batch in rows():
            size += batch.nbytes
            if size > bytes_max:
                return None
            batches.append(batch)
            count += batch.num_rows
        counts.append(count)
    table = pa.Table.from_batches(batches)
    sides = np.repeat(np.array([-1, 1], np.int64), counts)
    keys = [_comparable(column) for column in table.columns]
    names = [f"c{index}" for index in range(len(keys))]
    compared = pa.table([*keys, sides, np.arange(len(sides))], [*names, _SIDE, _ROW])
    # Without threads, groups are in the order of their first rows.
    groups = compared.group_by(names, use_threads=False).aggregate([(_SIDE, "sum"), (_ROW, "min")])
    net = groups.column(f"{_SIDE}_sum").to_numpy()
    first = groups.column(f"{_ROW}_min").to_numpy()
    return tuple(table.take(pa.array(np.repeat(first, np.maximum(times, 0)))) for times in (-net, net))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column that rows can be grouped by; Arrow groups by plain values only."""
    if not pa.types.is_nested(column.type):
        return column
    texts = [pa.array(map(repr, chunk.to_pylist()), pa.large_string()) for chunk in column.chunks]
    return pc.if_else(column.is_valid(), pa.chunked_array(texts, pa.large_string()), None)
