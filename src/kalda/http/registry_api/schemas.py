"""Serves ``/schemas``: schemas by id and by GUID, and a list of all."""

from kalda.http.registry.contents import Json, has_rule_type
from kalda.http.registry.errors import (
    schema_not_found,
)
from kalda.http.registry.state import Version
from kalda.http.registry.subjects import DEFAULT_CONTEXT, Subject
from kalda.http.registry_api.calls import (
    SCHEMAS_PER_VERSIONS_MAX,
    Call,
    is_qualified,
    requested_tags,
    requested_text,
    subjects_with_prefix,
)
from kalda.http.registry_api.requests import (
    id_number,
    prefix_of,
)
from kalda.http.registry_api.views import (
    schema_json,
    times_json,
    version_json,
)
from kalda.schemas.model import SchemaType


async def get_schema(call: Call) -> object:
    """Return the schema of an id."""
    version = _by_id(call)
    if version is None:
        raise schema_not_found(id_number(call.segment(2)))
    fields = schema_json(version, await requested_text(call, version), qualifies=is_qualified(call))
    fields |= await requested_tags(call, version)
    if call.target.flag("fetchMaxId"):
        fields["maxId"] = call.registry.state.context(Subject.parse(version.subject).context).max_id
    return fields | times_json(version)


async def get_schema_text(call: Call) -> object:
    """Return only the text of the schema of an id."""
    version = _by_id(call)
    if version is None:
        raise schema_not_found(id_number(call.segment(2)))
    return (await requested_text(call, version) or version.content.text).encode()


async def get_id_subjects(call: Call) -> object:
    """Return the subjects that have the schema of an id."""
    named = dict.fromkeys(each.subject for each in _versions_by_id(call))
    found = await call.services.authorizer.readable(call.caller, named)
    limits = call.registry.settings
    return call.target.page(found, limits.subject_search_default_limit, limits.subject_search_max_limit)


async def get_id_versions(call: Call) -> object:
    """Return the versions that have the schema of an id."""
    versions = _versions_by_id(call)
    readable = await call.services.authorizer.readable(call.caller, [each.subject for each in versions])
    found = [
        {"subject": each.subject, "version": each.number} for each in versions if each.subject in readable
    ]
    return call.target.page(found, SCHEMAS_PER_VERSIONS_MAX, SCHEMAS_PER_VERSIONS_MAX)


async def get_schema_by_guid(call: Call) -> object:
    """Return the schema of a GUID."""
    ids = _ids_of_guid(call)
    if not ids:
        raise schema_not_found(call.segment(2))
    version = call.registry.state.by_id(ids[0]["id"], ids[0]["context"])
    assert version is not None, "an id was found"
    fields = schema_json(version, await requested_text(call, version))
    del fields["subject"], fields["version"]
    return fields | times_json(version)


async def get_ids_by_guid(call: Call) -> object:
    """Return the ids that contexts have for a GUID."""
    return sorted(_ids_of_guid(call), key=lambda each: (each["context"], each["id"]))


async def get_types(_call: Call) -> object:
    """Return the types of schemas."""
    return [SchemaType.JSON.value, SchemaType.PROTOBUF.value, SchemaType.AVRO.value]


async def list_schemas(call: Call) -> object:
    """Return versions of all subjects that begin with a prefix."""
    target, registry = call.target, call.registry
    state = registry.state
    aliases = _aliases(call) if target.flag("aliases") else {}
    subjects = subjects_with_prefix(call, target.text("subjectPrefix", ""))
    subjects += [each for each in aliases if each not in subjects and each in state.subjects]
    found: list[Version] = []
    readable = await call.services.authorizer.readable(call.caller, subjects)
    for subject in sorted(readable, key=Subject.parse):
        versions = [each for each in state.versions(subject) if target.flag("deleted") or not each.is_deleted]
        found += versions[-1:] if target.flag("latestOnly") else versions
    rule_type = target.text("ruleType")
    if rule_type:
        found = [each for each in found if has_rule_type(each.content.rule_set, rule_type)]
    settings = registry.settings
    page = target.page(found, settings.schema_search_default_limit, settings.schema_search_max_limit)
    return [
        version_json(each) | ({"aliases": aliases[each.subject]} if each.subject in aliases else {})
        for each in page
    ]


def _by_id(call: Call) -> Version | None:
    schema_id = id_number(call.segment(2))
    subject = Subject.parse(call.target.text("subject"))
    return call.registry.state.by_id(schema_id, subject.context, subject.name)


def _versions_by_id(call: Call) -> list[Version]:
    found = _by_id(call)
    if found is None:
        raise schema_not_found()
    state, with_deleted = call.registry.state, call.target.flag("deleted")
    context = Subject.parse(found.subject).context
    versions = state.versions_of_id(context, id_number(call.segment(2)))
    return [each for each in versions if with_deleted or not each.is_deleted]


def _ids_of_guid(call: Call) -> list[Json]:
    text = call.segment(2).replace("-", "")
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        return []
    state = call.registry.state
    return [
        {"context": name, "id": found}
        for name in (DEFAULT_CONTEXT, *state.named_contexts)
        if (found := state.context(name).by_digest.get(digest)) is not None
    ]


def _aliases(call: Call) -> dict[str, list[str]]:
    """Return the names that stand for subjects, by subject."""
    context, name = prefix_of(call.target.text("subjectPrefix", ""))
    found: dict[str, list[str]] = {}
    for each, config in call.registry.state.configs.items():
        alias = config.get("alias")
        if each is None or not alias:
            continue
        subject = Subject.parse(each)
        if context in ("*", subject.context) and subject.name.startswith(name):
            target = str(alias) if str(alias).startswith(":.") else f"{subject.context_prefix}{alias}"
            found.setdefault(target, []).append(each)
    return found
