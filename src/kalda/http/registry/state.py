"""Keeps the state of a registry, computed from the records of its topic in the order of their offsets.

Nothing else changes it. A writer, too, sees its change only when it has read its own record back, so loading
and running are one code path, and every process that read the same records has the same state.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from kalda.http.registry.contents import Content, Json
from kalda.http.registry.records import (
    ASSOCIATION,
    NOOP,
    Change,
    Key,
    KeyType,
    RecordError,
    SchemaValue,
    encode_json,
    read_fields,
    read_key,
    read_schema_value,
)
from kalda.http.registry.subjects import DEFAULT_CONTEXT, Subject, in_context_of

logger: Final = logging.getLogger(__name__)

MAX_IDS: Final = "maxIds"
"""The field of a NOOP's value with the highest id of each context. Confluent's registry writes that record
without a value and reads none."""


class Mode(StrEnum):
    """The mode of a registry, context or subject, which restricts changes."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"
    IMPORT = "IMPORT"
    FORWARD = "FORWARD"

    @property
    def is_import(self) -> bool:
        """Whether schemas come with their ids and are not checked against each other."""
        return self in (Mode.IMPORT, Mode.FORWARD)

    @property
    def is_read_only(self) -> bool:
        """Whether nothing may be registered or deleted."""
        return self in (Mode.READONLY, Mode.READONLY_OVERRIDE)


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a subject, with where its record is."""

    value: SchemaValue
    timestamp_ms: int

    @property
    def subject(self) -> str:
        """The subject."""
        return self.value.subject

    @property
    def number(self) -> int:
        """The number of the version, from 1 on."""
        return self.value.version

    @property
    def id(self) -> int:
        """The id of the schema."""
        return self.value.id

    @property
    def content(self) -> Content:
        """The schema."""
        return self.value.content

    @property
    def is_deleted(self) -> bool:
        """Whether it is soft-deleted."""
        return self.value.is_deleted


@dataclass(slots=True)
class IdEntry:
    """A schema by its id; `versions` has its versions' numbers by subject, in the order of their records."""

    content: Content
    versions: dict[str, list[int]] = field(default_factory=dict)


@dataclass(slots=True)
class Context:
    """The ids of one context."""

    by_id: dict[int, IdEntry] = field(default_factory=dict)
    by_digest: dict[bytes, int] = field(default_factory=dict)
    max_id: int = 0
    """Ids up to this one were used, those of schemas that are gone included. It only grows."""


class State:
    """Subjects with versions, ids by context, configurations and modes."""

    def __init__(self) -> None:
        self.subjects: Final[dict[str, dict[int, Version]]] = {}
        self.contexts: Final[dict[str, Context]] = {}
        """By name, in the order of their first record; the default context is always there."""
        self.named_contexts: Final[dict[str, None]] = {}
        """Those with a record of their own, which a list of contexts shows."""
        self.configs: Final[dict[str | None, Json]] = {}
        self.modes: Final[dict[str | None, Mode]] = {}
        self.referrers: Final[dict[tuple[str, int], dict[tuple[str, int], None]]] = {}
        """By referenced version: context and id of the schemas that refer to it."""
        self.associations: Final[dict[bytes, Json]] = {}
        """Associations of topics with subjects by their keys; another registry wrote them."""
        self.other_keys: Final[dict[Key, list[bytes]]] = {}
        """Forms of keys other than ours that are in the topic."""
        self.refused: Final[dict[Key, None]] = {}
        """Versions whose record was refused since its id has another schema, until the key is written again;
        the writer removes them from the topic."""
        self.epoch = 0
        """Grows with every record, for caches of responses."""

    # Records.

    def apply(self, key_bytes: bytes | None, value: bytes | None, timestamp_ms: int = 0) -> None:
        """Take a record of the topic; one that cannot be read is logged and has no effect."""
        self.epoch += 1
        try:
            key = read_key(key_bytes)
            if key is None:
                self._apply_association(key_bytes, value)
                return
            assert key_bytes is not None, "a key was read"
            self._note_form(key, key_bytes, is_tombstone=value is None)
            if key.type is KeyType.SCHEMA:
                self._apply_schema(key, value, timestamp_ms)
            else:
                self._apply_other(key, value)
        except RecordError as error:
            logger.warning("a record of the schema topic cannot be read and has no effect: %s", error)

    def max_ids_change(self) -> Change:
        """Return the record that keeps the highest ids, for schemas whose own records will be removed."""
        ids = {name: context.max_id for name, context in self.contexts.items() if context.max_id}
        return Change(NOOP, encode_json({MAX_IDS: ids}) if ids else None)

    # Look-ups.

    def context(self, name: str) -> Context:
        """Return a context; an empty one if it has no schemas."""
        return self.contexts.get(name) or Context()

    def version(self, subject: str, number: int, *, with_deleted: bool = False) -> Version | None:
        """Return a version; -1 is the latest that is not deleted."""
        if number == -1:
            return self.latest(subject)
        found = self.subjects.get(subject, {}).get(number)
        return None if found is None or (found.is_deleted and not with_deleted) else found

    def latest(self, subject: str) -> Version | None:
        """Return the latest version that is not deleted."""
        alive = [each for each in self.subjects.get(subject, {}).values() if not each.is_deleted]
        return max(alive, key=lambda each: each.number) if alive else None

    def versions(self, subject: str) -> list[Version]:
        """Return all versions of a subject, the oldest first."""
        versions = self.subjects.get(subject, {})
        return [versions[number] for number in sorted(versions)]

    def has_subject(self, scope: str | None, *, with_deleted: bool = False) -> bool:
        """Return whether a subject has versions, or a context, or for None any context, has subjects."""
        is_subject = scope is not None and Subject.parse(scope).name
        candidates: Iterable[str] = (scope or "",) if is_subject else self.subjects_in(scope)
        return any(
            with_deleted or not version.is_deleted
            for each in candidates
            for version in self.subjects.get(each, {}).values()
        )

    def subjects_in(self, scope: str | None) -> list[str]:
        """Return the subjects of a scope, sorted: one subject, a context, or for None all.

        Those whose versions are all deleted are among them.
        """
        if scope is None:
            return sorted(self.subjects)
        named = Subject.parse(scope)
        return sorted(each for each in self.subjects if named.covers(each))

    def by_id(self, schema_id: int, context: str, subject: str = "") -> Version | None:
        """Return a version with an id, of a subject if one is given; deleted ones count.

        With a subject of the default context, other contexts are searched as well, and an id without that
        subject is found all the same, since clients may not know a subject's name in time.
        """
        if not subject:
            return self._version_of_id(context, schema_id)
        full = str(Subject(context, subject))
        found = self._version_of_id(context, schema_id, full)
        if found is not None or context != DEFAULT_CONTEXT:
            return found
        for other in self.named_contexts:
            found = self._version_of_id(other, schema_id, str(Subject(other, subject)))
            if found is not None:
                return found
        return self._version_of_id(context, schema_id)

    def versions_of_id(self, context: str, schema_id: int) -> Iterator[Version]:
        """Yield each subject's version with an id; of several, the latest."""
        entry = self.context(context).by_id.get(schema_id)
        for subject, numbers in ({} if entry is None else entry.versions).items():
            yield self.subjects[subject][numbers[-1]]

    def version_of_content(self, subject: str, content: Content) -> Version | None:
        """Return the version of a subject with exactly this content, deleted or not."""
        context = self.context(Subject.parse(subject).context)
        schema_id = context.by_digest.get(content.digest)
        entry = None if schema_id is None else context.by_id.get(schema_id)
        if entry is None or subject not in entry.versions:
            return None
        return self.subjects[subject][entry.versions[subject][-1]]

    def id_of_content(self, context: str, content: Content) -> int | None:
        """Return the id that a context has for a content."""
        found = self.context(context)
        schema_id = found.by_digest.get(content.digest)
        return schema_id if schema_id in found.by_id else None

    def references_to(self, subject: str, number: int, *, with_deleted: bool) -> list[tuple[str, int]]:
        """Return context and id of each schema that refers to a version, sorted."""
        return sorted(
            (context, schema_id)
            for context, schema_id in self.referrers.get((subject, number), ())
            if with_deleted or any(not each.is_deleted for each in self.versions_of_id(context, schema_id))
        )

    # Applying.

    def _version_of_id(self, context: str, schema_id: int, subject: str | None = None) -> Version | None:
        found = self.contexts.get(context)
        entry = None if found is None else found.by_id.get(schema_id)
        if entry is None:
            return None
        if subject is None:
            subject = next(iter(entry.versions), None)
        numbers = entry.versions.get(subject) if subject is not None else None
        return None if subject is None or not numbers else self.subjects[subject][numbers[-1]]

    def _note_form(self, key: Key, given: bytes, *, is_tombstone: bool) -> None:
        if given == key.encode():
            return
        forms = self.other_keys.setdefault(key, [])
        if given in forms:
            forms.remove(given)
        if not is_tombstone:
            forms.append(given)
        if not forms:
            del self.other_keys[key]

    def _apply_schema(self, key: Key, data: bytes | None, timestamp_ms: int) -> None:
        assert key.subject is not None, "keys of versions have a subject"
        assert key.version is not None, "keys of versions have a version"
        self.refused.pop(key, None)
        if data is None:
            self._remove(key.subject, key.version)
            return
        value = read_schema_value(data)
        if (value.subject, value.version) != (key.subject, key.version):
            value = replace(value, subject=key.subject, version=key.version)
        context_name = Subject.parse(value.subject).context
        context = self.contexts.setdefault(context_name, Context())
        entry = context.by_id.get(value.id)
        if entry is not None and entry.content.text != value.content.text:
            # Two writers gave one id. The first record wins everywhere.
            logger.error(
                "the record of version %d of subject %s is refused: its id %d has another schema",
                value.version,
                value.subject,
                value.id,
            )
            self.refused[key] = None
            return
        context.max_id = max(context.max_id, value.id)
        before = self.subjects.get(value.subject, {}).get(value.version)
        if before is not None and before.id != value.id:
            self._remove(value.subject, value.version)
        self.subjects.setdefault(value.subject, {})[value.version] = Version(value, timestamp_ms)
        entry = context.by_id.setdefault(value.id, IdEntry(value.content))
        numbers = entry.versions.setdefault(value.subject, [])
        if value.version in numbers:
            numbers.remove(value.version)
        numbers.append(value.version)
        context.by_digest[value.content.digest] = value.id
        for reference in value.content.references:
            target = in_context_of(value.subject, reference.subject), reference.version
            self.referrers.setdefault(target, {})[context_name, value.id] = None

    def _remove(self, subject: str, number: int) -> None:
        versions = self.subjects.get(subject, {})
        removed = versions.pop(number, None)
        if removed is None:
            return
        if not versions:
            del self.subjects[subject]
        context_name = Subject.parse(subject).context
        context = self.contexts[context_name]
        entry = context.by_id[removed.id]
        entry.versions[subject].remove(number)
        if not entry.versions[subject]:
            del entry.versions[subject]
        if entry.versions:
            return
        del context.by_id[removed.id]
        for digest in {entry.content.digest, removed.content.digest}:
            if context.by_digest.get(digest) == removed.id:
                del context.by_digest[digest]
        for reference in removed.content.references:
            target = in_context_of(subject, reference.subject), reference.version
            referrers = self.referrers.get(target, {})
            referrers.pop((context_name, removed.id), None)
            if not referrers:
                self.referrers.pop(target, None)

    def _apply_other(self, key: Key, data: bytes | None) -> None:
        if key.type is KeyType.CONTEXT:
            assert key.subject is not None, "keys of contexts have a name"
            if data is None:
                self.named_contexts.pop(key.subject, None)
            else:
                self.named_contexts[key.subject] = None
        elif key.type is KeyType.CONFIG:
            if data is None:
                self.configs.pop(key.subject, None)
            else:
                config = read_fields(data)
                config.pop("subject", None)
                self.configs[key.subject] = config
        elif key.type is KeyType.MODE:
            self._apply_mode(key, data)
        elif data is not None:
            self._apply_command(key, read_fields(data))

    def _apply_association(self, key_bytes: bytes | None, value: bytes | None) -> None:
        if key_bytes is None or read_fields(key_bytes).get("keytype") != ASSOCIATION:
            return
        if value is None:
            self.associations.pop(key_bytes, None)
        else:
            self.associations[key_bytes] = read_fields(value)

    def _apply_mode(self, key: Key, data: bytes | None) -> None:
        mode = None if data is None else read_fields(data).get("mode")
        if mode is None:
            self.modes.pop(key.subject, None)
            return
        try:
            self.modes[key.subject] = Mode(str(mode))
        except ValueError:
            raise RecordError(f"the mode {mode!r:.100} is not known") from None

    def _apply_command(self, key: Key, fields: Json) -> None:
        if key.type is KeyType.NOOP:
            ids = fields.get(MAX_IDS)
            for name, max_id in ids.items() if isinstance(ids, dict) else ():
                if isinstance(max_id, int):
                    context = self.contexts.setdefault(str(name), Context())
                    context.max_id = max(context.max_id, max_id)
        elif key.type is KeyType.DELETE_SUBJECT and key.subject is not None:
            last = fields.get("version")
            for number, version in self.subjects.get(key.subject, {}).items():
                if isinstance(last, int) and number <= last and not version.is_deleted:
                    value = replace(version.value, is_deleted=True)
                    self.subjects[key.subject][number] = replace(version, value=value)
        elif key.type is KeyType.CLEAR_SUBJECT:
            self._clear(key.subject)

    def _clear(self, scope: str | None) -> None:
        for subject in self.subjects_in(scope):
            for version in self.versions(subject):
                if version.is_deleted:
                    self._remove(subject, version.number)
