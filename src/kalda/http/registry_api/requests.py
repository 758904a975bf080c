"""Reads the path, the parameters and the body of a request to the registry.

Paths are split before they are decoded, since the name of a subject may have a slash. A path under
``/contexts/CONTEXT`` is that of the same resource in a context, and an alias stands for its subject.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from starlette.types import Receive, Scope

from kalda.common.received_json import loads_body
from kalda.http.errors import HttpError
from kalda.http.registry.contents import (
    Content,
    Json,
    is_int32,
    read_metadata,
    read_references,
    read_rule_set,
)
from kalda.http.registry.errors import invalid_rule_set, invalid_schema, invalid_version
from kalda.http.registry.scope import alias_of
from kalda.http.registry.state import State
from kalda.http.registry.subjects import WILDCARD, Subject, context_prefix
from kalda.schemas.errors import SchemaError
from kalda.schemas.tags import Entity, EntityType, TagChange, Tags

VERSION_MAX: Final = 2**31 - 1

Parameters = Mapping[str, Sequence[str]]


@dataclass(slots=True)
class Target:
    """What a request is for: the segments of its path, decoded, and its parameters."""

    segments: tuple[str, ...]
    parameters: dict[str, list[str]] = field(default_factory=dict)

    def flag(self, name: str) -> bool:
        """Return whether a parameter is ``true``."""
        return self.text(name).lower() == "true"

    def text(self, name: str, default: str = "") -> str:
        """Return a parameter."""
        return self.parameters.get(name, (default,))[0]

    def number(self, name: str, default: int) -> int:
        """Return a parameter that is a number.

        Raises:
            HttpError: it is none (404, as with Confluent's registry).
        """
        text = self.text(name)
        if not text:
            return default
        try:
            return int(text)
        except ValueError:
            raise HttpError(404, f"the parameter {name}={text:.100} is no number") from None

    def page(self, found: Sequence[Any], default_limit: int, limit_max: int) -> list[Any]:
        """Return the part of a list that ``offset`` and ``limit`` ask for."""
        offset = max(0, self.number("offset", 0))
        limit = self.number("limit", -1)
        return list(found[offset : offset + (limit if 0 < limit <= limit_max else default_limit)])


def target_of(scope: Scope, state: State) -> Target:
    """Read the path and the parameters of a request.

    Raises:
        HttpError: a context has a name that none can have (400).
    """
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    segments = [unquote(each) for each in raw.partition(b"?")[0].decode("latin-1").split("/") if each]
    query = scope["query_string"]
    parameters = parse_qs(query.decode("latin-1"), keep_blank_values=True) if query else {}
    if segments and segments[0] == "contexts" and len(segments) > 2:
        segments = _in_context(segments, parameters)
    _resolve_aliases(segments, parameters, state)
    return Target(tuple(segments), parameters)


def _in_context(segments: list[str], parameters: dict[str, list[str]]) -> list[str]:
    """Return the path without its context, with the context in front of the subject it names."""
    try:
        prefix = context_prefix(segments[1])
    except ValueError as error:
        raise HttpError(400, str(error)) from None

    def qualified(text: str) -> str:
        return text if text.startswith((":.", WILDCARD)) else f"{prefix}{text}"

    left = segments[2:]
    if left[0] in ("config", "mode"):
        return [left[0], qualified(left[1] if len(left) > 1 else ""), *left[2:]]
    for index in range(len(left) - 1):
        if left[index] == "subjects":
            left[index + 1] = qualified(left[index + 1])
            break
    if left[:2] == ["schemas", "ids"]:
        parameters["subject"] = [qualified(parameters.get("subject", [""])[0])]
    elif left in (["schemas"], ["subjects"]):
        parameters["subjectPrefix"] = [qualified(each) for each in parameters.get("subjectPrefix", [""])]
    return left


def _resolve_aliases(segments: list[str], parameters: dict[str, list[str]], state: State) -> None:
    for index in range(len(segments) - 1):
        if segments[index] == "subjects":
            segments[index + 1] = alias_of(state, segments[index + 1])
            break
    if segments[:2] == ["schemas", "ids"] and parameters.get("subject", [""])[0]:
        parameters["subject"] = [alias_of(state, parameters["subject"][0])]


def version_number(text: str) -> int:
    """Return the number of a version in a path; -1 for ``latest``.

    Raises:
        HttpError: it is none (42202).
    """
    word = text.strip().lower()
    if word == "latest":
        return -1
    try:
        number = int(word)
    except ValueError:
        raise invalid_version(text) from None
    if number != -1 and not 1 <= number <= VERSION_MAX:
        raise invalid_version(text)
    return number


def id_number(text: str) -> int:
    """Return the id of a schema in a path.

    Raises:
        HttpError: it is none (404).
    """
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 20):
        raise HttpError(404, "HTTP 404 Not Found")
    return int(text)


async def read_body(receive: Receive) -> bytes:
    """Return the whole body, whose size the application bounds."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HttpError(400, "the request ended before its body did")
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def json_object(body: bytes) -> Json:
    """Read a body that is a JSON object.

    Raises:
        HttpError: it is none (400), or empty (422).
    """
    if not body.strip():
        raise HttpError(422, "the request has no body; it takes a JSON object")
    try:
        value = loads_body(body)
    except ValueError as error:
        raise HttpError(400, f"the body is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise HttpError(400, "the body is no JSON object")
    return value


def read_content(fields: Json) -> Content:
    """Read the schema of a request to register, look up or check one.

    Raises:
        HttpError: it is malformed (42201), or its rules are (42210).
    """
    text, schema_type = fields.get("schema"), fields.get("schemaType")
    if text is not None and not isinstance(text, str):
        raise invalid_schema(f"the schema is a {type(text).__name__}; it takes the text of a schema")
    if schema_type is not None and not isinstance(schema_type, str):
        raise invalid_schema(f"Invalid schema type {schema_type!r:.100}")
    try:
        return Content(
            schema_type or "AVRO",
            text or "",
            read_references(fields.get("references")),
            read_metadata(fields.get("metadata")),
            checked_rule_set(fields.get("ruleSet")),
        )
    except SchemaError as error:
        raise invalid_schema(str(error)) from None


def read_tag_change(fields: Json, added: str, removed: str) -> TagChange | None:
    """Read the tags to add and to remove inside a schema; None where there are none.

    Raises:
        HttpError: they are malformed (42201).
    """
    change = TagChange(_read_tags(fields, added), _read_tags(fields, removed))
    return change if change.entities() else None


def _read_tags(fields: Json, name: str) -> Tags:
    found: dict[Entity, list[str]] = {}
    given = fields.get(name) or ()
    for each in given if isinstance(given, (list, tuple)) else (given,):
        value = each if isinstance(each, dict) else {}
        named, tags = value.get("schemaEntity"), value.get("tags")
        entity = named if isinstance(named, dict) else {}
        path, kind = entity.get("entityPath"), entity.get("entityType")
        is_list = isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)
        # A set would hash what may be a list.
        if not isinstance(path, str) or not path or kind not in tuple(EntityType) or not is_list:
            raise invalid_schema(
                f"{name} has {each!r:.200}; it takes a schemaEntity with an entityPath and the entityType "
                f"{' or '.join(EntityType)}, and a list of tags"
            )
        assert isinstance(tags, list), "it was checked"
        found.setdefault(Entity(path.removeprefix("."), EntityType(kind)), []).extend(tags)
    return found


def checked_rule_set(value: object) -> Json | None:
    """Read a rule set of a request.

    Raises:
        HttpError: it is malformed (42210).
    """
    try:
        return read_rule_set(value)
    except SchemaError as error:
        raise invalid_rule_set(str(error)) from None


def whole_number(fields: Json, name: str, default: int) -> int:
    """Return a number of a request; the default for null.

    Raises:
        HttpError: it is no number (400).
    """
    value = fields.get(name)
    if value is None:
        return default
    if not is_int32(value):
        raise HttpError(400, f"the field {name} is {value!r:.100}; it takes a whole number of 32 bits")
    return value


def prefix_of(text: str) -> tuple[str, str]:
    """Return what a prefix of subjects means: a context, or ``*`` for all, and how the names begin."""
    if text.startswith(WILDCARD):
        return "*", text.removeprefix(WILDCARD)
    subject = Subject.parse(text)
    return subject.context, subject.name
