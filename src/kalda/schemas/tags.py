"""Defines the tags inside a schema: which entities may have some, and how a change of them is computed.

The formats have their own places for tags: the property ``confluent:tags`` in Avro and JSON Schema, and the
options ``confluent.message_meta`` and ``confluent.field_meta`` in Protobuf. Tags in the metadata are others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kalda.schemas.errors import SchemaError

TAGS: Final = "confluent:tags"
"""The property of Avro and JSON schemas that lists tags."""


class EntityType(StrEnum):
    """What a tag belongs to."""

    RECORD = "sr_record"
    FIELD = "sr_field"


@dataclass(frozen=True, slots=True)
class Entity:
    """A record or field of a schema.

    The path is a full name in Avro (``ns.Order.id``), the names of messages without the package in Protobuf
    (``Order.id``), and the keywords on the way in JSON Schema (``object.items.array.object.id``).
    """

    path: str
    type: EntityType

    @property
    def names(self) -> list[str]:
        """The parts of the path; a dot in front of it does not count."""
        return self.path.removeprefix(".").split(".")


Tags = Mapping[Entity, Sequence[str]]


@dataclass(frozen=True, slots=True)
class TagChange:
    """Tags to add and to remove; a tag that is in both is removed."""

    added: Tags
    removed: Tags
    is_lenient: bool = False
    """Whether entities that the schema does not have are ignored; otherwise they are errors."""

    def entities(self) -> list[Entity]:
        """Return the entities that change, each once."""
        return list(dict.fromkeys((*self.added, *self.removed)))

    def applied(self, entity: Entity, tags: Iterable[str]) -> list[str]:
        """Return the tags that an entity has after the change, each once."""
        removed = set(self.removed.get(entity, ()))
        return [each for each in dict.fromkeys((*tags, *self.added.get(entity, ()))) if each not in removed]


class UnknownEntityError(SchemaError):
    """A schema does not have the record or field that tags are meant for."""

    def __init__(self, entity: Entity) -> None:
        super().__init__(f"No matching path '{entity.path:.200}' found in the schema")


def listed_tags(properties: Mapping[str, object]) -> list[str]:
    """Return the tags that the properties of an Avro or JSON schema list, each once."""
    tags = properties.get(TAGS)
    return list(dict.fromkeys(str(each) for each in tags)) if isinstance(tags, list) else []


def change_properties(properties: dict[str, object], entity: Entity, change: TagChange) -> None:
    """Change the tags that the properties of an entity list."""
    tags: list[object] = list(change.applied(entity, listed_tags(properties)))
    if tags:
        properties[TAGS] = tags
    else:
        properties.pop(TAGS, None)
