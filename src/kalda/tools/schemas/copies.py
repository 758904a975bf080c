"""Copies schemas between registries: a file with a JSON object on each line, and its import.

The lines are ordered so that each schema comes after those that it refers to: a registry checks references at
the registration. A registry takes ids and versions only in the mode IMPORT, which a subject has during its
import and loses behind it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from kalda.command.errors import ToolError, ToolUsageError
from kalda.tools.schemas.registry import Registry, Version, subject_path

_LEVEL: Final = "compatibilityLevel"
_LINE_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class Export:
    """What an export has: versions in the order of their registration, and levels by subject."""

    versions: Sequence[Version]
    levels: Mapping[str, str]


@dataclass(slots=True)
class Outcome:
    """What an import did."""

    registered: int = 0
    present: int = 0
    levels: int = 0


def exported(registry: Registry, prefix: str = "", *, deleted: bool = False) -> Iterator[str]:
    """Yield the lines of an export; raises `ToolError` as the registry's methods do."""
    versions: list[Version] = []
    live: set[tuple[str, int]] = set()
    for subject in registry.subjects(prefix, deleted=deleted):
        versions += registry.all_versions(subject, deleted=deleted)
        if deleted:
            is_live = registry.find(f"{subject_path(subject)}/versions")
            live |= {(subject, int(number)) for number in is_live or ()}
    for each in _ordered(versions):
        document = {"subject": each.subject, "version": each.version, "id": each.id, **each.content()}
        if deleted and (each.subject, each.version) not in live:
            document["deleted"] = True
        yield json.dumps(document, ensure_ascii=False, sort_keys=True)
    for subject in sorted({each.subject for each in versions}):
        level = registry.level(subject)
        if level is not None:
            yield json.dumps({"subject": subject, _LEVEL: level}, ensure_ascii=False, sort_keys=True)


def read_export(path: Path) -> Export:
    """Read the file of an export.

    Raises:
        ToolUsageError: It cannot be read, or a line is none of an export.
    """
    versions: list[Version] = []
    levels: dict[str, str] = {}
    try:
        with path.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                if not line.strip():
                    continue
                document = _parsed(path, number, line)
                if _LEVEL in document:
                    levels[str(document["subject"])] = str(document[_LEVEL])
                else:
                    versions.append(_version(path, number, document))
    except (OSError, UnicodeDecodeError) as error:
        raise ToolUsageError(f"{path} cannot be read: {error}") from None
    return Export(_ordered(versions), levels)


def import_all(registry: Registry, export: Export, *, dry_run: bool = False) -> Outcome:
    """Register what is missing; raises `ToolError` where the registry has other schemas in their places."""
    outcome = Outcome()
    missing = []
    for each in export.versions:
        found = registry.find(f"{subject_path(each.subject)}/versions/{each.version}?deleted=true")
        if found is None:
            missing.append(each)
        elif int(found["id"]) == each.id:
            outcome.present += 1
        else:
            raise ToolError(
                f"{each.subject} has version {each.version} with the id {found['id']}, and the file has it "
                f"with the id {each.id}; nothing was registered"
            )
    outcome.registered = len(missing)
    outcome.levels = sum(registry.level(subject) != level for subject, level in export.levels.items())
    if dry_run:
        return outcome
    _register(registry, missing)
    for subject, level in export.levels.items():
        if registry.level(subject) != level:
            registry.ask("PUT", f"/config/{quote(subject, safe='')}", {"compatibility": level})
    return outcome


def _register(registry: Registry, versions: Iterable[Version]) -> None:
    modes: dict[str, str | None] = {}
    try:
        for each in versions:
            place = f"/mode/{quote(each.subject, safe='')}"
            if each.subject not in modes:
                found = registry.find(place)
                registry.ask("PUT", f"{place}?force=true", {"mode": "IMPORT"})
                modes[each.subject] = None if found is None else str(found["mode"])
            body = {**each.content(), "id": each.id, "version": each.version}
            registry.ask("POST", f"{subject_path(each.subject)}/versions", body)
            if each.document.get("deleted"):
                registry.ask("DELETE", f"{subject_path(each.subject)}/versions/{each.version}")
    finally:
        # Also behind a failure: a subject in the mode IMPORT takes no usual registration.
        for subject, mode in modes.items():
            place = f"/mode/{quote(subject, safe='')}"
            if mode is None:
                registry.ask("DELETE", place)
            else:
                registry.ask("PUT", place, {"mode": mode})


def _ordered(versions: Sequence[Version]) -> list[Version]:
    """Return versions by id, each behind those that it refers to, and those of a subject in their order."""
    by_place = {(each.subject, each.version): each for each in versions}
    placed: dict[tuple[str, int], Version] = {}

    def needs(each: Version) -> Iterator[tuple[str, int]]:
        for reference in each.references:
            yield str(reference["subject"]), int(reference["version"])

    # A stack in place of recursion: references may be thousands deep in a hostile file.
    for root in sorted(versions, key=lambda each: (each.id, each.subject, each.version)):
        stack = [(root, iter(list(needs(root))))]
        on_stack = {(root.subject, root.version)}
        while stack:
            each, rest = stack[-1]
            needed = next(
                (
                    by_place[place]
                    for place in rest
                    if place in by_place and place not in placed and place not in on_stack
                ),
                None,
            )
            if needed is None:
                stack.pop()
                on_stack.discard((each.subject, each.version))
                placed.setdefault((each.subject, each.version), each)
            else:
                stack.append((needed, iter(list(needs(needed)))))
                on_stack.add((needed.subject, needed.version))
    return list(placed.values())


def _parsed(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        document = json.loads(line) if len(line) <= _LINE_BYTES_MAX else None
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or "subject" not in document:
        raise ToolUsageError(
            f"{path}:{number} is no line of an export; expected a JSON object with a subject"
        )
    return document


def _version(path: Path, number: int, document: dict[str, Any]) -> Version:
    try:
        found = Version(str(document["subject"]), int(document["version"]), int(document["id"]), document)
        if not isinstance(document["schema"], str):
            raise TypeError("schema is no text")
        [(each["name"], each["subject"], int(each["version"])) for each in found.references]
    except (KeyError, TypeError, ValueError) as error:
        raise ToolUsageError(f"{path}:{number} is no version of an export: {error!r}") from None
    return found
