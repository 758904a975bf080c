"""The locks agree with each other and with what the project asks for."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def versions(name: str) -> dict[str, set[str]]:
    """Return the versions of a lock by package: there may be one for each platform."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / "requirements" / f"{name}.txt").read_text().splitlines():
        if match := re.match(r"([\w.-]+)==([^ ;]+)", line):
            found.setdefault(canonicalize_name(match[1]), set()).add(match[2])
    return found


def test_a_package_has_one_version_in_all_locks() -> None:
    whole = versions("dev")
    for name in ("core", "run"):
        lock = versions(name)
        assert lock, name
        assert [] == [each for each, found in lock.items() if not found <= whole[each]], name


def test_every_pin_has_hashes() -> None:
    for file in (ROOT / "requirements").glob("*.txt"):
        # A line that ends in a backslash goes on.
        pins = [line for line in file.read_text().replace("\\\n", " ").splitlines() if "==" in line]
        assert pins, file
        assert [] == [pin for pin in pins if "--hash=sha256:" not in pin], file


def test_the_locks_have_what_the_project_asks_for() -> None:
    """Else: make lock"""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = list(project["project"]["dependencies"])
    for extra, wanted in project["project"]["optional-dependencies"].items():
        asked += [each for each in wanted if extra not in {"kerberos", "all"}]
    for group in project["dependency-groups"].values():
        asked += [each for each in group if isinstance(each, str)]
    lock = versions("dev")
    for text in asked:
        requirement = Requirement(text)
        if requirement.name == "kalda":
            continue
        found = lock.get(canonicalize_name(requirement.name), set())
        assert found, f"{text} is in no lock"
        assert all(requirement.specifier.contains(version) for version in found), f"{text}: {found}"
