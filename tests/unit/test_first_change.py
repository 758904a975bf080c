"""The page of a first change: its code blocks are applied to a copy of the sources, and its tests run."""

import os
import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/contribute/first-change.md"
BLOCK = re.compile(r'^```(python|diff) title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str, str]]:
    """Return the language, the file and the text of each block, in the order of the page."""
    return [(kind, path, text) for kind, path, text in BLOCK.findall(PAGE.read_text())]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Make a tree whose files are links to those of the sources."""
    copytree(
        ROOT / "src/kalda",
        tmp_path / "src/kalda",
        copy_function=os.symlink,
        ignore=lambda _, names: {name for name in names if name == "__pycache__"},
    )
    return tmp_path


def apply(copy: Path, kind: str, path: str, text: str) -> None:
    """Write the file of a block, or change it as a diff says."""
    target = copy / path
    if kind == "diff":
        lines = text.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] != "+")
        source = target.read_text()
        assert 1 == source.count(old), f"{path} does not have the lines of the diff once"
        text = source.replace(old, "".join(line[1:] for line in lines if line[0] != "-"))
        target.unlink()
    else:
        assert not target.exists(), f"{path} is there already"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def run_tests(copy: Path) -> "subprocess.CompletedProcess[str]":
    tests = sorted(str(path) for path in (copy / "tests").rglob("test_*.py"))
    search_path = os.pathsep.join((str(copy / "src"), str(ROOT)))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={copy}", *tests],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": search_path, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_pages_tests_fail_before_its_changes_and_pass_after_them(copy: Path) -> None:
    """A newcomer who types what the page shows must see what the page says."""
    first, *rest = blocks()
    apply(copy, *first)
    failed = run_tests(copy)
    (expected,) = re.findall(r"The test fails with `(.+)`", PAGE.read_text())
    assert 1 == failed.returncode, failed.stdout + failed.stderr
    assert expected in failed.stdout, failed.stdout

    for block in rest:
        apply(copy, *block)
    passed = run_tests(copy)
    assert 0 == passed.returncode, passed.stdout + passed.stderr
    assert "2 passed" in passed.stdout


def test_a_new_api_is_served_without_another_list(copy: Path) -> None:
    """Its key has one line, its messages and its handler one module each."""
    for block in blocks():
        apply(copy, *block)
    names = "kalda.protocol.registry as registry, kalda.broker.requests.handlers as handlers"
    script = (
        f"import {names}\n"
        "assert 20_002 in registry.declared_keys()\n"
        "assert [20_002] == [each.key for each in handlers.HANDLERS if each.key.name == 'DESCRIBE_CLOCK']\n"
        "assert 20_002 in [each.api_key for each in handlers.advertised_versions()]\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr
