"""Decides what a change writes: from the state and a request to records and a result, or an error. Pure.

Only the elected process decides, one change at a time, on a state that has read all records of the topic.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kalda.http.registry.contents import (
    Content,
    Json,
    merged_metadata,
    merged_rule_sets,
    version_in,
    with_version,
    without_rules,
)
from kalda.http.registry.errors import (
    context_not_empty,
    incompatible,
    invalid_schema,
    not_permitted,
    reference_exists,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from kalda.http.registry.evaluation import Evaluation
from kalda.http.registry.records import Change, Key, KeyType, SchemaValue, encode_json
from kalda.http.registry.scope import config_in_scope, mode_in_scope
from kalda.http.registry.state import Mode, State, Version
from kalda.http.registry.subjects import DEFAULT_CONTEXT, Subject

ID_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RuleChange:
    """Rules that are added to those of a version, or replace them, and names of rules that are removed."""

    version: int
    """The version whose rules change; -1 is the latest."""
    merged: Json | None
    removed: Sequence[str]


@dataclass(frozen=True, slots=True)
class Registration:
    """A request to register a schema; 0 and -1 stand for a version and an id that are not given."""

    subject: str
    content: Content
    version: int = 0
    id: int = -1
    is_forced: bool = False
    propagates_tags: bool = False
    """Whether the tags inside the version before are put into this one."""
    rule_change: RuleChange | None = None
    """How its rules differ from those of a version before; None where it has its own."""


@dataclass(slots=True)
class Decision:
    """The records to write, in order, and the result for the caller."""

    changes: list[Change] = field(default_factory=list)
    version: Version | None = None
    """Of a registration: the version that the schema has then."""
    content: Content | None = None
    """Of a registration: the content as it is stored."""
    numbers: list[int] = field(default_factory=list)
    """Of a deletion: the versions."""


# Schemas.


def check_register(state: State, registration: Registration) -> None:
    """Check whether the mode allows a registration.

    Raises:
        HttpError: it does not (42205).
    """
    subject = registration.subject
    mode = mode_in_scope(state, subject)
    context = Subject.parse(subject).context_prefix
    if mode.is_read_only:
        raise not_permitted(f"Subject {subject} in context {context} is in read-only mode")
    if registration.id >= 0 and not mode.is_import:
        raise not_permitted(f"Subject {subject} in context {context} is not in import mode")
    if registration.id < 0 and mode is not Mode.READWRITE:
        raise not_permitted(f"Subject {subject} in context {context} is not in read-write mode")


def completed(state: State, registration: Registration, default_level: str) -> Registration:
    """Return a registration with what it takes from the version before and from the configuration.

    Raises:
        HttpError: it has no schema, and there is no version before (42201).
    """
    if mode_in_scope(state, registration.subject).is_import:
        return registration
    previous = state.latest(registration.subject)
    config = config_in_scope(state, registration.subject, default_level)
    content = registration.content
    if content.is_empty:
        if previous is None:
            raise invalid_schema("Empty schema")
        before = previous.content
        content = replace(
            content, text=before.text, schema_type=before.schema_type, references=before.references
        )
    change = registration.rule_change
    if change is not None:
        changed = state.version(registration.subject, change.version)
        rule_set = merged_rule_sets(None if changed is None else changed.content.rule_set, change.merged)
        content = replace(
            content, rule_set=None if rule_set is None else without_rules(rule_set, change.removed)
        )
    content = with_defaults(
        content,
        config,
        None if previous is None else previous.content,
        next_version(state, registration.subject),
        is_version_given=registration.version != 0,
    )
    return replace(registration, content=content)


def with_defaults(
    content: Content,
    config: Json,
    previous: Content | None,
    number: int | None,
    *,
    is_version_given: bool = False,
) -> Content:
    """Return a content with the metadata and rules of the version before and of the configuration.

    A property ``confluent:version`` gets the `number`, unless that is None.
    """
    metadata, rule_set = content.metadata, content.rule_set
    if metadata is None and previous is not None:
        metadata = previous.metadata
    if rule_set is None and previous is not None:
        rule_set = previous.rule_set
    metadata = merged_metadata(
        merged_metadata(config.get("defaultMetadata"), metadata), config.get("overrideMetadata")
    )
    rule_set = merged_rule_sets(
        merged_rule_sets(config.get("defaultRuleSet"), rule_set), config.get("overrideRuleSet")
    )
    if number is not None and (is_version_given or version_in(metadata) is not None):
        metadata = with_version(metadata, number)
    if metadata is None and rule_set is None:
        return content
    return replace(content, metadata=metadata, rule_set=rule_set, given_digest=None)


def next_version(state: State, subject: str) -> int:
    """Return the number of a subject's next version; deleted ones count."""
    return max(state.subjects.get(subject, {}), default=0) + 1


def decide_registration(state: State, registration: Registration, evaluation: Evaluation) -> Decision:
    """Decide on a schema that was parsed, compared and checked.

    Raises:
        HttpError: the schema may not be registered.
    """
    subject, content = registration.subject, evaluation.content
    mode = mode_in_scope(state, subject)
    wanted_id = registration.id if mode is Mode.IMPORT else -1
    found_id = state.id_of_content(Subject.parse(subject).context, content)
    if found_id is not None and wanted_id in (-1, found_id):
        same = state.version_of_content(subject, content)
        if registration.version == 0 and same is not None and not same.is_deleted:
            return Decision(version=same, content=content)
        wanted_id = found_id
    if registration.version == 0:
        for number in evaluation.same:
            existing = state.version(subject, number)
            if existing is not None and wanted_id in (-1, existing.id):
                return Decision(version=existing, content=content)
    if evaluation.messages and not mode.is_import and not registration.is_forced:
        raise incompatible(subject, evaluation.messages)
    return _new_version(state, registration, content, wanted_id, mode)


def _new_version(
    state: State, registration: Registration, content: Content, wanted_id: int, mode: Mode
) -> Decision:
    subject = registration.subject
    following = next_version(state, subject)
    number = registration.version if registration.version > 0 else following
    if number != following and not mode.is_import:
        raise invalid_schema(
            f"Version is not one more than previous version: {number} is given, {following} is next"
        )
    decision = Decision(content=content)
    context_name = Subject.parse(subject).context
    if context_name != DEFAULT_CONTEXT and context_name not in state.named_contexts:
        value = encode_json({"tenant": "default", "context": context_name})
        decision.changes.append(Change(Key(KeyType.CONTEXT, context_name), value))
    schema_id = _id_for(state, context_name, content, wanted_id)
    decision.changes += _superseded(state, subject, number, schema_id)
    stored = SchemaValue(subject, number, schema_id, content)
    decision.changes.append(Change(Key.schema(subject, number), stored.encode()))
    decision.version = Version(stored, 0)
    return decision


def _id_for(state: State, context_name: str, content: Content, wanted_id: int) -> int:
    context = state.context(context_name)
    if wanted_id >= 0:
        entry = context.by_id.get(wanted_id)
        if entry is not None and entry.content.digest != content.digest:
            prefix = Subject(context_name, "").context_prefix
            raise not_permitted(
                f"Overwrite new schema with id {wanted_id} in context {prefix} is not permitted."
            )
        return wanted_id
    if context.max_id >= ID_MAX:
        raise not_permitted(f"all ids up to {ID_MAX} of context {context_name} are used")
    return context.max_id + 1


def _superseded(state: State, subject: str, number: int, schema_id: int) -> list[Change]:
    """Return tombstones of deleted versions with the id that a new version gets, as the newest one counts."""
    return [
        Change(Key.schema(subject, each.number), None)
        for each in state.versions(subject)
        if each.is_deleted
        and each.id == schema_id
        and each.number < number
        and not state.references_to(subject, each.number, with_deleted=True)
    ]


def decide_version_deletion(state: State, subject: str, number: int, *, is_permanent: bool) -> Decision:
    """Decide on deleting one version; -1 is the latest.

    Raises:
        HttpError: it does not exist, is referred to, or the mode forbids it.
    """
    version = state.version(subject, number, with_deleted=True)
    if version is None:
        if not state.has_subject(subject, with_deleted=True):
            raise subject_not_found(subject)
        raise version_not_found(number)
    number = version.number
    if version.is_deleted and not is_permanent:
        raise version_soft_deleted(subject, number)
    _check_writable(state, subject)
    if state.references_to(subject, number, with_deleted=is_permanent):
        raise reference_exists(subject, number)
    if not is_permanent:
        value = replace(version.value, is_deleted=True).encode()
        return Decision([Change(Key.schema(subject, number), value)], numbers=[number])
    if not version.is_deleted:
        raise version_not_soft_deleted(subject, number)
    changes = _removals(state, subject, [version])
    if len(state.subjects[subject]) == 1:
        changes += _settings_removals(state, subject)
    return Decision(changes, numbers=[number])


def decide_subject_deletion(state: State, subject: str, *, is_permanent: bool) -> Decision:
    """Decide on deleting a subject with all its versions.

    Raises:
        HttpError: it does not exist, is referred to, or the mode forbids it.
    """
    if not state.has_subject(subject, with_deleted=True):
        raise subject_not_found(subject)
    if not is_permanent and not state.has_subject(subject):
        raise subject_soft_deleted(subject)
    _check_writable(state, subject)
    versions = [each for each in state.versions(subject) if is_permanent or not each.is_deleted]
    for version in versions:
        for context, schema_id in state.references_to(subject, version.number, with_deleted=is_permanent):
            referrers = state.versions_of_id(context, schema_id)
            if any(each.subject != subject and (is_permanent or not each.is_deleted) for each in referrers):
                raise reference_exists(subject, version.number)
        if is_permanent and not version.is_deleted:
            raise subject_not_soft_deleted(subject)
    numbers = [each.number for each in versions]
    if not is_permanent:
        value = encode_json({"subject": subject, "version": numbers[-1] if numbers else 0})
        return Decision([Change(Key(KeyType.DELETE_SUBJECT, subject), value)], numbers=numbers)
    changes = _removals(state, subject, versions[::-1])
    return Decision(changes + _settings_removals(state, subject), numbers=numbers)


