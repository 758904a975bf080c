"""Files and partitions of an Iceberg table in pyiceberg's values: field ids, bounds, partition records.

Decides alone, no I/O. Do not break: files carry the field ids of the table's schema, by which readers find
columns after a column was added or widened.
"""

import datetime as dt
import decimal
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    YearTransform,
)
from pyiceberg.transforms import Transform as IcebergTransform
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from kalda.pipelines.tables.model import DataFile
from kalda.pipelines.tables.partitions import PartitionField, Transform

FORMAT_VERSION_MAX: Final = 2

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

TRANSFORMS: Final[dict[Transform, IcebergTransform[Any, Any]]] = {
    Transform.IDENTITY: IdentityTransform(),
    Transform.YEAR: YearTransform(),
    Transform.MONTH: MonthTransform(),
    Transform.DAY: DayTransform(),
    Transform.HOUR: HourTransform(),
}


def arrow_file_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a table's files: the types of `schemas.table_schema`, with field ids."""
    return pa.schema([_plain_field(field) for field in schema_to_pyarrow(schema)])


def _plain_field(field: pa.Field) -> pa.Field:
    """Return a field with small offsets and names of our own for the parts of lists, metadata kept."""
    kind = field.type
    if pa.types.is_large_string(kind):
        kind = pa.string()
    elif pa.types.is_large_binary(kind):
        kind = pa.binary()
    elif pa.types.is_struct(kind):
        kind = pa.struct([_plain_field(each) for each in kind])
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(_plain_field(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field))
    return pa.field(field.name, kind, field.nullable, field.metadata)


def same_fields(fields: Sequence[PartitionField], schema: Schema, spec: PartitionSpec) -> bool:
    """Return whether a table's partition spec is that of our fields."""
    own = [(field.source, TRANSFORMS[field.transform]) for field in fields]
    return own == [(schema.find_column_name(field.source_id), field.transform) for field in spec.fields]


def described(schema: Schema, spec: PartitionSpec) -> list[str]:
    """Return a table's partition fields in words: `bucket[16](id)`."""
    return [f"{field.transform}({schema.find_column_name(field.source_id)})" for field in spec.fields]


def table_faults(metadata: TableMetadata) -> list[str]:
    """Return the reasons why a pipeline cannot write a table that another engine made."""
    version = metadata.format_version
    if version <= FORMAT_VERSION_MAX:
        return []
    what = "has row lineage and deletion vectors, which are not implemented"
    return [f"its format version {version} {what}; versions up to {FORMAT_VERSION_MAX} are"]


def iceberg_file(location: str, file: DataFile, schema: Schema, spec: PartitionSpec) -> IcebergFile:
    """Return pyiceberg's value of a file that a task has written."""
    lower, upper, nulls = {}, {}, {}
    for name, stats in file.stats.items():
        field = schema.find_field(name)
        assert isinstance(field.field_type, PrimitiveType), name
        if stats.nulls is not None:
            nulls[field.field_id] = stats.nulls
        if stats.min is not None and stats.max is not None:
            lower[field.field_id] = to_bytes(field.field_type, _internal(stats.min))
            upper[field.field_id] = to_bytes(field.field_type, _internal(stats.max))
    pairs = zip(file.partition, spec.fields, strict=True)
    values = [partition_value(value, field.transform) for (_, value), field in pairs]
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{location}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        record_count=file.rows,
        file_size_in_bytes=file.size_bytes,
        column_sizes={},
        value_counts=dict.fromkeys(nulls, file.rows),
        null_value_counts=nulls,
        nan_value_counts={},
        lower_bounds=lower,
        upper_bounds=upper,
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
        spec_id=spec.spec_id,
    )


def partition_value(value: object, transform: IcebergTransform[Any, Any]) -> object:
    """Return a value of our partition fields as Iceberg's manifests have it.

    A day is a number of days since 1970, `2026-03` a number of months, `2026-03-01-23` a number of hours.
    """
    if value is None:
        return None
    if isinstance(transform, MonthTransform):
        year, month = str(value).split("-")
        return (int(year) - 1970) * 12 + int(month) - 1
    if isinstance(transform, YearTransform):
        return int(str(value)) - 1970
    if isinstance(transform, HourTransform):
        moment = dt.datetime.strptime(str(value), "%Y-%m-%d-%H").replace(tzinfo=dt.UTC)
        return (moment - _EPOCH) // dt.timedelta(hours=1)
    return _internal(value)


def _internal(value: object) -> str | bytes | int | float | bool | decimal.Decimal:
    """Return a value in Iceberg's own form: days for dates, microseconds for times."""
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return (moment - _EPOCH) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - _EPOCH.date()).days
    assert isinstance(value, str | bytes | int | float | bool | decimal.Decimal), value
    return value
