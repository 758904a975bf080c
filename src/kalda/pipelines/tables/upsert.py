"""Selects the row of each key that an upsert keeps, by hidden columns that the rows carry.

Decides alone, no I/O. Tasks write rows with a topic partition, an offset and a mark of deletion beside the
table's columns; of the rows of one key in a batch the last by (order_by, partition, offset) counts. A row
without an `order_by`, as a tombstone is, has its record's position alone: it replaces what came before, and
what comes after replaces it. Do not break: of two rows of one key with an `order_by` the one with the greater
stays, in whatever order they come, and a batch has the effect that its rows would have one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kalda.pipelines.spec.model import TableSpec
from kalda.pipelines.tables.errors import TableSpecError, UpsertRefusedError

PARTITION: Final = "__kalda_partition"
OFFSET: Final = "__kalda_offset"
DELETE: Final = "__kalda_delete"
HIDDEN: Final = pa.schema([(PARTITION, pa.int32()), (OFFSET, pa.int64()), (DELETE, pa.bool_())])
"""Columns of rows for an upsert. The table has none of them; a missing mark of deletion means false."""
REPLACES: Final = "__kalda_replaces"
"""Whether a row replaces one of the table with any `order_by`; `last_rows` adds it."""
GREATEST: Final = "__kalda_greatest"
"""The greatest `order_by` of the key's rows, which `last_rows` adds: a row of the table with more stays.

It is the row's own, unless a deletion with a greater one came before it: that has made way for the row."""


def check_upsert(spec: TableSpec, schema: pa.Schema) -> None:
    """Check that the rows have the columns of `keys` and `order_by`, with types that can be compared.

    Raises:
        TableSpecError: A column is absent, nested or, as a key, a floating-point number.
    """
    if not spec.keys:
        raise TableSpecError(f"The table {spec.table} has no keys; mode upsert needs `keys: [column, ...]`")
    for role, names in (("keys", spec.keys), ("order_by", (spec.order_by,) if spec.order_by else ())):
        for name in names:
            index = schema.get_field_index(name)
            if index < 0:
                raise TableSpecError(
                    f"{role} of the table {spec.table} names the column {name!r}, which the rows lack; "
                    f"they have {', '.join(schema.names)}"
                )
            kind = schema.field(index).type
            if pa.types.is_nested(kind) or (role == "keys" and pa.types.is_floating(kind)):
                raise TableSpecError(
                    f"{role} of the table {spec.table} names {name!r} of type {kind}, without exact order; "
                    "use a text, a number or a time"
                )


def without_hidden(schema: pa.Schema) -> pa.Schema:
    """Return the columns of the table."""
    return pa.schema([field for field in schema if field.name not in HIDDEN.names])


def last_rows(rows: pa.Table, keys: Sequence[str], order_by: str | None, table: str) -> pa.Table:
    """Return the row of each key that counts, with a mark of deletion that is never null.

    It comes with `REPLACES`, and with `GREATEST` where there is an `order_by`.

    Example, with rows (order, offset) of one key: (5, 0), (3, 1) → (5, 0). With a tombstone, which has no
    order: (5, 0), (null, 1), (3, 2) → (3, 2), and it replaces whatever the table has. With a deletion:
    (5, 0, deletes), (3, 1) → (3, 1), and it replaces a row of the table up to 5.

    Raises:
        UpsertRefusedError: A key is null.
    """
    for name in keys:
        nulls = rows.column(name).null_count
        if nulls:
            raise UpsertRefusedError(
                f"{nulls} of {rows.num_rows} rows for the table {table} have no {name!r}, which is a key; "
                f"drop them or send them to the dead-letter queue by an expectation: `{name} is not null`"
            )
    by_place = [(name, "ascending") for name in (*keys, PARTITION, OFFSET)]
    ordered = rows.take(pc.sort_indices(rows, sort_keys=by_place))
    deletes = pc.fill_null(ordered.column(DELETE), False)
    ordered = ordered.set_column(
        ordered.schema.get_field_index(DELETE), pa.field(DELETE, pa.bool_()), deletes
    )
    places = _last_places(
        ordered.select(list(keys)), _order_ranks(ordered, order_by), deletes.to_numpy().astype(bool)
    )
    found = ordered.take(pa.array(places.last)).append_column(REPLACES, pa.array(places.replaces))
    if order_by is None:
        return found
    return found.append_column(GREATEST, with_order(ordered.column(order_by)).take(pa.array(places.greatest)))


def _order_ranks(rows: pa.Table, order_by: str | None) -> np.ndarray:
    """Return a number for each row that rises with its order: -1 without one; 0 without `order_by`."""
    if order_by is None or not rows.num_rows:
        return np.zeros(rows.num_rows, dtype=np.int64)
    column = with_order(rows.column(order_by))
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    ranks: np.ndarray = pc.rank(column.combine_chunks(), tiebreaker="dense").to_numpy().astype(np.int64)
    ranks[column.is_null().to_numpy()] = -1
    return ranks


def with_order(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the values of `order_by` with null in place of NaN, which engines order differently."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


@dataclass(frozen=True, slots=True)
class _Places:
    """For each key the places of the row that counts and of the one with the greatest order."""

    last: np.ndarray
    greatest: np.ndarray
    replaces: np.ndarray
    """Whether the row replaces any row of the table."""


def _last_places(keys: pa.Table, ranks: np.ndarray, deletes: np.ndarray) -> _Places:
    """Return the places of the rows that count.

    Args:
        keys: sorted by themselves, and those that are equal by the position of their record.
        ranks: what `_order_ranks` gives for them.
        deletes: which rows delete.
    """
    count = len(ranks)
    if not count:
        return _Places(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, bool))
    begins = np.zeros(count, dtype=bool)
    begins[0] = True
    for column in keys.itercolumns():
        begins[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy()
    starts, group = np.flatnonzero(begins), np.cumsum(begins) - 1
    places = np.arange(count)
    # What comes before a row without an order does not count.
    since = np.maximum.reduceat(np.where(ranks < 0, places, -1), starts)
    ranks = np.where(places >= since[group], ranks, -2)
    # Rows with a greater order than all rows of the key behind them; a key's ranks lie above the next key's.
    heights = ranks + (len(starts) - group) * (int(ranks.max()) + 3)
    behind = np.append(np.maximum.accumulate(heights[::-1])[::-1][1:], -1)
    is_greater = heights > behind
    greatest = np.minimum.reduceat(np.where(is_greater, places, count), starts)
    # Behind a deletion the key is gone, so that the next of them is inserted whatever its order.
    stays = np.minimum.reduceat(np.where(is_greater & ~deletes, places, count), starts)
    return _Places(np.where(stays < count, stays, greatest), greatest, since >= 0)
