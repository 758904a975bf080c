"""Serves ``/subjects``: registration, look-up, versions and deletion."""

from dataclasses import replace

from kalda.http.errors import HttpError
from kalda.http.registry.changes import (
    Registration,
    RuleChange,
    decide_subject_deletion,
    decide_version_deletion,
)
from kalda.http.registry.contents import read_metadata, with_version
from kalda.http.registry.errors import (
    invalid_rule_set,
    invalid_schema,
    invalid_subject,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from kalda.http.registry.registry import in_other_contexts
from kalda.http.registry.state import Version
from kalda.http.registry.subjects import is_valid
from kalda.http.registry_api.calls import (
    SCHEMAS_PER_VERSIONS_MAX,
    Call,
    is_qualified,
    requested_content,
    requested_tags,
    requested_text,
    subjects_with_prefix,
)
from kalda.http.registry_api.requests import (
    checked_rule_set,
    json_object,
    read_tag_change,
    version_number,
    whole_number,
)
from kalda.http.registry_api.views import (
    registered_json,
    version_json,
)
from kalda.schemas.errors import SchemaError


async def list_subjects(call: Call) -> object:
    """Return the names of subjects."""
    target, state = call.target, call.registry.state
    with_deleted, deleted_only = target.flag("deleted"), target.flag("deletedOnly")
    found = []
    named = subjects_with_prefix(call, target.text("subjectPrefix", ":*:"))
    for subject in await call.services.authorizer.readable(call.caller, named):
        is_deleted = all(each.is_deleted for each in state.subjects[subject].values())
        if is_deleted if deleted_only else (with_deleted or not is_deleted):
            found.append(subject)
    limits = call.registry.settings
    return target.page(sorted(found), limits.subject_search_default_limit, limits.subject_search_max_limit)


async def list_versions(call: Call) -> object:
    """Return the numbers of a subject's versions."""
    subject, target, state = call.subject(), call.target, call.registry.state
    with_deleted, deleted_only = target.flag("deleted"), target.flag("deletedOnly")
    if not state.has_subject(subject, with_deleted=with_deleted or deleted_only):
        raise subject_not_found(subject)
    versions = state.versions(subject)
    if target.flag("deletedAsNegative"):
        numbers = [-each.number if each.is_deleted else each.number for each in versions]
    elif deleted_only:
        numbers = [each.number for each in versions if each.is_deleted]
    else:
        numbers = [each.number for each in versions if with_deleted or not each.is_deleted]
    return target.page(numbers, SCHEMAS_PER_VERSIONS_MAX, SCHEMAS_PER_VERSIONS_MAX)


async def get_version(call: Call) -> object:
    """Return a version of a subject."""
    version = _version(call, with_deleted=call.target.flag("deleted"))
    return version_json(
        version,
        await requested_text(call, version),
        qualifies=is_qualified(call),
        tags=await requested_tags(call, version),
    )


async def get_version_text(call: Call) -> object:
    """Return only the text of a version."""
    version = _version(call, with_deleted=call.target.flag("deleted"))
    return (await requested_text(call, version) or version.content.text).encode()


async def get_referenced_by(call: Call) -> object:
    """Return the ids of the schemas that refer to a version."""
    version = _version(call, with_deleted=True)
    found = call.registry.state.references_to(
        version.subject, version.number, with_deleted=call.target.flag("deleted")
    )
    settings = call.registry.settings
    ids = [schema_id for _, schema_id in found]
    return call.target.page(ids, settings.schema_search_default_limit, settings.schema_search_max_limit)


async def register(call: Call) -> object:
    """Register a schema under a subject."""
    registry, target = call.registry, call.target
    subject = call.subject()
    if not is_valid(subject):
        raise invalid_subject(call.segment(1))
    fields = json_object(call.body)
    content = await requested_content(call, subject, fields)
    has_tags = bool(fields.get("schemaTagsToAdd") or fields.get("schemaTagsToRemove"))
    registration = Registration(
        subject,
        content,
        # A version with other tags notes its number in `confluent:version`.
        whole_number(fields, "version", -1 if has_tags else 0),
        whole_number(fields, "id", -1),
        target.flag("force"),
        propagates_tags=fields.get("propagateSchemaTags") is True,
    )
    config = registry.config(subject)
    is_normalized = target.flag("normalize") or config.get("normalize") is True
    is_changed = has_tags or registration.propagates_tags
    is_changed = is_changed or any(name.startswith(("default", "override")) for name in config)
    if not is_changed and registration.version in (0, -1) and not content.is_empty:
        found = await registry.find(
            subject, content, is_normalized=is_normalized, latest_only=registration.version == -1
        )
        if found is not None and registration.id in (-1, found.id):
            call.done(subject=subject, schema_id=found.id, is_new=False)
            return registered_json(found, found.content, await requested_text(call, found))
    version, stored = await registry.register(registration, is_normalized=is_normalized)
    call.done(subject=subject, schema_id=version.id, version=version.number)
    return registered_json(version, stored, await requested_text(call, version))


async def change_tags(call: Call) -> object:
    """Register a version of a subject again with other tags inside, metadata or rules."""
    registry, fields = call.registry, json_object(call.body)
    _version(call, with_deleted=False)
    number = whole_number(fields, "newVersion", 0)
    merged, removed = checked_rule_set(fields.get("rulesToMerge")), fields.get("rulesToRemove")
    rule_set, rule_change = checked_rule_set(fields.get("ruleSet")), None
    if merged is not None or removed is not None:
        if rule_set is not None:
            raise invalid_rule_set("ruleSet should be omitted if specifying rulesToMerge or rulesToRemove")
        if not isinstance(removed or [], list):
            raise invalid_rule_set(f"rulesToRemove is {removed!r:.100}; it takes a list of names")
        before = number - 1 if number > 0 else -1
        rule_change = RuleChange(before, merged, [str(each) for each in removed or ()])
    change = read_tag_change(fields, "tagsToAdd", "tagsToRemove")
    try:
        given = read_metadata(fields.get("metadata"))
    except SchemaError as error:
        raise invalid_schema(str(error)) from None

    async def registration() -> Registration:
        # The version may be another by now, with the tags of a change that was made in between.
        version = _version(call, with_deleted=False)
        content = version.content
        if change is not None:
            content = await registry.with_tags(version.subject, content, change)
        metadata = with_version(content.metadata if given is None else given, number)
        content = replace(content, metadata=metadata, rule_set=rule_set, given_digest=None)
        return Registration(version.subject, content, number, rule_change=rule_change)

    registered, stored = await registry.register(registration, is_normalized=False)
    call.done(subject=registered.subject, schema_id=registered.id, version=registered.number)
    return registered_json(registered, stored)


async def look_up(call: Call) -> object:
    """Return the version of a subject that holds a schema."""
    registry, target = call.registry, call.target
    subject = call.subject()
    content = await requested_content(call, subject, json_object(call.body))
    is_normalized = target.flag("normalize") or registry.config(subject).get("normalize") is True
    with_deleted = target.flag("deleted")
    for each in (subject, *in_other_contexts(registry.state, subject)):
        try:
            version = await registry.find(
                each, content, is_normalized=is_normalized, with_deleted=with_deleted
            )
        except HttpError:
            if each == subject:
                raise
            continue
        if version is not None:
            call.done()
            return version_json(version, await requested_text(call, version))
    if not registry.state.has_subject(subject, with_deleted=with_deleted):
        raise subject_not_found(subject)
    raise schema_not_found()


async def get_latest_with_metadata(call: Call) -> object:
    """Return the latest version of a subject whose metadata has some properties."""
    subject, target, state = call.subject(), call.target, call.registry.state
    wanted = dict(zip(target.parameters.get("key", ()), target.parameters.get("value", ()), strict=False))
    with_deleted = target.flag("deleted")
    for version in reversed(state.versions(subject)):
        metadata = version.content.metadata
        if metadata is None or (version.is_deleted and not with_deleted):
            continue
        if wanted.items() <= metadata.get("properties", {}).items():
            return version_json(version, await requested_text(call, version))
    if not state.has_subject(subject, with_deleted=with_deleted):
        raise subject_not_found(subject)
    raise schema_not_found()


async def delete_version(call: Call) -> object:
    """Delete a version, softly or for good."""
    subject, number = call.subject(), version_number(call.segment(3))
    is_permanent = call.target.flag("permanent")
    decision = await call.registry.change(
        lambda state: decide_version_deletion(state, subject, number, is_permanent=is_permanent)
    )
    call.done(subject=subject, version=decision.numbers[0], permanent=is_permanent)
    return decision.numbers[0]


async def delete_subject(call: Call) -> object:
    """Delete a subject with its versions, softly or for good."""
    subject, is_permanent = call.subject(), call.target.flag("permanent")
    decision = await call.registry.change(
        lambda state: decide_subject_deletion(state, subject, is_permanent=is_permanent)
    )
    call.done(subject=subject, versions=len(decision.numbers), permanent=is_permanent)
    return decision.numbers


def _version(call: Call, *, with_deleted: bool) -> Version:
    subject, number = call.subject(), version_number(call.segment(3))
    state = call.registry.state
    for each in (subject, *in_other_contexts(state, subject)):
        version = state.version(each, number, with_deleted=with_deleted)
        if version is not None:
            return version
    if not state.has_subject(subject, with_deleted=with_deleted):
        raise subject_not_found(subject)
    raise version_not_found(number)
