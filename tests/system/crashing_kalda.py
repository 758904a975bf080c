"""Runs `kalda` and kills it at a named point of a write of a coordinator: ``kill -9``, from within.

    python crashing_kalda.py POINT TRIGGER kalda-arguments...

Nothing happens until the file TRIGGER exists; then the next write that comes to the point is the last thing
that the process does, and TRIGGER is gone, so that the process may be started again.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kalda.broker.internal_topics.replica_log import ReplicaLog
from kalda.cli import main
from kalda.coordinator.runtime.commit_queue import CommitQueue

POINTS = ("before-append", "after-append", "before-answer")


def arm(point: str, trigger: Path) -> None:
    """Put the fault in."""

    def die_if_triggered() -> None:
        if trigger.exists():
            trigger.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

    if point == "before-append":
        _before(ReplicaLog, "append", die_if_triggered)
    elif point == "after-append":
        _after(ReplicaLog, "append", die_if_triggered)
    else:
        assert "before-answer" == point, f"{point} is none of {POINTS}"
        _before_answers(die_if_triggered)


def _before(owner: type, name: str, die: Callable[[], None]) -> None:
    original = getattr(owner, name)

    def dying(*arguments: Any, **keywords: Any) -> Any:
        die()
        return original(*arguments, **keywords)

    setattr(owner, name, dying)


def _after(owner: type, name: str, die: Callable[[], None]) -> None:
    original = getattr(owner, name)

    def dying(*arguments: Any, **keywords: Any) -> Any:
        result = original(*arguments, **keywords)
        die()
        return result

    setattr(owner, name, dying)


def _before_answers(die: Callable[[], None]) -> None:
    """The high watermark has passed the write, and its answer is about to be given."""
    original = CommitQueue.add

    def add(queue: CommitQueue, end: int, timeout_ms: int, pending: Any, give: Callable[[], None]) -> None:
        def dying() -> None:
            die()
            give()

        original(queue, end, timeout_ms, pending, dying)

    setattr(CommitQueue, "add", add)  # noqa: B010 - a plain assignment would be an error of types


if __name__ == "__main__":
    arm(sys.argv[1], Path(sys.argv[2]))
    sys.argv[1:] = sys.argv[3:]
    main()
