"""Runs the examples of the help screens with the addresses of a test's servers."""

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kalda.command.examples import EXAMPLES
from tests import forked_commands
from tests.integration.tools.commands import KALDA


def words_of(line: str) -> tuple[list[str], str | None, str | None]:
    """Return the words of an example behind ``kalda``, its input and the file of its output."""
    before, _, command = line.rpartition(" | ")
    command, _, output = command.partition(" > ")
    words = shlex.split(command)
    assert "kalda" == words[0], line
    return words[1:], f"{shlex.split(before)[1]}\n" if before else None, output or None


def examples_of(*commands: str) -> list[str]:
    """Return the lines of the commands that begin with a word of `commands`, in their order."""
    return [line for path, lines in EXAMPLES.items() if path.split()[0] in commands for line in lines]


def with_addresses(line: str, addresses: Mapping[str, str]) -> str:
    """Return a line in which each key of `addresses` is replaced."""
    for printed, actual in addresses.items():
        line = line.replace(printed, actual)
    return line


def run_line(
    line: str, directory: Path, environment: Mapping[str, str], more: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a line in a directory; a file after ``>`` gets its output."""
    words, given, output = words_of(line)
    done = forked_commands.run(
        [*KALDA, *words, *more],
        cwd=directory,
        env={**os.environ, **environment},
        input=given or "",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if output is not None:
        (directory / output).write_text(done.stdout)
    return done
