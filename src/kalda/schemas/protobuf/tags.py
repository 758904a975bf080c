"""Finds and changes the tags inside a Protobuf schema, in Confluent's options of messages and fields."""

from collections.abc import Iterator, Sequence
from typing import Final

from kalda.schemas.protobuf.elements import FieldElement, MessageElement, Option, ProtoFile
from kalda.schemas.tags import Entity, EntityType, TagChange, UnknownEntityError

_META: Final = {EntityType.RECORD: "confluent.message_meta", EntityType.FIELD: "confluent.field_meta"}
_TAGS: Final = "tags"


def tagged_entities(file: ProtoFile) -> dict[Entity, list[str]]:
    """Return the tags of messages and fields; their paths do not have the package."""
    found: dict[Entity, list[str]] = {}
    for entity, options in _entities(file.types, ""):
        tags = _tags_of(_merged(options, _META[entity.type]))
        if tags:
            found[entity] = tags
    return found


def change_tags(file: ProtoFile, change: TagChange) -> None:
    """Change the tags inside a file in place; the options of what changes get the form ``{ tags: [...] }``.

    Raises:
        UnknownEntityError: The file does not have a message or field of the change.
    """
    known = {(entity.path, entity.type): options for entity, options in _entities(file.types, "")}
    for path, options in _paths_with_oneofs(file.types, ""):
        known.setdefault((path, EntityType.FIELD), options)
    for entity in change.entities():
        found = known.get((".".join(entity.names), entity.type))
        if found is not None:
            _change(found, entity, change)
        elif not change.is_lenient:
            raise UnknownEntityError(entity)


def _entities(types: Sequence[object], scope: str) -> Iterator[tuple[Entity, list[Option]]]:
    for message in types:
        if isinstance(message, MessageElement):
            path = f"{scope}{message.name}"
            yield Entity(path, EntityType.RECORD), message.options
            for field in _fields(message):
                yield Entity(f"{path}.{field.name}", EntityType.FIELD), field.options
            yield from _entities(message.nested, f"{path}.")


def _fields(message: MessageElement) -> list[FieldElement]:
    return [*(field for oneof in message.oneofs for field in oneof.fields), *message.fields]


def _paths_with_oneofs(types: Sequence[object], scope: str) -> Iterator[tuple[str, list[Option]]]:
    """Yield the fields of oneofs by the paths that name the oneof too."""
    for message in types:
        if isinstance(message, MessageElement):
            for oneof in message.oneofs:
                for field in oneof.fields:
                    yield f"{scope}{message.name}.{oneof.name}.{field.name}", field.options
            yield from _paths_with_oneofs(message.nested, f"{scope}{message.name}.")


def _change(options: list[Option], entity: Entity, change: TagChange) -> None:
    name = _META[entity.type]
    places = [index for index, each in enumerate(options) if _is_meta(each, name)]
    meta = _merged(options, name)
    tags = change.applied(entity, _tags_of(meta))
    if tags:
        meta[_TAGS] = list(tags)
    else:
        meta.pop(_TAGS, None)
    place = places[0] if places else len(options)
    for index in reversed(places):
        del options[index]
    if meta:
        options.insert(place, Option(name, meta, is_parenthesized=True))


def _is_meta(option: Option, name: str) -> bool:
    return option.is_parenthesized and option.name.removeprefix(".") == name


def _merged(options: Sequence[Option], name: str) -> dict[str, object]:
    """Return the fields of an option; they may be set one by one: ``(confluent.field_meta).tags = "PII"``."""
    merged: dict[str, object] = {}
    for option in options:
        if not _is_meta(option, name):
            continue
        for key, value in _as_map(option.value).items():
            if key in merged:
                before, more = merged[key], value
                values = [*(before if isinstance(before, list) else [before])]
                values += more if isinstance(more, list) else [more]
                merged[key] = [each for index, each in enumerate(values) if each not in values[:index]]
            else:
                merged[key] = value
    return merged


def _as_map(value: object) -> dict[str, object]:
    if isinstance(value, Option):
        inner = value.value
        return {value.name: _as_map(inner) if isinstance(inner, Option) else inner}
    return dict(value) if isinstance(value, dict) else {}


def _tags_of(meta: dict[str, object]) -> list[str]:
    tags = meta.get(_TAGS)
    return [each for each in (tags if isinstance(tags, list) else [tags]) if isinstance(each, str)]
