"""Resolves the columns of a writer's Avro schema to those of a reader's, for schemas of plain fields.

These are the common evolutions: fields added with a default, dropped, reordered, made nullable, widened
numbers. The rest of Avro's resolution (renamed records, unions of several types, defaults of records) is
fastavro's.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from kalda.formats.avro_schema import TIMESTAMP_MICROS, AvroSchema, arrow_type
from kalda.formats.spec import FormatError

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


def source_of(field: Mapping[Any, Any], names: Container[str]) -> str | None:
    """Return the name that a reader's field has among those of a writer's record; None where it has none."""
    return next((name for name in (field["name"], *field.get("aliases", ())) if name in names), None)


def branch_of(union: object, node: Mapping[Any, Any]) -> object:
    """Return the type of a union that resolves with a type: one of the same kind, and of the same name."""
    if not isinstance(union, list):
        return union
    others = [branch for branch in union if branch != "null"]
    alike = [each for each in others if isinstance(each, Mapping) and each["type"] == node.get("type")]
    alike.sort(key=lambda each: each.get("name") != node.get("name"))
    return alike[0] if alike else others[0] if len(others) == 1 else None


def check_resolution(written: object, wanted: object, path: str = "") -> None:
    """Check that values of one schema mean what another says, where Avro's resolution does not.

    Resolution goes by the types of the bytes, whatever they count, and leaves open which of several fields a
    field is.

    Raises:
        FormatError: A field has two fields to be read from, or two fields are read from it, or a count of one
            thing would be read as one of another.
    """
    for each in wanted if isinstance(wanted, list) else ():
        if isinstance(each, Mapping):
            check_resolution(branch_of(written, each), each, path)
    if not isinstance(wanted, Mapping):
        return
    written = branch_of(written, wanted)
    if not isinstance(written, Mapping):
        return
    counts = [_COUNTED.get(str(node.get("logicalType"))) for node in (written, wanted)]
    if None not in counts and counts[0] != counts[1] and counts != ["day", "timestamp"]:
        raise FormatError(
            f"{path or 'the value'} is written as {written['logicalType']}, "
            f"and cannot be read as {wanted['logicalType']}"
        )
    match wanted["type"]:
        case "record" | "error":
            fields = {field["name"]: field["type"] for field in written.get("fields", ())}
            _check_names(list(fields), wanted["fields"], path)
            for field in wanted["fields"]:
                source = source_of(field, fields)
                if source is not None:
                    check_resolution(fields[source], field["type"], f"{path}.{field['name']}".lstrip("."))
        case "array":
            check_resolution(written.get("items"), wanted["items"], f"{path}[]")
        case "map":
            check_resolution(written.get("values"), wanted["values"], f"{path}.*")
        case Mapping() | list() as kind:
            check_resolution(written["type"], kind, path)


_COUNTED: Final[Mapping[str, str]] = {
    "date": "day",
    "time-millis": "time",
    "time-micros": "time",
    **dict.fromkeys(TIMESTAMP_MICROS, "timestamp"),
}
"""What a number of a logical type counts; a day can become a timestamp."""


def _check_names(written: list[str], wanted: list[dict[str, Any]], path: str) -> None:
    taken = {field["name"]: field["name"] for field in wanted}
    for field in wanted:
        name = field["name"]
        found = [each for each in (name, *field.get("aliases", ())) if each in written]
        others = [each for each in found if taken.setdefault(each, name) == name]
        if len(others) > 1:
            raise FormatError(
                f"{path or 'the record'} is written with {' and '.join(others)}, which are both {name}"
            )
        if found and not others:
            both = f"both {taken[found[0]]} and {name}"
            raise FormatError(f"{path or 'the record'} is written with {found[0]}, which is {both}")


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
