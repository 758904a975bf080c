"""Rows that replace each other by key: the hidden columns they come with, and the last row of each key.

Decides alone, no I/O. Tasks write rows with a topic partition, an offset and a mark of deletion beside the
table's columns; of the rows of one key in a batch the last by (order_by, partition, offset) counts. Do not
break: of two rows of one key the one with the greater `order_by` stays, in whatever order they come.
"""

from collections.abc import Sequence
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
    """Return the last row of each key, with a mark of deletion that is never null.

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
    # A null sorts last in Arrow, but a row without an order is older than all others of its key.
    known = pc.is_valid(rows.column(order_by)) if order_by else pa.repeat(True, rows.num_rows)
    order = [
        (name, "ascending") for name in ("__known", *([order_by] if order_by else []), PARTITION, OFFSET)
    ]
    indices = pc.sort_indices(rows.append_column("__known", known.cast(pa.int8())), sort_keys=order)
    place = _ranks(indices)
    found = (
        rows.select(list(keys))
        .append_column("__rank", place)
        .group_by(list(keys))
        .aggregate([("__rank", "max")])
    )
    last = rows.take(indices.take(found.column("__rank_max").combine_chunks()))
    deletes = pc.fill_null(last.column(DELETE), False)
    return last.set_column(last.schema.get_field_index(DELETE), pa.field(DELETE, pa.bool_()), deletes)


def _ranks(indices: pa.UInt64Array) -> pa.Int64Array:
    """Return the place of each row in the order that `indices` give."""
    ranks = np.empty(len(indices), dtype=np.int64)
    ranks[indices.to_numpy()] = np.arange(len(indices))
    return pa.array(ranks)
