"""mypy and pyright, both strict, find users' programs clean, and the mistakes in wrong ones."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.typing.programs import RIGHT, WRONG

REPOSITORY = Path(__file__).parents[2]
Checker = Callable[[Path], Iterator[tuple[str, str]]]
PYRIGHT = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "reportUnusedCallResult": "none"}
"""basedpyright has rules of its own, which are no part of pyright's strict mode; `strict` leaves them out."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a file for each program."""
    directory = tmp_path_factory.mktemp("programs")
    for kind, programs in (("right", RIGHT), ("wrong", WRONG)):
        for name, text in programs.items():
            source = f'"""A program."""\n\nimport kalda\n\n{textwrap.dedent(text).strip()}\n'
            (directory / f"{kind}_{name}.py").write_text(source)
    (directory / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    return directory


def mypy_errors(directory: Path) -> Iterator[tuple[str, str]]:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-error-summary", "."]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    for line in done.stdout.splitlines():
        if ": error:" in line:
            yield line.partition(".py:")[0], line


def pyright_errors(directory: Path) -> Iterator[tuple[str, str]]:
    pytest.importorskip("basedpyright")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            yield Path(each["file"]).stem, f"{each['file']}: {each['message']}"


@pytest.mark.parametrize("checker", [mypy_errors, pyright_errors], ids=["mypy", "pyright"])
def test_right_programs_are_clean_and_wrong_ones_are_not(checker: Checker, directory: Path) -> None:
    found = list(checker(directory))

    assert [] == [text for name, text in found if name.startswith("right_")]
    assert set() == {f"wrong_{name}" for name in WRONG} - {name for name, _ in found}
