"""Numbers that sending programs and tasks of `task_rounds` leave in files, which outlive a kill."""

import os
import random
import sys
import time
from pathlib import Path
from typing import Final

DIRECTORY_VARIABLE: Final = "TASK_NOTES"
BOOTSTRAP_VARIABLE: Final = "TASK_BOOTSTRAP"
SENT: Final = "sent"
DONE: Final = "done"
QUEUE: Final = "chaos-tasks"
TOPICS_REPLICATION: Final = "TASK_REPLICATION"


def note(kind: str, number: int) -> None:
    """Append a number to this process's file of a kind, in one write."""
    with Path(os.environ[DIRECTORY_VARIABLE], f"{kind}-{os.getpid()}").open("ab", buffering=0) as file:
        file.write(b"%d\n" % number)


def work_seconds() -> float:
    """Return how long a task takes: some are under way at each kill."""
    return random.SystemRandom().uniform(0.0, 0.1)


def pause_seconds() -> float:
    """Return how long the sending program waits between two tasks: less than its workers can do."""
    return 0.02


def log(text: str) -> None:
    """Write a line to stderr, which the run keeps."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Notes:
    """Reads what processes note, again and again."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory
        self._positions: Final[dict[Path, int]] = {}
        self.sent: Final[set[int]] = set()
        self.done: Final[dict[int, int]] = {}
        """How often each number was worked on."""

    def read(self) -> None:
        """Read what was added since the last call."""
        for path in self._directory.iterdir():
            with path.open("rb") as file:
                file.seek(self._positions.get(path, 0))
                whole, _, _ = file.read().rpartition(b"\n")
            if not whole:
                continue
            self._positions[path] = self._positions.get(path, 0) + len(whole) + 1
            for number in map(int, whole.split()):
                if path.name.startswith(SENT):
                    self.sent.add(number)
                else:
                    self.done[number] = self.done.get(number, 0) + 1
