"""Computes partition values of rows, splits batches by them, and writes Hive's directory names.

Decides alone, no I/O. A field is a column as it is, or its year, month, day or hour (UTC). The latter makes a
column of its own in Delta and Parquet (`day(ts)` → `ts_day`) and a hidden transform in Iceberg.
Do not break: one row's values depend on the row alone, so that a replay writes to the same partitions.
"""

import datetime as dt
import enum
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kalda.pipelines.tables.errors import TableSpecError

HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
NAME_BYTES_MAX: Final = 255
"""File systems refuse longer names of a directory."""

_HIVE_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]")
"""What Spark and Hive escape in names of directories."""

_FIELD: Final = re.compile(r"(?:(year|month|day|hour)\((.+)\)|([^()]+))")


class Transform(enum.Enum):
    """How a partition's value follows from its column."""

    IDENTITY = "identity"
    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    HOUR = "hour"


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a partition; `name` is the column of Delta and Parquet, and Iceberg's field name."""

    source: str
    transform: Transform
    name: str

    def type_of(self, source: pa.DataType) -> pa.DataType:
        """Return the type of the values: a day is a date, an hour and a month are texts, a year is a
        number."""
        match self.transform:
            case Transform.IDENTITY:
                return source
            case Transform.DAY:
                return pa.date32()
            case Transform.YEAR:
                return pa.int32()
        return pa.string()

    def values(self, column: pa.Array) -> pa.Array:
        """Return the field's value of each row."""
        if self.transform is Transform.IDENTITY:
            return column
        moment = column
        if pa.types.is_timestamp(column.type):
            moment = column.cast(pa.timestamp("us"))  # UTC's wall clock: no data base of time zones is needed
        match self.transform:
            case Transform.DAY:
                return pc.floor_temporal(moment, unit="day").cast(pa.date32())
            case Transform.YEAR:
                return pc.year(moment).cast(pa.int32())
            case Transform.MONTH:
                return pc.strftime(moment, format="%Y-%m")
        return pc.strftime(
            pc.floor_temporal(moment, unit="hour").cast(pa.timestamp("s")), format="%Y-%m-%d-%H"
        )


def parse_fields(partition_by: Sequence[str]) -> tuple[PartitionField, ...]:
    """Return the fields of `partition_by`.

    Raises:
        TableSpecError: A text is neither a column nor a known transform of one, or a name comes twice.
    """
    fields = []
    for text in partition_by:
        match = _FIELD.fullmatch(text.strip())
        if match is None:
            raise TableSpecError(
                f"partition_by has {text!r}; allowed are a column, year(column), month(column), "
                "day(column), hour(column)"
            )
        transform, source, plain = match.groups()
        if plain is not None:
            fields.append(PartitionField(plain, Transform.IDENTITY, plain))
        else:
            fields.append(
                PartitionField(source.strip(), Transform(transform), f"{source.strip()}_{transform}")
            )
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise TableSpecError(f"partition_by={list(partition_by)} names a field twice; name each once")
    return tuple(fields)


def check_fields(
    fields: Sequence[PartitionField], schema: pa.Schema, *, has_directories: bool = False
) -> None:
    """Check that each field fits the schema of the rows.

    Args:
        fields: How the table is partitioned.
        schema: The columns of the rows.
        has_directories: Whether columns of partitions are in the names of directories alone, not in files.

    Raises:
        TableSpecError: A column is absent, nested, binary or floating, or not a date or timestamp where one
        is needed; or no column is left for the files, whose rows would be lost.
    """
    own = {field.source for field in fields if field.transform is Transform.IDENTITY}
    if has_directories and own and own >= set(schema.names):
        raise TableSpecError(
            f"partition_by names every column ({', '.join(schema.names)}), so that no column is left for the "
            "files; leave one out"
        )
    for field in fields:
        index = schema.get_field_index(field.source)
        if index < 0:
            raise TableSpecError(
                f"partition_by names the column {field.source!r}, which the rows lack; "
                f"they have {', '.join(schema.names)}"
            )
        kind = schema.field(index).type
        if field.transform is Transform.IDENTITY:
            if _has_no_text(kind):
                raise TableSpecError(
                    f"partition_by names {field.source!r} of type {kind}; allowed are texts, integers, "
                    "booleans, "
                    "decimals, dates and timestamps. Make a column of such a type and partition by it"
                )
            continue
        if not pa.types.is_timestamp(kind) and not (
            pa.types.is_date(kind) and field.transform is not Transform.HOUR
        ):
            raise TableSpecError(
                f"partition_by has {field.transform.value}({field.source}), but {field.source!r} is {kind}; "
                "it must be a timestamp. Cast it in the transform"
            )
        if schema.get_field_index(field.name) >= 0:
            raise TableSpecError(
                f"partition_by has {field.transform.value}({field.source}), which makes the column "
                f"{field.name!r}, "
                "but the rows have that column already; rename it"
            )


