"""Defines a request of the REST API, the resource that it is for, and what several resources use."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kalda.http.callers import Caller
from kalda.http.registry.authorization import Operation
from kalda.http.registry.contents import Content, Json
from kalda.http.registry.registry import Registry
from kalda.http.registry.state import Version
from kalda.http.registry.subjects import Subject, normalized
from kalda.http.registry_api.requests import Target, prefix_of, read_content, read_tag_change

if TYPE_CHECKING:
    from kalda.http.services import Services

SCHEMAS_PER_VERSIONS_MAX: Final = 20_000


@dataclass(slots=True)
class Call:
    """One request."""

    services: "Services"
    caller: Caller
    target: Target
    body: bytes
    outcome: str = "failure"
    details: dict[str, object] = field(default_factory=dict)
    """What the audit log says of a change."""

    @property
    def registry(self) -> Registry:
        """The registry of this process."""
        return self.services.registry

    def segment(self, index: int) -> str:
        """Return a segment of the path."""
        return self.target.segments[index]

    def subject(self, index: int = 1) -> str:
        """Return the subject in the path."""
        return normalized(self.segment(index))

    def scope_subject(self) -> str | None:
        """Return the subject of a configuration or mode; None for the whole registry."""
        if len(self.target.segments) < 2 or Subject.parse(self.segment(1)).is_default_context:
            return None
        return self.subject()

    def done(self, **details: object) -> None:
        """Note that a change was made."""
        self.outcome = "success"
        self.details.update(details)


Handler = Callable[[Call], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Resource:
    """One path and method."""

    method: str
    pattern: tuple[str, ...]
    """The segments; one in braces stands for any."""
    handler: Handler
    operation: Operation
    writes: bool = False
    status: int = 200

    def matches(self, segments: Sequence[str]) -> bool:
        """Return whether a path is this one's."""
        return all(
            mine == theirs or mine.startswith("{")
            for mine, theirs in zip(self.pattern, segments, strict=True)
        )

    def subject_of(self, target: Target) -> str | None:
        """Return the subject that a request is for; None where it is for the whole registry."""
        if "{subject}" not in self.pattern:
            return None
        subject = Subject.parse(target.segments[self.pattern.index("{subject}")])
        return None if subject.is_default_context and self.pattern[0] != "subjects" else str(subject)


async def requested_text(call: Call, version: Version) -> str | None:
    """Return the text in the format that the request asks for; None where it asks for none."""
    wanted = call.target.text("format").strip()
    return await call.registry.formatted(version, wanted) if wanted else None


async def requested_tags(call: Call, version: Version) -> Json:
    """Return the field with the tags inside a version that the request asks for; no field for none."""
    wanted = set(call.target.parameters.get("findTags", ()))
    if not wanted:
        return {}
    found = await call.registry.tagged_entities(version)
    listed = [
        {"schemaEntity": {"entityPath": entity.path, "entityType": entity.type.value}, "tags": tags}
        for entity, tags in found.items()
        if "*" in wanted or wanted.intersection(tags)
    ]
    return {"schemaTags": listed} if listed else {}


async def requested_content(call: Call, subject: str, fields: Json) -> Content:
    """Read the schema of a request, with the tags that the request adds to its text or removes.

    Raises:
        HttpError: it is malformed, or a tag is meant for what the schema does not have (42201).
    """
    content = read_content(fields)
    change = read_tag_change(fields, "schemaTagsToAdd", "schemaTagsToRemove")
    return content if change is None else await call.registry.with_tags(subject, content, change)


def is_qualified(call: Call) -> bool:
    """Return whether the subjects of references are to name their context."""
    return call.target.text("referenceFormat") == "qualified"


def subjects_with_prefix(call: Call, prefix: str) -> list[str]:
    """Return the subjects that begin with `prefix`, which may name a context or, by ``*``, all of them."""
    context, name = prefix_of(prefix)
    found = []
    for each in call.registry.state.subjects:
        subject = Subject.parse(each)
        if context in ("*", subject.context) and subject.name.startswith(name):
            found.append(each)
    return found
