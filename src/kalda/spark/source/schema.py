"""Defines the columns of the source, which are those of Spark's own Kafka connector, as Spark's types.

The driver imports this module in each process that plans a query or runs a stream's source, so it does not
import pyarrow. `arrow_rows` fills the columns.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kalda.spark.source.option_values import OptionError
from kalda.spark.source.options import RowKind

VALUE_ERROR: Final = "value_error"
"""The column that says why a value could not be decoded (`value.onError=null`)."""


def source_schema(
    *,
    include_headers: bool,
    rows: RowKind = RowKind.RECORDS,
    columns: Sequence[str] | None = None,
    value_type: StructType | None = None,
    has_value_error: bool = False,
) -> StructType:
    """Return the columns of the source; `includeHeaders` adds the last one of records.

    Args:
        include_headers: `includeHeaders`.
        rows: `rows`.
        columns: `columns`: only these of a record's columns, in this order, in upper or lower case.
        value_type: The type of decoded values; None for bytes.
        has_value_error: Whether there is a column that says why a value is bad.

    Raises:
        OptionError: there is no such column.
    """
    if rows is RowKind.RANGES:
        return range_schema()
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType() if value_type is None else value_type),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if include_headers:
        entry = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(entry)))
    if has_value_error:
        fields.append(StructField(VALUE_ERROR, StringType()))
    if columns is None:
        return StructType(fields)
    by_lower_name = {field.name.lower(): field for field in fields}
    for name in columns:
        if name.lower() not in by_lower_name:
            raise OptionError(
                f"`columns` names {name}; the columns are {', '.join(field.name for field in fields)}"
                + ("" if include_headers else ", and headers with `includeHeaders`=true")
            )
    return StructType([by_lower_name[name] for name in dict.fromkeys(each.lower() for each in columns)])


def range_schema() -> StructType:
    """Return the columns under `rows=ranges`: one row says which offsets ``[start, end)`` a task reads."""
    return StructType(
        [
            StructField("topic", StringType(), nullable=False),
            StructField("partition", IntegerType(), nullable=False),
            StructField("start", LongType(), nullable=False),
            StructField("end", LongType(), nullable=False),
        ]
    )


def check_schema(
    requested: StructType,
    *,
    include_headers: bool,
    rows: RowKind = RowKind.RECORDS,
    value_type: StructType | None = None,
    has_value_error: bool = False,
) -> None:
    """Accept the source's own schema and any choice of its columns, in any order.

    Spark does not pass the columns that a query uses to a Python source; naming fewer with ``.schema()``
    is the way to read, decode and transfer less, e.g. ``.schema("value binary, offset bigint")``.

    Raises:
        OptionError: a column does not exist or has another type here.
    """
    if rows is RowKind.RANGES:
        if requested != range_schema():
            raise OptionError(f"under `rows`=ranges the schema is {range_schema().simpleString()}")
        return
    complete = source_schema(
        include_headers=include_headers, value_type=value_type, has_value_error=has_value_error
    )
    known = {field.name: field.dataType for field in complete}
    for field in requested:
        if known.get(field.name) != field.dataType:
            columns = ", ".join(f"{name} {kind.simpleString()}" for name, kind in known.items())
            raise OptionError(
                f"the schema asks for {field.name} {field.dataType.simpleString()}; this source has {columns}"
                + ("" if include_headers else ", and headers with `includeHeaders`=true")
            )
