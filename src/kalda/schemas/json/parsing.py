"""Parses JSON Schema."""

from collections.abc import Mapping
from functools import cached_property
from typing import Final

from kalda.common.extras import missing_package
from kalda.common.overriding import override
from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.json.dialects import check_by_meta_schema
from kalda.schemas.json.documents import Documents
from kalda.schemas.json.loading import Loader
from kalda.schemas.json.nodes import Node
from kalda.schemas.json.tags import change_tags, tagged_entities
from kalda.schemas.json.text import canonical, normalized, read
from kalda.schemas.model import ParsedSchema, Schema
from kalda.schemas.tags import Entity, TagChange


class JsonSchema(ParsedSchema):
    """A JSON schema.

    A stored schema that Kalda would not take today still has its text; only what looks into it fails.
    """

    def __init__(self, schema: Schema, value: object, dependencies: Mapping[str, str]) -> None:
        super().__init__(schema)
        self._value: Final = value
        self._dependencies: Final = dependencies

    @property
    @override
    def name(self) -> str | None:
        title = self._value.get("title") if isinstance(self._value, dict) else None
        return title if isinstance(title, str) else None

    @override
    def field_names(self) -> frozenset[str]:
        properties = self._value.get("properties") if isinstance(self._value, dict) else None
        return frozenset(properties) if isinstance(properties, dict) else frozenset()

    @property
    def documents(self) -> Documents:
        """The schema and those that it refers to.

        Raises:
            InvalidSchemaError: One of them is not JSON, or has a malformed address.
        """
        values = {}
        for name, text in self._dependencies.items():
            try:
                values[name] = read(text)
            except InvalidSchemaError as error:
                raise InvalidSchemaError(f"the reference {name:.200}: {error.reason}") from error
        return Documents(self._value, values)

    @cached_property
    def root(self) -> Node:
        """What the schema constrains.

        Raises:
            InvalidSchemaError: A keyword has a value that is not possible, or a reference refers to nothing.
        """
        return Loader(self.documents).load()

    @cached_property
    def _canonical(self) -> str:
        return canonical(self._value)

    @override
    def canonical(self) -> str:
        return self._canonical

    @override
    def normalized(self) -> str:
        return normalized(self._value)

    @override
    def tagged_entities(self) -> dict[Entity, list[str]]:
        return tagged_entities(self._value)

    @override
    def with_tags(self, change: TagChange) -> str:
        value = read(self.canonical())
        change_tags(value, change)
        return canonical(value)


def parse(schema: Schema, dependencies: Mapping[str, str], *, is_new: bool) -> JsonSchema:
    """Return a parsed schema.

    Args:
        schema: The schema.
        dependencies: The text of each schema that it refers to, by the name of the reference.
        is_new: Whether it is checked by the meta schema of its draft, and all its references are resolved.

    Raises:
        InvalidSchemaError: It is none.
        ModuleNotFoundError: The extra ``http`` is not installed.
    """
    value = read(schema.text)
    parsed = JsonSchema(schema, value, dependencies)
    if is_new:
        documents = parsed.documents
        try:
            check_by_meta_schema(value, documents.root.dialect)
        except ModuleNotFoundError as error:
            raise missing_package("the check of a JSON schema", "http", error) from error
        _ = parsed.root
    return parsed
