"""No test leaves threads or open sockets behind.

A client that lives on draws random numbers, connects to brokers that are gone and is found by the garbage
collector while some other test runs, which then fails for it. So whoever leaves something is failed itself.
Brokers that many tests share run in processes of their own, or every such test would seem to leave theirs.
"""

import gc
import os
import threading
import time
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import psutil

SECONDS_MAX = 10.0
"""How long what is about to end may take: threads of a client that was closed, on a loaded machine."""
STARTING_SECONDS = 0.001
"""Between two looks at a thread that is being started."""


@dataclass(frozen=True)
class Belongings:
    """What a test may find and must not add to."""

    threads: frozenset[threading.Thread]
    sockets: frozenset[str]

    @classmethod
    def now(cls) -> "Belongings":
        """Take note of what there is."""
        return cls(frozenset(threading.enumerate()), frozenset(open_sockets()))

    def added(self) -> list[str]:
        """Name what has come since and stays."""
        return [*threads_left(self.threads), *sockets_left(self.sockets)]


def threads_left(before: Set[threading.Thread]) -> list[str]:
    """Wait for the end of threads that are new; name those that go on."""
    deadline = time.monotonic() + SECONDS_MAX
    # A thread that ends may have started another.
    while new := {each for each in enumerate_threads() if each not in before and not is_foreign(each)}:
        for thread in new:
            if not thread.is_alive():
                # Listed, but about to begin, or over; a join would fail, and nothing tells when that changes.
                time.sleep(STARTING_SECONDS)
                continue
            thread.join(max(0.0, deadline - time.monotonic()))
        if time.monotonic() >= deadline:
            return [f"thread {each.name}" for each in new if each.is_alive()]
    return []


def enumerate_threads() -> list[threading.Thread]:
    """List the threads that live or are being started."""
    return threading.enumerate()


def is_foreign(thread: threading.Thread) -> bool:
    """Whether a C library runs the thread; Python cannot tell whether it has ended."""
    return isinstance(thread, threading._DummyThread)


def sockets_left(before: Set[str]) -> list[str]:
    """Name the sockets that are new, after a collection: what that closes warns of itself, in this test."""
    if open_sockets().keys() <= before:
        return []
    gc.collect()
    new = {number for inode, number in open_sockets().items() if inode not in before}
    if not new:
        return []
    known = {each.fd: each for each in psutil.Process().net_connections("all")}
    return [describe(number, known.get(number)) for number in sorted(new)]


def describe(number: int, connection: Any) -> str:
    """Say what kind of socket a descriptor is."""
    if connection is None:
        return f"socket {number}"
    return f"socket {number} ({connection.status}) from {connection.laddr} to {connection.raddr}"


def open_sockets() -> dict[str, int]:
    """The process's sockets: what the system calls each, and its descriptor."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            # The directory's own, or closed meanwhile by a thread.
            continue
        if target.startswith("socket:"):
            found[target] = int(name)
    return found
