"""Records what happens in a simulation, for its trace and its checks: `History`."""

import hashlib
from dataclasses import dataclass
from typing import Final

from kalda.simulation.scheduler import Scheduler


class History:
    """The lines of the trace, and the violations that were found.

    The trace has what a reader wants to know: faults, starts and ends, changes of leaders, what clients were
    answered. Everything that a network delivers is in `digest` as well, so that two runs with the same digest
    did the same.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler: Final = scheduler
        self.lines: Final[list[str]] = []
        self.violations: Final[list[str]] = []
        self._seen: Final[set[str]] = set()
        self._digest: Final = hashlib.sha256()
        self._delivered: Final[list[object]] = []
        """What was delivered since the digest was updated, which costs more than the rest of a delivery."""

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self._scheduler.now

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        line = f"{self._scheduler.now:11.6f} {text}"
        self.lines.append(line)
        self._digest.update(f"{self._delivered}{line}".encode())
        self._delivered.clear()

    def delivered(self, link: tuple[str, str], size: int) -> None:
        """Count something that a network delivered in the digest."""
        self._delivered.extend((self._scheduler.now, link, size))

    def violate(self, rule: str, text: str) -> None:
        """Note that a rule does not hold, once for each rule and text."""
        message = f"{rule}: {text}"
        if message not in self._seen:
            self._seen.add(message)
            self.violations.append(message)
            self.note(f"VIOLATION {message}")

    @property
    def digest(self) -> str:
        """A hash of everything so far."""
        digest = self._digest.copy()
        digest.update(f"{self._delivered}".encode())
        return digest.hexdigest()[:16]


@dataclass(slots=True)
class SentRecord:
    """A record that a producer sent; `value` is in one record only."""

    topic: str
    partition: int
    value: bytes
    offset: int | None = None
    """Where it is; None as long as it is not acknowledged."""
    error: str | None = None
    """Why it was given up; it may be in the log nevertheless, once."""
