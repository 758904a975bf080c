"""zsh and fish complete with the scripts of `kalda completion`; skipped where a shell is not installed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.tools.commands import Commands

_ZSH_DRIVER = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PROMPT=; autoload -Uz compinit; compinit -u -D; source <(kalda completion zsh)'
# What compadd would add goes to a file, in place of the screen.
zpty -w shell 'compadd () { builtin compadd -O matches "$@"; print -rl -- $matches >> $FOUND; false }'
zpty -w shell 'done-with-it () { zle complete-word; print END >> $FOUND }; zle -N done-with-it'
zpty -w shell 'bindkey "^I" done-with-it; print REA""DY'
zpty -r -m shell output '*READY*'
zpty -w -n shell "$LINE"$'\t'
# The script calls kalda while the line is edited; the caller's time limit bounds the wait.
until grep -q END $FOUND; do zselect -t 5; done
zpty -d shell
"""


@pytest.fixture
def environment(kalda: Commands, tmp_path: Path) -> dict[str, str]:
    """A PATH with `kalda`, and the address of the broker."""
    kalda("topics", "create", "flights", "flowers", "trains", "--if-not-exists")
    program = tmp_path / "kalda"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{_PROGRAM}" "$@"\n')
    program.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "KALDA_BOOTSTRAP_SERVER": kalda.bootstrap,
    }


_PROGRAM = "import sys; from kalda.cli import main; sys.argv[0] = 'kalda'; main()"
"""The program's name decides the name of the variable."""


def in_zsh(line: str, environment: dict[str, str], tmp_path: Path) -> list[str]:
    """What zsh offers at the end of a line."""
    found = tmp_path / "found"
    found.touch()
    run(
        ["zsh", "-f", "-c", f"zmodload zsh/zselect\n{_ZSH_DRIVER}"],
        {**environment, "LINE": line, "FOUND": str(found)},
    )
    return sorted({each for each in found.read_text().split("\n") if each} - {"END"})


def in_fish(line: str, environment: dict[str, str], tmp_path: Path) -> list[str]:
    """What fish offers at the end of a line, without descriptions."""
    return [each.partition("\t")[0] for each in fish_lines(line, environment)]


def fish_lines(line: str, environment: dict[str, str]) -> list[str]:
    script = "source (kalda completion fish | psub); complete -C $LINE"
    return run(["fish", "--no-config", "-c", script], {**environment, "LINE": line}).splitlines()


def run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "" == done.stderr
    return done.stdout


Complete = Callable[[str, dict[str, str], Path], list[str]]

SHELLS = [
    pytest.param(
        complete,
        id=shell,
        marks=pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed"),
    )
    for shell, complete in (("zsh", in_zsh), ("fish", in_fish))
]


@pytest.mark.parametrize("complete", SHELLS)
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kalda top", ["topics"]),
        ("kalda topics de", ["delete", "describe"]),
        ("kalda topics describe fl", ["flights", "flowers"]),
        ("kalda topics describe --topic fl", ["flights", "flowers"]),
        ("kalda consume --isolation-level ", ["read_committed", "read_uncommitted"]),
        ("kalda topics create --par", ["--partitions"]),
    ],
)
def test_words_and_names_of_topics_complete(
    complete: Complete, line: str, expected: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    assert expected == complete(line, environment, tmp_path)


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_behind_an_equals_sign_and_shows_descriptions(environment: dict[str, str]) -> None:
    """fish takes `--topic=fl` as one word, and a description may have commas."""
    assert ["--topic=flights", "--topic=flowers"] == fish_lines(
        "kalda topics describe --topic=fl", environment
    )
    assert ["topics\tCreate, list, describe, alter and delete..."] == fish_lines("kalda top", environment)
