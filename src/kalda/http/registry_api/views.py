"""Builds the bodies of responses about versions and configurations, with fields in Confluent's order."""

from kalda.http.registry.changes import CONFIG_FIELDS
from kalda.http.registry.contents import Content, Json, reference_json
from kalda.http.registry.state import Version
from kalda.http.registry.subjects import DEFAULT_CONTEXT, Subject, in_context_of


def version_json(
    version: Version, text: str | None = None, *, qualifies: bool = False, tags: Json | None = None
) -> Json:
    """Return a version of a subject; with another text of it, and with references that name the context."""
    fields: Json = {"subject": version.subject, "version": version.number, "id": version.id}
    fields |= _content(version, text, qualifies=qualifies)
    return fields | (tags or {}) | _times(version)


def schema_json(version: Version, text: str | None = None, *, qualifies: bool = False) -> Json:
    """Return the schema of an id."""
    fields: Json = {"subject": version.subject, "version": version.number}
    fields |= _content(version, text, qualifies=qualifies)
    return fields


def times_json(version: Version) -> Json:
    """Return when a version was written, and whether it is deleted."""
    return _times(version)


def registered_json(version: Version, content: Content, text: str | None = None) -> Json:
    """Return the answer to a registration."""
    fields: Json = {"id": version.id, "version": version.number, **content.fields()}
    if text is not None:
        fields["schema"] = text
    return fields


def config_json(config: Json) -> Json:
    """Return a configuration."""
    return {name: config[name] for name in CONFIG_FIELDS if config.get(name) not in (None, "", {}, [])}


def config_update_json(config: Json) -> Json:
    """Return a configuration as a request has it, which calls the level ``compatibility``."""
    names = {"compatibilityLevel": "compatibility"}
    return {names.get(name, name): value for name, value in config_json(config).items()}


def _content(version: Version, text: str | None, *, qualifies: bool) -> Json:
    fields = version.content.fields()
    if text is not None:
        fields["schema"] = text
    if qualifies and "references" in fields and Subject.parse(version.subject).context != DEFAULT_CONTEXT:
        fields["references"] = [
            {**reference_json(each), "subject": in_context_of(version.subject, each.subject)}
            for each in version.content.references
        ]
    return fields


def _times(version: Version) -> Json:
    times: Json = {"ts": version.timestamp_ms} if version.timestamp_ms > 0 else {}
    return {**times, "deleted": version.is_deleted}
