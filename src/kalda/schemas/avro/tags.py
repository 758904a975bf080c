"""Finds and changes the tags inside an Avro schema."""

from collections import deque

from kalda.schemas.avro.text import loads_schema
from kalda.schemas.avro.types import AvroType, RecordType, children
from kalda.schemas.java_json import java_json
from kalda.schemas.tags import (
    Entity,
    EntityType,
    TagChange,
    UnknownEntityError,
    change_properties,
    listed_tags,
)


def tagged_entities(root: AvroType) -> dict[Entity, list[str]]:
    """Return the tags of records and fields, those of the types that it refers to included."""
    found: dict[Entity, list[str]] = {}
    seen: set[int] = set()
    left = [root]
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, RecordType):
            found[Entity(node.full_name, EntityType.RECORD)] = listed_tags(node.properties)
            for field in node.fields:
                path = f"{node.full_name}.{field.name}"
                found[Entity(path, EntityType.FIELD)] = listed_tags(field.properties)
        left += reversed(children(node))
    return {entity: tags for entity, tags in found.items() if tags}


def with_tags(canonical: str, change: TagChange) -> str:
    """Return the text of a schema with other tags.

    Raises:
        UnknownEntityError: The text does not define a record or field of the change.
    """
    root = loads_schema(canonical)
    known = _known(_records(root))
    for entity in change.entities():
        found = known.get((".".join(entity.names), entity.type))
        if found is not None:
            change_properties(found, entity, change)
        elif not change.is_lenient:
            raise UnknownEntityError(entity)
    return java_json(root)


_Record = tuple[str, str, dict[str, object]]
"""Namespace, name and JSON of a record."""


def _records(root: object) -> list[_Record]:
    """Return the records that a canonical text defines; outer ones come first."""
    found: list[_Record] = []
    left: deque[tuple[object, str]] = deque([(root, "")])
    while left:
        node, namespace = left.popleft()
        if isinstance(node, list):
            left.extend((each, namespace) for each in node)
        elif isinstance(node, dict):
            if node.get("type") in ("record", "error"):
                namespace = str(node.get("namespace", namespace))
                found.append((namespace, str(node["name"]), node))
                left.extend((field["type"], namespace) for field in node["fields"])
            else:
                left.extend((node.get(key), namespace) for key in ("type", "items", "values"))
    return found


def _known(records: list[_Record]) -> dict[tuple[str, EntityType], dict[str, object]]:
    """Return records and fields by their paths; one without a namespace stands for a record in any."""
    known: dict[tuple[str, EntityType], dict[str, object]] = {}
    for namespace, name, node in records:
        fields = node["fields"]
        assert isinstance(fields, list), "a record has a list of fields"
        for path in (name, f"{namespace}.{name}"):
            known.setdefault((path.removeprefix("."), EntityType.RECORD), node)
            for field in fields:
                known.setdefault((f"{path}.{field['name']}".removeprefix("."), EntityType.FIELD), field)
    return known