def _check_writable(state: State, subject: str) -> None:
    if mode_in_scope(state, subject).is_read_only:
        context = Subject.parse(subject).context_prefix
        raise not_permitted(f"Subject {subject} in context {context} is in read-only mode")


def _removals(state: State, subject: str, versions: Sequence[Version]) -> list[Change]:
    """Return the tombstones of versions. Before the highest id goes, it is noted where it stays."""
    max_id = state.context(Subject.parse(subject).context).max_id
    changes = [Change(Key.schema(subject, each.number), None) for each in versions]
    if any(each.id == max_id for each in versions):
        changes.insert(0, state.max_ids_change())
    return changes


def _settings_removals(state: State, subject: str) -> list[Change]:
    changes = []
    if subject in state.modes:
        changes.append(Change(Key(KeyType.MODE, subject), None))
    if subject in state.configs:
        changes.append(Change(Key(KeyType.CONFIG, subject), None))
    return changes


# Settings.


def decide_config(state: State, subject: str | None, update: Json) -> tuple[Decision, Json]:
    """Decide on new values of a configuration; a value of None removes it. Return the whole of it, too.

    Raises:
        HttpError: the mode forbids it (42205).
    """
    _check_settings_writable(state, subject)
    config = {**state.configs.get(subject, {}), **update}
    ordered = {name: config[name] for name in CONFIG_FIELDS if config.get(name) not in (None, "", {}, [])}
    value = encode_json(ordered if subject is None else {"subject": subject, **ordered})
    return Decision([Change(Key(KeyType.CONFIG, subject), value)]), ordered


def decide_config_deletion(state: State, subject: str | None) -> Decision:
    """Decide on removing a configuration.

    Raises:
        HttpError: the mode forbids it (42205).
    """
    _check_settings_writable(state, subject)
    return Decision([Change(Key(KeyType.CONFIG, subject), None)])


def decide_mode(state: State, subject: str | None, mode: Mode | None, *, is_forced: bool) -> Decision:
    """Decide on a new mode. IMPORT removes the soft-deleted versions for good, and needs no others.

    Raises:
        HttpError: there are schemas (42205), or a deleted one is referred to (42206).
    """
    changes: list[Change] = []
    if mode is Mode.IMPORT and mode_in_scope(state, subject) is not Mode.IMPORT and not is_forced:
        if state.has_subject(subject):
            raise not_permitted("Cannot import since found existing subjects")
        for each in state.subjects_in(subject):
            versions = state.versions(each)
            for version in versions:
                if state.references_to(each, version.number, with_deleted=True):
                    raise reference_exists(each, version.number)
            changes += _removals(state, each, versions)
        value = encode_json({} if subject is None else {"subject": subject})
        changes.append(Change(Key(KeyType.CLEAR_SUBJECT, subject), value))
    fields: dict[str, Any] = {} if subject is None else {"subject": subject}
    value_or_none = None if mode is None else encode_json({**fields, "mode": mode.value})
    changes.append(Change(Key(KeyType.MODE, subject), value_or_none))
    return Decision(changes)


def decide_mode_deletion(state: State, subject: str | None, *, is_recursive: bool) -> Decision:
    """Decide on removing a mode, and with it those of the subjects of a context."""
    changes = [Change(Key(KeyType.MODE, subject), None)]
    named = Subject.parse(subject or "")
    if is_recursive and not named.name:
        changes += [
            Change(Key(KeyType.MODE, each), None)
            for each in sorted(filter(None, state.modes))
            if each != subject and named.covers(each)
        ]
    return Decision(changes)


def decide_context_deletion(state: State, context: str) -> Decision:
    """Decide on removing a context that has no subjects, given as ``:.context:``.

    Raises:
        HttpError: it has some (42211).
    """
    if state.has_subject(context, with_deleted=True):
        raise context_not_empty(context)
    return Decision([Change(Key(KeyType.CONTEXT, Subject.parse(context).context), None)])


def _check_settings_writable(state: State, subject: str | None) -> None:
    if mode_in_scope(state, subject).is_read_only:
        context = "" if subject is None else Subject.parse(subject).context_prefix
        raise not_permitted(f"Subject {subject or ''} in context {context} is in read-only mode")


CONFIG_FIELDS: Final = (
    "alias",
    "aliasForDeks",
    "normalize",
    "validateFields",
    "validateNewSchemas",
    "validateRules",
    "compatibilityLevel",
    "compatibilityPolicy",
    "compatibilityGroup",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)
"""The fields of a configuration, in the order of its record."""
