"""Parses, compares and checks schemas, which may take long; runs in a thread. Pure.

The event loop collects what a job needs from the state, since only it may read the state while records
arrive.
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kalda.common.extras import missing_package
from kalda.http.errors import HttpError
from kalda.http.registry.contents import Content, version_in, with_version
from kalda.http.registry.errors import invalid_schema
from kalda.http.registry.state import State
from kalda.http.registry.subjects import in_context_of
from kalda.schemas.compatibility import CompatibilityLevel, CompatibilityPolicy, check_messages
from kalda.schemas.errors import InvalidSchemaError, SchemaError, UnknownSchemaTypeError
from kalda.schemas.model import ParsedSchema, Reference
from kalda.schemas.parsing import DEPENDENCIES_MAX, parse
from kalda.schemas.tags import Entity, TagChange

PARSED_MAX: Final = 1_000
"""Parsed schemas that are kept, as many as Confluent's registry keeps."""

PARSED_CHARACTERS_MAX: Final = 1 << 20
"""Of their texts: a parsed schema of small messages or records takes 130 times its text."""

RESERVED_PROPERTY: Final = "confluent:reserved"
"""The property of the metadata that lists names of fields, with commas between them."""

Dependencies = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Stored:
    """A version that a schema is compared with."""

    number: int
    content: Content
    dependencies: Dependencies


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One schema to evaluate."""

    content: Content
    dependencies: Dependencies
    is_new: bool
    """Whether it is about to be registered, which some rules hold for alone."""
    is_normalized: bool = False
    find_among: Sequence[Stored] = ()
    """Versions that may hold the same schema, the one to prefer first."""
    check_against: Sequence[Stored] = ()
    """Versions that it has to be compatible with, the oldest first."""
    level: str = "NONE"
    group: str | None = None
    """The property of the metadata by which only versions with the same value are compared."""
    validates_fields: bool = False
    """Whether names that the metadata reserves must not be fields, and stay reserved (``validateFields``)."""
    policy: str | None = None
    """How properties that come and go in a JSON schema are seen; STRICT without it."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of a job."""

    content: Content
    """The schema as it is stored: with its canonical text."""
    same: tuple[int, ...]
    """The numbers of the versions of `find_among` that hold the same schema."""
    messages: list[str]
    """Why it is not compatible; empty if it is."""


