"""Serves ``/subjects``: registration, look-up, versions and deletion."""

from kalda.http.errors import HttpError
from kalda.http.registry.changes import (
    Registration,
    decide_subject_deletion,
    decide_version_deletion,
)
from kalda.http.registry.errors import (
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
    requested_text,
    subjects_with_prefix,
)
from kalda.http.registry_api.requests import (
    json_object,
    read_content,
    version_number,
    whole_number,
)
from kalda.http.registry_api.views import (
    registered_json,
    version_json,
)


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
    return version_json(version, await requested_text(call, version), qualifies=is_qualified(call))


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
    if fields.get("schemaTagsToAdd") or fields.get("schemaTagsToRemove") or fields.get("propagateSchemaTags"):
        raise invalid_schema("tags inside a schema are not supported; keep them in `metadata`")
    content = read_content(fields)
    registration = Registration(
        subject,
        content,
        whole_number(fields, "version", 0),
        whole_number(fields, "id", -1),
        target.flag("force"),
    )
    config = registry.config(subject)
    is_normalized = target.flag("normalize") or config.get("normalize") is True
    has_defaults = any(name.startswith(("default", "override")) for name in config)
    if not has_defaults and registration.version in (0, -1) and not content.is_empty:
        found = await registry.find(
            subject, content, is_normalized=is_normalized, latest_only=registration.version == -1
        )
        if found is not None and registration.id in (-1, found.id):
            call.done(subject=subject, schema_id=found.id, is_new=False)
            return registered_json(found, found.content, await requested_text(call, found))
    version, stored = await registry.register(registration, is_normalized=is_normalized)
    call.done(subject=subject, schema_id=version.id, version=version.number)
    return registered_json(version, stored, await requested_text(call, version))


async def look_up(call: Call) -> object:
    """Return the version of a subject that holds a schema."""
    registry, target = call.registry, call.target
    subject, content = call.subject(), read_content(json_object(call.body))
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