def text_faults(fields: Sequence[PartitionField], schema: pa.Schema) -> list[str]:
    """Return the columns of a table's partitions whose values have no text that all readers read."""
    return [
        f"it is partitioned by {field.source}, which is {schema.field(field.source).type}"
        for field in fields
        if field.transform is Transform.IDENTITY
        and schema.get_field_index(field.source) >= 0
        and _has_no_text(schema.field(field.source).type)
    ]


def _has_no_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_binary(kind))


def with_partition_columns(schema: pa.Schema, fields: Sequence[PartitionField]) -> pa.Schema:
    """Return a schema with the columns that transforms make, nullable, at the end."""
    for field in fields:
        if field.transform is not Transform.IDENTITY:
            schema = schema.append(pa.field(field.name, field.type_of(schema.field(field.source).type)))
    return schema


def split(
    batch: pa.RecordBatch, fields: Sequence[PartitionField]
) -> Iterator[tuple[tuple[tuple[str, object], ...], pa.RecordBatch]]:
    """Return the rows of each partition with its values; rows keep their order within a partition."""
    if not fields or not batch.num_rows:
        yield (), batch
        return
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    columns = []
    for field in fields:
        column = field.values(batch.column(batch.schema.get_field_index(field.source)))
        encoded = column.dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        # Renumbered after each field, so that the product of the cardinalities never overflows.
        _, codes = np.unique(codes * len(encoded.dictionary) + indices, return_inverse=True)
        columns.append((field.name, column))
    count = int(codes.max()) + 1
    if count == 1:
        yield tuple((name, column[0].as_py()) for name, column in columns), batch
        return
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(count + 1))
    sorted_batch = batch.take(pa.array(order))
    for index in range(count):
        first = int(order[bounds[index]])
        values = tuple((name, column[first].as_py()) for name, column in columns)
        yield values, sorted_batch.slice(bounds[index], bounds[index + 1] - bounds[index])


def value_text(value: object) -> str | None:
    """Return a partition's value as Delta's log and Hive's directories have it; None stays None."""
    match value:
        case None | "":
            return None  # both formats read an empty text as null
        case bool():
            return "true" if value else "false"
        case Decimal():
            return f"{value:f}"
    isoformat = getattr(value, "isoformat", None)
    if isoformat is None:
        return str(value)
    text: str = isoformat(" ") if hasattr(value, "hour") else isoformat()
    return text.removesuffix("+00:00")


def value_of_text(text: str | None, kind: pa.DataType) -> object:
    """Return the value whose `value_text` this is, for a column of a type."""
    if text is None:
        return None
    if pa.types.is_timestamp(kind):
        plain = pa.scalar(text).cast(pa.timestamp("us")).as_py()
        return plain.replace(tzinfo=dt.UTC) if kind.tz else plain
    return pa.scalar(text).cast(kind).as_py()


def hive_directory(partition: Sequence[tuple[str, object]]) -> str:
    """Return Hive's directory of a partition: `(("dt", "a/b"),)` → `dt=a%2Fb`; empty without fields.

    Raises:
        TableSpecError: A value is too long for the name of a directory.
    """
    parts = []
    for name, value in partition:
        text = value_text(value)
        part = directory_part(name, value)
        if is_too_long(part):
            raise TableSpecError(
                f"The partition {name}={text[:40] if text else ''}… makes a directory's name of "
                f"{len(part.encode())} bytes; "
                f"at most {NAME_BYTES_MAX} are allowed. Partition by a shorter column"
            )
        parts.append(part)
    return "/".join(parts)


def directory_part(name: str, value: object) -> str:
    """Return Hive's directory of one field: `("dt", "a/b")` → `dt=a%2Fb`."""
    text = value_text(value)
    return f"{_escape(name)}={HIVE_NULL if text is None else _escape(text)}"


def hive_values(path: str) -> tuple[tuple[str, str | None], ...]:
    """Return the partition of a file in Hive's layout: `dt=a%2Fb/x.parquet` → `(("dt", "a/b"),)`."""
    pairs = (part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    return tuple((unquote(name), None if text == HIVE_NULL else unquote(text)) for name, text in pairs)


def is_too_long(directory: str) -> bool:
    """Return whether file systems refuse a name of a directory."""
    return len(directory.encode()) > NAME_BYTES_MAX


def plain_directory(partition: Sequence[tuple[str, object]]) -> str:
    """Return a directory for formats whose log has the values: only letters, digits and `._-`, at most 80
    long.

    Two partitions may share such a directory. It saves every reader from two layers of escapes.
    """
    parts = []
    for name, value in partition:
        text = value_text(value)
        shown = HIVE_NULL if text is None else re.sub(r"[^A-Za-z0-9._-]", "_", text)[:80]
        parts.append(f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)[:80]}={shown}")
    return "/".join(parts)


def _escape(text: str) -> str:
    return _HIVE_UNSAFE.sub(lambda found: quote(found.group(), safe=""), text)
