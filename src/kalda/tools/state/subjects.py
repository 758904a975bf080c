"""Subjects of a schema registry as part of a cluster's state: reading them, and performing their steps.

A file says the latest schema of a subject. Whether the registry has it is the registry's answer, not a
comparison of texts: registries store a schema in a form of their own.
"""

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote

from kalda.command.errors import ToolError
from kalda.tools.schemas.registry import Registry, subject_path
from kalda.tools.state.model import SubjectState
from kalda.tools.state.steps import AlterCompatibility, DeleteSubject, RegisterSchema


def read_subjects(
    registry: Registry, wanted: Mapping[str, SubjectState] | None = None
) -> dict[str, SubjectState]:
    """Read all subjects of a registry with their latest schema and their own compatibility level.

    A schema of `wanted` that the registry takes for the latest one is returned as it is there.

    Raises:
        ToolError: The registry does not answer, or refuses.
    """
    found: dict[str, SubjectState] = {}
    for subject in registry.subjects():
        latest = registry.version(subject, "latest")
        state = SubjectState(
            subject,
            latest.type,
            str(latest.document["schema"]),
            {str(each["name"]): f"{each['subject']}:{each['version']}" for each in latest.references},
            registry.level(subject),
        )
        other = None if wanted is None else wanted.get(subject)
        if other is not None and other != state and _is_latest(registry, other, latest.version):
            state = replace(other, compatibility=state.compatibility)
        found[subject] = state
    return found


def perform_on_registry(
    registry: Registry, step: RegisterSchema | AlterCompatibility | DeleteSubject
) -> str | None:
    """Perform a step; return what went wrong, or None when it is done."""
    try:
        match step:
            case RegisterSchema(subject):
                registry.ask("POST", f"{subject_path(subject.name)}/versions", _body(subject))
            case AlterCompatibility(name, _, after):
                place = f"/config/{quote(name, safe='')}"
                if after is None:
                    registry.ask("DELETE", place)
                else:
                    registry.ask("PUT", place, {"compatibility": after})
            case DeleteSubject(name):
                registry.ask("DELETE", subject_path(name))
    except ToolError as error:
        return str(error)
    return None


def _is_latest(registry: Registry, subject: SubjectState, version: int) -> bool:
    try:
        answer = registry.ask("POST", subject_path(subject.name), _body(subject))
    except ToolError:
        # It is not registered, or no schema; a push says which.
        return False
    return int(answer["version"]) == version


def _body(subject: SubjectState) -> dict[str, object]:
    body: dict[str, object] = {"schema": subject.schema}
    if subject.type != "AVRO":
        body["schemaType"] = subject.type
    if subject.references:
        body["references"] = [
            {"name": name, "subject": place.rpartition(":")[0], "version": int(place.rpartition(":")[2])}
            for name, place in subject.references.items()
        ]
    return body