class ParsedSchemas:
    """Parses schemas and remembers some of them; used by several threads."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._parsed: Final[OrderedDict[tuple[object, ...], ParsedSchema]] = OrderedDict()
        self._characters = 0

    def parse(self, content: Content, dependencies: Dependencies, *, is_new: bool) -> ParsedSchema:
        """Return the parsed schema.

        Raises:
            HttpError: it is not valid (42201), or a package for its type is missing (501).
        """
        key = (content.digest, content.schema_type, is_new, tuple(dependencies.items()))
        with self._lock:
            found = self._parsed.get(key)
            if found is not None:
                self._parsed.move_to_end(key)
                return found
        try:
            parsed = parse(content.schema, dependencies, is_new=is_new)
        except UnknownSchemaTypeError as error:
            raise invalid_schema(str(error)) from None
        except (InvalidSchemaError, SchemaError) as error:
            raise invalid_schema(f"Invalid schema of type {content.schema_type}, details: {error}") from None
        except RecursionError:
            raise invalid_schema(
                f"Invalid schema of type {content.schema_type}, details: it is nested too deeply"
            ) from None
        except ModuleNotFoundError as error:
            raise HttpError(
                501, str(missing_package(f"a {content.schema_type} schema", "http", error))
            ) from None
        with self._lock:
            if key not in self._parsed:
                self._parsed[key] = parsed
                self._characters += len(content.text)
            while len(self._parsed) > PARSED_MAX or self._characters > PARSED_CHARACTERS_MAX:
                _, dropped = self._parsed.popitem(last=False)
                self._characters -= len(dropped.schema.text)
        return parsed

    def formatted(self, stored: Stored, format_name: str) -> str:
        """Return the text of a version in a format of its type; raises as `parse`."""
        return self.parse(stored.content, stored.dependencies, is_new=False).formatted(format_name)

    def tagged_entities(self, stored: Stored) -> dict[Entity, list[str]]:
        """Return the tags inside a version; raises as `parse`."""
        return self.parse(stored.content, stored.dependencies, is_new=False).tagged_entities()

    def with_tags(self, content: Content, dependencies: Dependencies, change: TagChange) -> Content:
        """Return a content with other tags inside its text; raises as `parse`, and for an unknown entity."""
        parsed = self.parse(content, dependencies, is_new=False)
        try:
            return content.with_text(parsed.with_tags(change))
        except SchemaError as error:
            raise invalid_schema(str(error)) from None

    def evaluate(self, job: Job) -> Evaluation:
        """Evaluate a schema; raises as `parse`."""
        parsed = self.parse(job.content, job.dependencies, is_new=job.is_new)
        text = parsed.normalized() if job.is_normalized else parsed.canonical()
        content = job.content.with_text(text)
        same = [each.number for each in job.find_among if self._is_same(content, each)]
        messages: list[str] = []
        if job.check_against or job.validates_fields:
            messages = self._check(job, parsed)
        return Evaluation(content, tuple(same), messages)

    def _is_same(self, content: Content, stored: Stored) -> bool:
        """Return whether a version holds a schema, whatever its text looks like."""
        other = stored.content
        if (content.schema_type, content.references) != (other.schema_type, other.references):
            return False
        if not _same_but_for_version(content, other, stored.number):
            return False
        if content.text == other.text:
            return True
        try:
            return content.text == self.parse(other, stored.dependencies, is_new=False).canonical()
        except HttpError:
            return False  # an old schema that today's rules refuse is the same only by its text

    def _check(self, job: Job, parsed: ParsedSchema) -> list[str]:
        level = CompatibilityLevel.of(job.level)
        messages = _field_messages(job, parsed) if job.validates_fields else []
        messages += self._comparison(job, parsed, level)
        if messages:
            validates = str(job.validates_fields).lower()
            messages.append(f"{{validateFields: '{validates}', compatibility: '{level}'}}")
        return messages

    def _comparison(self, job: Job, parsed: ParsedSchema, level: CompatibilityLevel) -> list[str]:
        stored = job.check_against
        if job.group is not None:
            wanted = _group(job.content, job.group)
            stored = [each for each in stored if _group(each.content, job.group) == wanted]
        if level is CompatibilityLevel.NONE or not stored:
            return []
        newest_first = (
            (each.number, self.parse(each.content, each.dependencies, is_new=False))
            for each in reversed(stored)
        )
        is_lenient = (job.policy or "").upper() == CompatibilityPolicy.LENIENT
        policy = CompatibilityPolicy.LENIENT if is_lenient else CompatibilityPolicy.STRICT
        try:
            return check_messages(level, parsed, newest_first, policy)
        except SchemaError as error:
            # A comparison has a limit of steps, and an old schema need not be one by today's rules.
            raise invalid_schema(
                f"Invalid schema of type {job.content.schema_type}, details: it cannot be compared with "
                f"the versions before it: {error}"
            ) from None


def _field_messages(job: Job, parsed: ParsedSchema) -> list[str]:
    reserved = _reserved(job.content)
    before = _reserved(job.check_against[-1].content) if job.check_against else set()
    removed = [f"the name {each!r}, reserved by the version before, is not" for each in before - reserved]
    try:
        fields = parsed.field_names()
    except SchemaError:
        fields = frozenset()
    used = [f"the field {each!r} has a name that the metadata reserves" for each in reserved & fields]
    return sorted(removed) + sorted(used)


def _reserved(content: Content) -> set[str]:
    properties = (content.metadata or {}).get("properties") or {}
    names = str(properties.get(RESERVED_PROPERTY, "")).split(",")
    return {name.strip() for name in names if name.strip()}


def resolve(
    state: State, subject: str, content: Content, *, with_deleted: bool = True
) -> tuple[Content, Dependencies]:
    """Return a content whose references name versions, and the texts of all schemas that it uses.

    A reference to version -1 is one to the latest. What does not exist is left out; the parser names it.

    Raises:
        HttpError: it uses too many schemas (42201).
    """
    texts: dict[str, str] = {}
    seen: set[str] = set()

    def add(parent: str, references: Sequence[Reference]) -> list[Reference]:
        resolved = []
        for reference in references:
            target = in_context_of(parent, reference.subject)
            version = state.version(target, reference.version, with_deleted=with_deleted)
            if version is None:
                resolved.append(reference)
                continue
            resolved.append(replace(reference, version=version.number))
            if reference.name in seen:
                continue
            seen.add(reference.name)
            if len(seen) > DEPENDENCIES_MAX:
                raise invalid_schema(f"it uses more than {DEPENDENCIES_MAX} schemas")
            add(target, version.content.references)
            texts[reference.name] = version.content.text
        return resolved

    references = tuple(add(subject, content.references))
    if references != content.references:
        content = replace(content, references=references, given_digest=None)
    return content, texts


def stored_of(state: State, subject: str, *, with_deleted: bool = False) -> list[Stored]:
    """Return the versions of a subject, the oldest first, with what they use."""
    return [
        Stored(each.number, each.content, resolve(state, subject, each.content)[1])
        for each in state.versions(subject)
        if with_deleted or not each.is_deleted
    ]


def _same_but_for_version(content: Content, other: Content, number: int) -> bool:
    """Return whether metadata and rules are equal; ``confluent:version`` may stand in one of them only."""
    if content.rule_set != other.rule_set:
        return False
    if content.metadata == other.metadata:
        return True
    mine, theirs = version_in(content.metadata), version_in(other.metadata)
    if mine is None and theirs is not None:
        return (content.metadata or {}) == with_version(other.metadata, None)
    if mine is not None and theirs is None:
        return mine == str(number) and with_version(content.metadata, None) == (other.metadata or {})
    return False


def _group(content: Content, name: str) -> str | None:
    value: str | None = (content.metadata or {}).get("properties", {}).get(name)
    return value
