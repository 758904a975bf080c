"""Runs the cluster of ``kalda testing``, for the tests of programs in any language.

The process ends with the one that started it. It reads stdin for operations (see `kalda.testing.control`)
where that is a pipe or a socket, and ends where it is closed; otherwise it watches its parent.
"""

import json
import os
import selectors
import signal
import stat
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from kalda.broker.process.secure import ADMINISTRATOR
from kalda.testing.cluster import Cluster
from kalda.testing.control import LINE_BYTES_MAX, Control
from kalda.testing.guarded_directory import GuardedDirectory
from kalda.testing.security import Security

_WATCH_SECONDS: Final = 0.5
"""How often the parent is looked for. A pipe as stdin is noticed at once."""

_READ_BYTES: Final = 1 << 16


def run_testing(
    brokers: int, settings: Mapping[str, str], security: Security | None, *, is_json: bool
) -> int:
    """Run a cluster until stdin is closed, the parent has ended or a signal comes; return the exit code.

    Raises:
        ConfigError: a setting is unknown or not allowed.
        ClusterError: the cluster does not start.
    """
    parent = os.getppid()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _wake_up)
    directory = GuardedDirectory("kalda-testing-")
    try:
        with (
            Cluster(
                brokers, settings=settings, security=security, directory=directory.path / "cluster"
            ) as cluster,
            # The one that reads stdout is gone, and with it the test.
            suppress(BrokenPipeError),
        ):
            print(ready_line(cluster, _users(security), is_json=is_json), flush=True)
            _serve(Control(cluster), reading, parent)
    finally:
        directory.close()
    return 0


def ready_line(cluster: Cluster, users: Iterable[str], *, is_json: bool) -> str:
    """Return what is printed when all brokers serve.

    With JSON it is ``{"bootstrap": …, "coordination": …, "pid": …}``; a secured cluster adds ``"users"``, by
    name the settings of the user's clients for Java and for librdkafka.
    """
    if not is_json:
        return f"kalda ready bootstrap={cluster.bootstrap} zookeeper={cluster.zookeeper}"
    line: dict[str, object] = {
        "bootstrap": cluster.bootstrap,
        "coordination": cluster.zookeeper,
        "pid": os.getpid(),
    }
    if cluster.secured is not None:
        line["users"] = {
            user: {
                "java": cluster.client_config(user, "java"),
                "librdkafka": cluster.client_config(user, "confluent-kafka"),
            }
            for user in users
        }
    return json.dumps(line)


def _users(security: Security | None) -> list[str]:
    return [] if security is None else [ADMINISTRATOR, *security.users]


def _wake_up(_number: int, _frame: object) -> None:
    """Let a signal write to the wake-up pipe instead of ending the process."""


def _serve(control: Control, signals: int, parent: int) -> None:
    """Answer the lines of stdin; return when there will be no more, or at a signal."""
    stdin = sys.stdin.fileno() if sys.stdin is not None and not sys.stdin.closed else -1
    lines = b""
    with selectors.DefaultSelector() as selector:
        selector.register(signals, selectors.EVENT_READ)
        if stdin >= 0 and _is_pipe(stdin):
            selector.register(stdin, selectors.EVENT_READ)
        # A parent that has ended leaves its children to another process.
        while os.getppid() == parent:
            ready = {key.fd for key, _ in selector.select(_WATCH_SECONDS)}
            if signals in ready:
                return
            if stdin not in ready:
                continue
            data = os.read(stdin, _READ_BYTES)
            if not data:
                return
            *whole, lines = (lines + data).split(b"\n")
            for line in whole:
                if line.strip():
                    print(control.answer(line), flush=True)
            if len(lines) > LINE_BYTES_MAX:
                print(json.dumps({"error": f"a line is longer than {LINE_BYTES_MAX} bytes"}), flush=True)
                return


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
