"""Finds the features of a Delta table that its writers must honour: protocol, constraints, column mapping.

Decides alone, no I/O. A table that another engine made may have more than a pipeline honours; that is refused
by name before a row is written. Facts are those of Delta's PROTOCOL.md.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kalda.pipelines.sql.nodes import MalformedSqlError, UnsupportedSqlError
from kalda.pipelines.sql.row_query import RowCondition

_HONOURED: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
    }
)
"""Features of writers. Generated columns are refused where a column is one."""
_LEGACY_WRITER_MAX: Final = 5
"""Versions up to this have features of `_HONOURED`; 6 adds identity columns, 7 names its features."""
_FEATURES_WRITER: Final = 7
_CONSTRAINT: Final = "delta.constraints."
_INVARIANT: Final = "delta.invariants"
_LENGTH_TYPE: Final = "__CHAR_VARCHAR_TYPE_STRING"
"""Where Spark notes that a text is ``char(n)`` or ``varchar(n)``; the column itself is a plain text."""
_LENGTH: Final = re.compile(r"(?:var)?char\((\d+)\)")
_REFUSED_COLUMNS: Final = {
    "delta.generationExpression": "is generated",
    "delta.identity.start": "is an identity column",
    "delta.identity.step": "is an identity column",
    "CURRENT_DEFAULT": "has a default value",
}
_PHYSICAL_NAME: Final = b"delta.columnMapping.physicalName"
_COLUMN_ID: Final = b"delta.columnMapping.id"
_FIELD_ID: Final = b"PARQUET:field_id"


def feature_faults(writer_version: int, features: Sequence[str]) -> list[str]:
    """Return the features of a table that a pipeline does not honour."""
    if writer_version > _FEATURES_WRITER:
        return [f"its writer version {writer_version} is not known"]
    if writer_version == _FEATURES_WRITER:
        unknown = sorted(set(features) - _HONOURED)
        return [f"its feature {name} is not implemented" for name in unknown]
    if writer_version > _LEGACY_WRITER_MAX:
        return [f"its writer version {writer_version} asks for identity columns, which are not implemented"]
    return []


def column_faults(schema: Mapping[str, Any]) -> list[str]:
    """Return the columns of a schema, as its JSON has them, that only their own engine can write."""
    return [
        f"its column {column['name']} {what}, which is not implemented"
        for column in schema["fields"]
        for what in sorted({what for key, what in _REFUSED_COLUMNS.items() if key in column["metadata"]})
    ]


def constraints(schema: Mapping[str, Any], configuration: Mapping[str, str | None]) -> dict[str, str]:
    """Return the conditions of a table in SQL, by name.

    These are its CHECK constraints, and the invariants and the greatest lengths of columns.
    """
    found = {
        name.removeprefix(_CONSTRAINT): text
        for name, text in configuration.items()
        if name.startswith(_CONSTRAINT) and text is not None
    }
    for column in schema["fields"]:
        invariant = column["metadata"].get(_INVARIANT)
        if invariant is not None:
            found[f"of the column {column['name']}"] = json.loads(invariant)["expression"]["expression"]
        kind = _LENGTH.fullmatch(str(column["metadata"].get(_LENGTH_TYPE)))
        if kind is not None and column["type"] == "string":
            name = column["name"].replace("`", "``")
            found[f"{kind[0]} of the column {column['name']}"] = (
                f"`{name}` is null or length(`{name}`) <= {kind[1]}"
            )
    return found


def condition_faults(texts: Mapping[str, str], schema: pa.Schema) -> list[str]:
    """Return the constraints that Kalda does not evaluate."""
    found = []
    for name, text in texts.items():
        try:
            RowCondition(text).check(schema)
        except (UnsupportedSqlError, MalformedSqlError) as error:
            found.append(f"its constraint {name} ({text}) cannot be checked: {error}")
    return found


def is_append_only(configuration: Mapping[str, str | None]) -> bool:
    """Return whether rows of a table may never change."""
    return str(configuration.get("delta.appendOnly")).lower() == "true"


def is_mapped(configuration: Mapping[str, str | None]) -> bool:
    """Return whether the columns of files have names of their own."""
    return configuration.get("delta.columnMapping.mode") in ("name", "id")


def physical_schema(named: pa.Schema, schema: pa.Schema) -> pa.Schema:
    """Return the columns of files: physical names and field ids, in the types of `schema`.

    Args:
        named: the table's schema as deltalake gives it, with the names in the fields' metadata.
        schema: columns of it, in the types that files have.
    """
    return pa.schema([_physical(named.field(column.name), column.type) for column in schema])


def physical_name(named: pa.Field) -> str:
    """Return a column's name in files and in the log."""
    name: bytes | None = (named.metadata or {}).get(_PHYSICAL_NAME)
    return str(named.name) if name is None else name.decode()


def _physical(named: pa.Field, kind: pa.DataType) -> pa.Field:
    if pa.types.is_struct(kind):
        kind = pa.struct([_physical(named.type.field(each.name), each.type) for each in kind])
    elif pa.types.is_list(kind):
        item = _physical(named.type.value_field, kind.value_type)
        kind = pa.list_(pa.field("element", item.type))
    elif pa.types.is_map(kind):
        key, value = named.type.key_field, named.type.item_field
        kind = pa.map_(_physical(key, kind.key_type).type, _physical(value, kind.item_type).type)
    number = (named.metadata or {}).get(_COLUMN_ID)
    metadata = None if number is None else {_FIELD_ID: number}
    return pa.field(physical_name(named), kind, metadata=metadata)
