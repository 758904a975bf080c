"""Runs `kalda` as a process, with the address of a cluster."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import forked_commands

KALDA = forked_commands.KALDA


@dataclass(frozen=True, slots=True)
class Done:
    """What a process left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def rows(self) -> list[list[str]]:
        """The words of each line behind the heading."""
        return [line.split() for line in self.stdout.splitlines()[1:]]

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.stdout)


class Commands:
    """`kalda` with the address of a cluster."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, *arguments: str | int | Path, stdin: str | None = None) -> Done:
        """Run a command to its end, whatever its exit code."""
        environment = {**os.environ, "KALDA_BOOTSTRAP_SERVER": self.bootstrap}
        done = forked_commands.run(
            [*KALDA, *map(str, arguments)],
            env=environment,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def __call__(self, *arguments: str | int | Path, stdin: str | None = None) -> Done:
        """Run a command that must succeed."""
        done = self.run(*arguments, stdin=stdin)
        assert 0 == done.code, (arguments, done)
        return done

    def json(self, *arguments: str | int | Path) -> Any:
        """Run a command that must succeed with `--json`, and return its document."""
        return self(*arguments, "--json").json

    def refused(self, *arguments: str | int | Path) -> Done:
        """Run a command that must fail."""
        done = self.run(*arguments)
        assert done.code != 0, (arguments, done)
        return done
