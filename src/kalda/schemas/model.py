"""Defines schemas as values: type, text and references of a schema, and the interface of a parsed one."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kalda.schemas.errors import UnknownSchemaTypeError
from kalda.schemas.tags import Entity, TagChange


class SchemaType(StrEnum):
    """The format of a schema. A schema without a type is Avro, as in Confluent's registry."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"

    @classmethod
    def of(cls, name: str | None) -> "SchemaType":
        """Return the type of a name; None and the empty text are Avro.

        Raises:
            UnknownSchemaTypeError: There is none of this name.
        """
        try:
            return cls(name or cls.AVRO)
        except ValueError:
            raise UnknownSchemaTypeError(name) from None


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """Where a schema finds what it uses of another one.

    The name is a full name in Avro, the path of an import in Protobuf, and a ``$ref`` in JSON Schema.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as a user sent it."""

    type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, object] | None = None
    """The JSON of ``metadata``: ``tags``, ``properties``, ``sensitive``."""
    rule_set: Mapping[str, object] | None = None
    """The JSON of ``ruleSet``: ``migrationRules``, ``domainRules``, ``encodingRules``."""


class ParsedSchema(ABC):
    """A schema that is valid.

    Attributes:
        schema: What was parsed.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema: Final = schema

    @property
    def type(self) -> SchemaType:
        """The format."""
        return self.schema.type

    @property
    def references(self) -> tuple[Reference, ...]:
        """The direct references."""
        return self.schema.references

    @property
    @abstractmethod
    def name(self) -> str | None:
        """The full name of the record or the first message; None where there is none."""

    @abstractmethod
    def canonical(self) -> str:
        """Return the text that is stored and compared: Confluent's ``canonicalString``."""

    @abstractmethod
    def normalized(self) -> str:
        """Return the canonical text with what has no meaning, such as the order of properties, made equal."""

    def formatted(self, format_name: str) -> str:
        """Return the text in a format of its type; an unknown format is the canonical text.

        Avro knows ``resolved``, Protobuf ``serialized`` and ``ignore_extensions``.
        """
        return self.canonical()

    @abstractmethod
    def field_names(self) -> frozenset[str]:
        """Return the names of the fields of the record, of the first message, or of the object; not deeper.

        Raises:
            InvalidSchemaError: A stored schema is not valid by the rules of new ones.
        """

    @abstractmethod
    def tagged_entities(self) -> dict[Entity, list[str]]:
        """Return the tags inside the schema."""

    @abstractmethod
    def with_tags(self, change: TagChange) -> str:
        """Return a text of the schema with other tags inside, which need not be the canonical one.

        Raises:
            UnknownEntityError: The schema does not have a record or field of the change.
        """

    def fingerprint(self) -> bytes:
        """Return 16 bytes that two schemas share only if text, references, metadata and rules agree."""
        return fingerprint(self.schema, self.canonical())


def fingerprint(schema: Schema, text: str) -> bytes:
    """Return the fingerprint of a schema whose stored text is `text`, such as its normalised one."""
    parts = (
        schema.type,
        text,
        [[each.name, each.subject, each.version] for each in schema.references],
        schema.metadata,
        schema.rule_set,
    )
    encoded = json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.blake2b(encoded, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One reason why a reader's schema cannot read what a writer's schema wrote."""

    type: str
    """The name of the rule, such as ``READER_FIELD_MISSING_DEFAULT_VALUE``."""
    path: str
    """Where: a pointer such as ``/fields/0/type`` in Avro, or ``#/Message/3`` elsewhere."""
    description: str
    """A sentence; ``%s`` stands for the reader first, for the writer then, until `check` names them."""
    message: str | None = None
    """More of it, such as the missing symbols; only Avro's rules have it."""

    @property
    def text(self) -> str:
        """The line of Confluent's registry for it, whose quotes differ between formats."""
        if not self.type:
            return self.description
        if self.message is None:
            return f'{{errorType:"{self.type}", description:"{self.description}"}}'
        return (
            f"{{errorType:'{self.type}', description:'{self.description}', additionalInfo:'{self.message}'}}"
        )
