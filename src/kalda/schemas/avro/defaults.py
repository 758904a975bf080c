"""Checks whether a JSON value is a valid default of an Avro type."""

from typing import Final

from kalda.schemas.avro.types import ABSENT, ArrayType, AvroType, MapType, RecordType, UnionType
from kalda.schemas.errors import InvalidSchemaError

STEPS_MAX: Final = 100_000
"""How many values one default is taken for: unions of records with defaults multiply."""
DEPTH_MAX: Final = 200


def is_valid_default(kind: AvroType, value: object) -> bool:
    """Return whether a value is a default; in a union it may be one of any branch.

    Raises:
        InvalidSchemaError: To know takes too long, or the default of a record contains itself.
    """
    return _Check().valid(kind, value, 0)


class _Check:
    def __init__(self) -> None:
        self._steps = 0

    def valid(self, kind: AvroType, value: object, depth: int) -> bool:
        self._steps += 1
        if self._steps > STEPS_MAX or depth > DEPTH_MAX:
            raise InvalidSchemaError("a default of the schema has too many values, or contains itself")
        inner = depth + 1
        match kind:
            case UnionType():
                return any(self.valid(each, value, inner) for each in kind.branches)
            case ArrayType():
                return isinstance(value, list) and all(self.valid(kind.items, each, inner) for each in value)
            case MapType():
                return isinstance(value, dict) and all(
                    self.valid(kind.values, each, inner) for each in value.values()
                )
            case RecordType():
                return isinstance(value, dict) and all(
                    self.valid(each.type, value.get(each.name, each.default), inner) for each in kind.fields
                )
        return value is not ABSENT and _is_scalar(kind.kind, value)


def _is_scalar(kind: str, value: object) -> bool:
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            bits = 31 if kind == "int" else 63
            return type(value) is int and -(1 << bits) <= value < 1 << bits
        case "float" | "double":
            return type(value) in (int, float)
    return isinstance(value, str)
