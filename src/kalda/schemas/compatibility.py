"""Checks whether a schema may follow earlier ones, by compatibility level."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from importlib import import_module
from typing import Final, Protocol, cast

from kalda.schemas.errors import UnknownCompatibilityLevelError
from kalda.schemas.model import Incompatibility, ParsedSchema, SchemaType

INCOMPATIBILITIES_MAX: Final = 100
"""How many reasons one comparison gives: a type that many others use would be named for each of them."""
_OLD_SCHEMA_CHARACTERS_MAX: Final = 10 * 1024
"""How much of the older schema stands in the messages, as in Confluent's registry."""


class CompatibilityLevel(StrEnum):
    """Which schemas a new version of a subject must be able to read, or be read by."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @classmethod
    def of(cls, name: str) -> "CompatibilityLevel":
        """Return the level of a name in any case.

        Raises:
            UnknownCompatibilityLevelError: There is none of this name.
        """
        try:
            return cls(name.upper())
        except ValueError:
            raise UnknownCompatibilityLevelError(name, ", ".join(cls)) from None

    @property
    def is_transitive(self) -> bool:
        """Whether all older versions count, and not only the latest."""
        return self.endswith("_TRANSITIVE")

    @property
    def is_backward(self) -> bool:
        """Whether the new schema must read what older ones wrote."""
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def is_forward(self) -> bool:
        """Whether older schemas must read what the new one writes."""
        return self.startswith(("FORWARD", "FULL"))


class CompatibilityPolicy(StrEnum):
    """What is assumed of the values beyond what the writer's schema says."""

    STRICT = "STRICT"
    """Nothing: a property that a JSON schema does not name may be there."""
    LENIENT = "LENIENT"
    """Writers send only the properties that their JSON schema names. No other format has such a choice."""


class _Compatibility(Protocol):
    """The module ``compatibility`` of each format's package."""

    def incompatibilities(self, reader: ParsedSchema, writer: ParsedSchema) -> list[Incompatibility]: ...


_PACKAGES: Final = {SchemaType.AVRO: "avro", SchemaType.JSON: "json", SchemaType.PROTOBUF: "protobuf"}
_OTHER_TYPE: Final = Incompatibility("", "", "Incompatible because of different schema type")


def check(
    level: CompatibilityLevel,
    new: ParsedSchema,
    older: Sequence[ParsedSchema],
    policy: CompatibilityPolicy = CompatibilityPolicy.STRICT,
) -> list[Incompatibility]:
    """Return why a schema may not follow others; empty if it may.

    Args:
        level: The rule of the subject.
        new: The schema that is to be registered.
        older: The versions before it, the oldest first. A level that is not transitive looks at the last one.
        policy: How properties that come and go in a JSON schema are seen.
    """
    newest_first = ((0, schema) for schema in reversed(older))
    refusal = _first_refusal(level, new, newest_first, policy)
    return [] if refusal is None else refusal[2]


def check_messages(
    level: CompatibilityLevel,
    new: ParsedSchema,
    newest_first: Iterable[tuple[int, ParsedSchema]],
    policy: CompatibilityPolicy = CompatibilityPolicy.STRICT,
) -> list[str]:
    """Return the messages of Confluent's registry for what `check` found; empty if nothing was.

    Args:
        level: The rule of the subject.
        new: The schema that is to be registered.
        newest_first: The versions before it with their numbers, the newest first. An iterator may parse each
            of them when it is asked for: no two are needed at a time.
        policy: How properties that come and go in a JSON schema are seen.
    """
    refusal = _first_refusal(level, new, newest_first, policy)
    if refusal is None:
        return []
    version, schema, found = refusal
    lines = [each.text for each in found]
    if schema.type == new.type:
        text = schema.canonical()
        lines.append(f"{{oldSchemaVersion: {version}}}")
        if len(text) <= _OLD_SCHEMA_CHARACTERS_MAX:
            lines.append(f"{{oldSchema: '{text}'}}")
        else:
            lines.append(f"{{oldSchema: <truncated> '{text[:_OLD_SCHEMA_CHARACTERS_MAX]}...'}}")
    return lines


def _first_refusal(
    level: CompatibilityLevel,
    new: ParsedSchema,
    newest_first: Iterable[tuple[int, ParsedSchema]],
    policy: CompatibilityPolicy,
) -> tuple[int, ParsedSchema, list[Incompatibility]] | None:
    """Return the newest schema that refuses `new`, with its number and its reasons; None if none does."""
    if level is CompatibilityLevel.NONE:
        return None
    for number, schema in newest_first:
        found = _compare(level, new, schema, policy)
        if found:
            return number, schema, found
        if not level.is_transitive:
            break
    return None


def _compare(
    level: CompatibilityLevel, new: ParsedSchema, old: ParsedSchema, policy: CompatibilityPolicy
) -> list[Incompatibility]:
    if new.type != old.type:
        return [_OTHER_TYPE]
    found = []
    if level.is_forward:
        found += _named(incompatibilities(old, new, policy), "old", "new")
    if level.is_backward:
        found += _named(incompatibilities(new, old, policy), "new", "old")
    return found


def incompatibilities(
    reader: ParsedSchema, writer: ParsedSchema, policy: CompatibilityPolicy = CompatibilityPolicy.STRICT
) -> list[Incompatibility]:
    """Return why `reader` cannot read what `writer` wrote; both are of one type. At most 100 reasons."""
    if reader.type is SchemaType.JSON and policy is CompatibilityPolicy.LENIENT:
        from kalda.schemas.json.compatibility import lenient_incompatibilities

        return lenient_incompatibilities(reader, writer)[:INCOMPATIBILITIES_MAX]
    module = cast(_Compatibility, import_module(f"kalda.schemas.{_PACKAGES[reader.type]}.compatibility"))
    return module.incompatibilities(reader, writer)[:INCOMPATIBILITIES_MAX]


def _named(found: Sequence[Incompatibility], reader: str, writer: str) -> list[Incompatibility]:
    return [
        replace(each, description=each.description.replace("%s", reader, 1).replace("%s", writer, 1))
        for each in found
    ]
