"""Groups of member processes, as tests see them."""

import json
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests import forked_commands

SCRIPT = Path(__file__).with_name("member_process.py")
SESSION_MS = 2000
"""Of members that die; the session of others is so long that a busy machine does not end it."""
PATIENT_SESSION_MS = 30_000
WAIT_SECONDS = 60.0
"""Until something is taken for not happening; loaded machines are slow."""


def wait_until(condition: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> float:
    """Wait for a condition; return how long it took."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > seconds:
            raise AssertionError(f"{what}: not so after {seconds} s")
        time.sleep(0.02)
    return time.monotonic() - begin


class Member:
    """One process; what it told so far."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.assigned: list[int] | None = None
        self.history: list[list[int]] = []
        self.records: list[tuple[int, int, str]] = []
        self.refused: list[str] = []
        self._process = forked_commands.Popen(
            [*options.get("command", [sys.executable, str(SCRIPT)]), json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            facts = json.loads(line)
            if "assigned" in facts:
                self.assigned = facts["assigned"]
                self.history.append(facts["assigned"])
            self.records.extend(
                (partition, offset, value) for partition, offset, value in facts.get("records", ())
            )
            if "refused" in facts:
                self.refused.append(facts["refused"])

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def leave(self) -> None:
        """Leave the group in order."""
        self._end(signal.SIGTERM)
        assert 0 == self._process.returncode, "".join(self._errors)

    def crash(self) -> None:
        """Die without a word."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop running, until `resume`."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Run again."""
        self._process.send_signal(signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        if self.is_alive:
            self._process.send_signal(number)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for reader in self._readers:
            reader.join(60)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()


class Group:
    """Members that read one topic together; on the way out all crash."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, **options: Any) -> None:
        self.name = f"group-{uuid.uuid4().hex[:10]}"
        self.partitions = partitions
        self._options = {
            "bootstrap": bootstrap,
            "group": self.name,
            "topic": topic,
            "session_ms": PATIENT_SESSION_MS,
        } | options
        self.members: list[Member] = []
        """Those that are in the group."""
        self._all: list[Member] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for member in self._all:
            member.crash()

    def join(self, count: int = 1, **options: Any) -> list[Member]:
        """Start more members."""
        new = [Member(self._options | options) for _ in range(count)]
        self.members.extend(new)
        self._all.extend(new)
        return new

    def take_out(self, member: Member) -> None:
        """Count a member as none any more."""
        self.members.remove(member)

    def wait_balanced(self, seconds: float = WAIT_SECONDS) -> float:
        """Wait until every partition has one member and no member has two more than another."""

        def is_balanced() -> bool:
            assert all(member.is_alive for member in self.members), "a member ended by itself"
            parts = [member.assigned for member in self.members if member.assigned is not None]
            if len(parts) < len(self.members):
                return False
            sizes = [len(part) for part in parts]
            everything = sorted(partition for part in parts for partition in part)
            return everything == list(range(self.partitions)) and max(sizes) - min(sizes) <= 1

        try:
            return wait_until(is_balanced, "balanced", seconds)
        except AssertionError as error:
            parts = [member.history[-4:] for member in self.members]
            raise AssertionError(f"{error}; partitions per member: {parts}") from None

    def values(self) -> Counter[str]:
        """How often each value was processed and committed, whoever did it."""
        return Counter(value for member in self._all for _, _, value in member.records)

    def wait_values(self, expected: Iterable[str]) -> None:
        """Wait until every value was processed."""
        wanted = set(expected)
        wait_until(lambda: wanted <= self.values().keys(), f"{len(wanted)} values processed")
