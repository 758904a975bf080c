"""Parses a schema of any type."""

from collections.abc import Mapping
from importlib import import_module
from typing import Final, Protocol, cast

from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.model import ParsedSchema, Schema, SchemaType

TEXT_CHARACTERS_MAX: Final = 2 << 20
"""Of a schema and of each one that it refers to. A registry keeps a schema in one record of about 1 MiB."""
DEPENDENCIES_MAX: Final = 1_000


class _Parsing(Protocol):
    """The module ``parsing`` of each format's package, which imports what it needs when it is first used."""

    def parse(self, schema: Schema, dependencies: Mapping[str, str], *, is_new: bool) -> ParsedSchema: ...


_PACKAGES: Final = {SchemaType.AVRO: "avro", SchemaType.JSON: "json", SchemaType.PROTOBUF: "protobuf"}


def parse(
    schema: Schema, dependencies: Mapping[str, str] | None = None, *, is_new: bool = True
) -> ParsedSchema:
    """Return a parsed schema.

    Args:
        schema: The schema.
        dependencies: The text of each schema that it refers to, directly or not, by the name of the
            reference, each after those that it uses itself.
        is_new: Whether it is about to be registered. A stored schema, or one that is looked up, is not
            held to all rules for names and defaults: an older registry may have let it in.

    Raises:
        InvalidSchemaError: It is none, or a reference is missing.
        ModuleNotFoundError: The extra ``http`` is not installed, which this format needs.
    """
    found = dependencies or {}
    if len(found) > DEPENDENCIES_MAX:
        raise InvalidSchemaError(f"it refers to {len(found)} schemas; at most {DEPENDENCIES_MAX} are allowed")
    for name, text in (("the schema", schema.text), *found.items()):
        if len(text) > TEXT_CHARACTERS_MAX:
            raise InvalidSchemaError(
                f"{name:.200} has {len(text)} characters; at most {TEXT_CHARACTERS_MAX} are allowed"
            )
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidSchemaError(f"{name:.200} has half of a surrogate pair, such as \\ud800") from None
    for reference in schema.references:
        if reference.name not in found:
            raise InvalidSchemaError(
                f'No schema reference found for subject "{reference.subject:.200}" and version '
                f"{reference.version}"
            )
    module = cast(_Parsing, import_module(f"kalda.schemas.{_PACKAGES[schema.type]}.parsing"))
    return module.parse(schema, found, is_new=is_new)
