"""Checks whether a reader's JSON schema accepts all values that a writer's schema allows."""

from typing import cast

from kalda.schemas.json.comparison import differences
from kalda.schemas.json.differences import COMPATIBLE, LENIENT
from kalda.schemas.json.parsing import JsonSchema
from kalda.schemas.json.steps import Kinds
from kalda.schemas.model import Incompatibility, ParsedSchema


def incompatibilities(reader: ParsedSchema, writer: ParsedSchema) -> list[Incompatibility]:
    """Return why `reader` does not take all that `writer` allowed.

    Raises:
        InvalidSchemaError: A stored schema cannot be looked into, or the comparison takes too many steps.
    """
    return _incompatible(reader, writer, COMPATIBLE)


def lenient_incompatibilities(reader: ParsedSchema, writer: ParsedSchema) -> list[Incompatibility]:
    """Return why `reader` does not take what `writer` names, whatever else it allowed.

    Raises:
        InvalidSchemaError: As `incompatibilities` does.
    """
    return _incompatible(reader, writer, LENIENT)


def _incompatible(reader: ParsedSchema, writer: ParsedSchema, compatible: Kinds) -> list[Incompatibility]:
    found = differences(cast(JsonSchema, writer).root, cast(JsonSchema, reader).root, compatible)
    return [each.incompatibility for each in found if each.kind not in compatible]
