"""Finds the threads and sockets that a test leaves behind.

A client that a test does not close draws random numbers, connects to brokers that no longer run, and is
collected during another test, which then fails. So the test that leaves something behind fails itself.
Brokers that several tests share run in processes of their own, or each of these tests could fail.
"""

import contextlib
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Any

import psutil

SHARED_SOCKETS: list[Callable[[], Iterable[int]]] = []
"""Each returns the descriptors of something in this process that tests share, such as a proxy in front of a
broker: connections come and go there whatever the test does."""

SHARED_THREADS = ("log-background", "kalda-log", "conversion-", "kalda-namespaces", "asyncio_")
"""Prefixes of the names of threads that a broker or client in this process starts when it needs them, for any
test. Those of asyncio end with their loop; a loop that is left behind has sockets."""

GRPC_THREAD = "(_poll_wrapper)"
"""The end of the name of gRPC's thread: one for all channels, until none is left."""

SECONDS_MAX = 60.0
"""How long the threads of a closed client may take to end on a loaded machine."""
STARTING_SECONDS = 0.001
"""The pause between two checks of a thread that is being started."""
ACCEPTING_SECONDS = 0.05
"""The pause between two checks of a connection that is being accepted."""


@dataclass(frozen=True)
class Belongings:
    """The threads and sockets of the process at one moment."""

    threads: frozenset[threading.Thread]
    sockets: frozenset[str]

    @classmethod
    def now(cls) -> "Belongings":
        """Return those of now."""
        return cls(frozenset(threading.enumerate()), frozenset(open_sockets()))

    def added(self) -> list[str]:
        """Return descriptions of those that are new and do not go away."""
        return [*threads_left(self.threads), *sockets_left(self.sockets)]


def threads_left(before: Set[threading.Thread]) -> list[str]:
    """Wait for new threads to end; return descriptions of those that do not."""
    deadline = time.monotonic() + SECONDS_MAX
    # A thread that ends may have started another.
    while new := {each for each in enumerate_threads() if each not in before and not is_shared(each)}:
        for thread in new:
            if not thread.is_alive():
                # Listed, but about to begin, or over; a join would fail, so look again.
                time.sleep(STARTING_SECONDS)
                continue
            thread.join(max(0.0, deadline - time.monotonic()))
        if time.monotonic() >= deadline:
            return [f"thread {each.name}" for each in new if each.is_alive()]
    return []


def enumerate_threads() -> list[threading.Thread]:
    """List the threads that live or are being started."""
    return threading.enumerate()


def is_shared(thread: threading.Thread) -> bool:
    """Return whether the thread is of no test: a C library or a broker of several tests runs it."""
    # Python does not see the end of a C library's thread.
    is_of_grpc = thread.name.endswith(GRPC_THREAD)
    return is_of_grpc or isinstance(thread, threading._DummyThread) or thread.name.startswith(SHARED_THREADS)


def sockets_left(before: Set[str]) -> list[str]:
    """Return descriptions of the new sockets that a garbage collection does not close."""
    if open_sockets().keys() <= before:
        return []
    gc.collect()
    # gRPC's thread ends, and closes its sockets, behind the collection of the last channel.
    for thread in enumerate_threads():
        if thread.name.endswith(GRPC_THREAD):
            thread.join(SECONDS_MAX)
    # A proxy of several tests may just pass on a new connection: its sockets are shared a moment later.
    deadline = time.monotonic() + SECONDS_MAX
    while new := {number for inode, number in open_sockets().items() if inode not in before}:
        if time.monotonic() >= deadline:
            break
        time.sleep(ACCEPTING_SECONDS)
    if not new:
        return []
    # A socket that the kernel does not list is neither connected nor bound. librdkafka keeps such a one
    # between two attempts to reach a broker that is gone, as long as anything refers to a test's client.
    known = {each.fd: each for each in psutil.Process().net_connections("all")}
    jvm = jvm_address()
    left = [number for number in sorted(new) if number in known and known[number].raddr != jvm]
    return [describe(number, known[number]) for number in left]


def jvm_address() -> tuple[str, int] | None:
    """Return where the JVM of this process's Spark listens, if it has one.

    Objects of Spark that are collected during any later test open connections to it.
    """
    pyspark = sys.modules.get("pyspark")
    gateway = None if pyspark is None else pyspark.SparkContext._gateway
    return None if gateway is None else (gateway.gateway_parameters.address, gateway.gateway_parameters.port)


def describe(number: int, connection: Any) -> str:
    """Describe a socket."""
    return (
        f"socket {number} ({connection.status}) from {connection.laddr} to {connection.raddr}, "
        f"which belongs to {owner(connection.raddr)}"
    )


def owner(address: Any) -> str:
    """Return the command of the process on this machine that has a socket with the address."""
    with contextlib.suppress(psutil.Error):
        for each in psutil.net_connections("tcp"):
            if each.laddr == address and each.pid is not None:
                return " ".join(psutil.Process(each.pid).cmdline())[-200:]
    return "no process that is visible"


def open_sockets() -> dict[str, int]:
    """Return the process's own sockets: the kernel's name of each, with its descriptor."""
    shared = {number for numbers in SHARED_SOCKETS for number in numbers()}
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            # The directory's own, or closed meanwhile by a thread.
            continue
        if target.startswith("socket:") and int(name) not in shared:
            found[target] = int(name)
    return found
