"""Resolves the columns of a writer's Avro schema to those of a reader's, for schemas of plain fields.

These are the common evolutions: fields added with a default, dropped, reordered, made nullable, widened
numbers. The rest of Avro's resolution (renamed records, unions of several types, defaults of records) is
fastavro's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from kalda.formats.avro_schema import AvroSchema, arrow_type

_PROMOTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "int": ("long", "double"),
    "long": ("double",),
    "float": ("double",),
}
"""Promotions whose values are those of fastavro; a float that holds a long rounds differently."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """Which column of the writer each column of the reader is, or its default.

    Args:
        type: The reader's columns.
        sources: For each of them the writer's column, or the default.
        is_same: Whether the writer's columns are the reader's.
    """

    written: AvroSchema
    """The writer's schema; of fields that the reader does not have, only where they end matters."""
    type: pa.DataType
    sources: tuple[int | pa.Scalar, ...]
    is_same: bool

    @classmethod
    def of(cls, writer: AvroSchema, reader: AvroSchema | None) -> "Resolution | None":
        """Return the resolution, or None when it takes more than columns."""
        if reader is None or reader.expanded == writer.expanded:
            return cls(writer, writer.type, (), True)
        if not (writer.is_record and reader.is_record):
            return None
        written, wanted = writer.expanded, reader.expanded
        assert isinstance(written, dict)
        assert isinstance(wanted, dict)
        if written.get("name") != wanted.get("name"):
            return None
        names = [field["name"] for field in written["fields"]]
        sources: list[int | pa.Scalar] = []
        for field, column in zip(wanted["fields"], reader.type, strict=True):
            if field["name"] in names:
                index = names.index(field["name"])
                if not _fits(written["fields"][index]["type"], field["type"]):
                    return None
                sources.append(index)
                continue
            default = _default(field, column.type)
            if default is None:
                return None
            sources.append(default)
        fields = [
            field if index in sources else {**field, "type": _unread(field["type"])}
            for index, field in enumerate(written["fields"])
        ]
        expanded = {**written, "fields": fields}
        return cls(
            replace(writer, expanded=expanded, type=arrow_type(expanded, "")),
            reader.type,
            tuple(sources),
            False,
        )

    def resolved(self, rows: pa.StructArray) -> pa.StructArray:
        """Return the writer's rows with the reader's columns."""
        if self.is_same:
            return rows
        columns = [
            # A long beyond 2^53 becomes the nearest double, as by Avro's promotion.
            rows.field(source).cast(field.type, safe=not pa.types.is_floating(field.type))
            if isinstance(source, int)
            else pa.repeat(source, len(rows))
            for source, field in zip(self.sources, self.type, strict=True)
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))


def _unread(node: Any) -> Any:
    """Return a type whose values take the same bytes, and whose every value is good."""
    if isinstance(node, list):
        return [_unread(branch) for branch in node]
    if not isinstance(node, Mapping):
        plain = {"int": "long", "string": "bytes", "boolean": {"type": "fixed", "name": "_", "size": 1}}
        return plain.get(node, node)
    match node["type"]:
        case "record" | "error":
            return {**node, "fields": [{**each, "type": _unread(each["type"])} for each in node["fields"]]}
        case "enum":
            return "long"
        case "fixed":
            return {"type": "fixed", "name": "_", "size": node["size"]}
    return _unread(node["type"])


def _fits(written: object, wanted: object) -> bool:
    if written == wanted:
        return True
    if isinstance(wanted, list) and not isinstance(written, list):
        others = [branch for branch in wanted if branch != "null"]
        return len(wanted) == 2 and len(others) == 1 and _fits(written, others[0])
    if isinstance(wanted, list) and isinstance(written, list):
        pairs = [[b for b in union if b != "null"] for union in (written, wanted)]
        return all(len(b) == 1 for b in pairs) and "null" in wanted and _fits(pairs[0][0], pairs[1][0])
    return isinstance(written, str) and isinstance(wanted, str) and wanted in _PROMOTIONS.get(written, ())


def _default(field: Mapping[str, object], kind: pa.DataType) -> pa.Scalar | None:
    """Return the default of a plain field, or None when there is none or it takes more."""
    if "default" not in field or field.get("aliases"):
        return None
    value = field["default"]
    node = field["type"]
    plain = node[0] if isinstance(node, list) else node
    if value is None and plain == "null":
        return pa.scalar(None, kind)
    expected = {"int": int, "long": int, "string": str, "boolean": bool, "double": float, "float": float}
    if not isinstance(plain, str) or plain not in expected:
        return None
    if type(value) is not expected[plain] and not (type(value) is int and expected[plain] is float):
        return None
    return pa.scalar(value, kind)
