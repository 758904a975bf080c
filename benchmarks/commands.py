"""Commands: the processor time of a small one, which is mostly that of its imports.

A command that an operator types is to take 0.3 s at most. `tests/integration/tools/test_start_up.py` guards
what the commands import; this benchmark shows what is left.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.end_to_end import Figure
from kalda import Admin, NewTopic
from kalda.testing import KaldaProcess

_COMMANDS: Final = (
    "--help",
    "topics --help",
    "topics list",
    "topics describe",
    "configs describe --broker 0 --all",
    "groups list",
    "offsets",
    "log-dirs describe",
    "reassign list",
    "transactions list",
    "cluster describe",
    "consume small",
    "produce small",
    "state pull state",
)
_RUNS: Final = 5


def run() -> list[Figure]:
    """Measure commands against one broker with one small topic."""
    with (
        tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory,
        KaldaProcess(Path(directory) / "data") as broker,
    ):
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topics([NewTopic("small", 1, 1)])
        environment = {**os.environ, "KALDA_BOOTSTRAP_SERVER": broker.bootstrap}
        # pip compiles what it installs.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return [
            (
                f"`kalda {words}`: processor time",
                _least_seconds([sys.executable, "-m", "kalda", *words.split()], environment, directory),
                "s",
            )
            for words in _COMMANDS
        ]


def _least_seconds(command: Sequence[str], environment: Mapping[str, str], directory: str) -> float:
    """Return the least processor time of some runs, behind one that writes the bytecode."""

    def seconds() -> float:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment, cwd=directory
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{command} ended with {process.returncode}")
        return usage.ru_utime + usage.ru_stime

    seconds()
    return min(seconds() for _ in range(_RUNS))
