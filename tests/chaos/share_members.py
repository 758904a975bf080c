"""The members of the share group of `share_rounds`: a process of each client, and what its output says."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.apache_kafka import NotAvailableError
from tests.chaos.copier_clients import KALDA, LIBRDKAFKA
from tests.chaos.share_worker import ACCEPT
from tests.compat.go_toolchain import go_programs
from tests.compat.java_releases import JavaRelease
from tests.compat.newest_kafka import NEWEST

FRANZ_GO: Final = "franz-go"
CONSOLE: Final = "kafka-console-share-consumer"
VERIFIABLE: Final = "kafka-verifiable-share-consumer"
CLIENTS: Final = (KALDA, LIBRDKAFKA, FRANZ_GO, CONSOLE, VERIFIABLE)
_CONSOLE_LINE: Final = re.compile(r"Partition:(\d+)\tOffset:(\d+)\tDelivery:(\d+)\t\d+")

Place = tuple[int, int]
"""A partition and an offset."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery that a member has noted."""

    client: str
    place: Place
    count: int | None
    """The delivery count, where the client says it."""
    outcome: str
    time_ms: int | None


def parse_worker(client: str, line: str) -> Delivery | None:
    """Return the delivery in a line of `share_worker` or of the program on franz-go."""
    words = line.split()
    if len(words) != 5:
        return None
    return Delivery(client, (int(words[0]), int(words[1])), int(words[2]), words[3], int(words[4]))


def parse_console(client: str, line: str) -> Delivery | None:
    """Return the delivery in a line of the console share consumer.

    >>> parse_console("console", "Partition:1\\tOffset:30\\tDelivery:2\\t7").place
    (1, 30)
    """
    found = _CONSOLE_LINE.fullmatch(line)
    if found is None:
        return None
    partition, offset, count = map(int, found.groups())
    return Delivery(client, (partition, offset), count, ACCEPT, None)


def parse_verifiable(client: str, line: str) -> Delivery | None:
    """Return the delivery in a line of the verifiable share consumer."""
    with contextlib.suppress(ValueError):
        event = json.loads(line)
        if event.get("name") == "record_data":
            return Delivery(client, (event["partition"], event["offset"]), None, ACCEPT, None)
    return None


_PARSERS: Final[dict[str, Callable[[str, str], Delivery | None]]] = {
    CONSOLE: parse_console,
    VERIFIABLE: parse_verifiable,
}


class Members:
    """Processes that share a topic, one of each client that this machine has."""

    def __init__(self, bootstrap: str, topic: str, group: str, directory: Path) -> None:
        self._directory: Final = directory
        directory.mkdir()
        self._commands: Final = _commands(bootstrap, topic, group)
        self._processes: Final[dict[str, subprocess.Popen[bytes]]] = {}
        self._outputs: Final[dict[Path, tuple[str, int]]] = {}
        """By file, the client and the bytes that were read."""
        self.deliveries: Final[list[Delivery]] = []
        self.restarts = 0
        """How often a member ended by itself and was started again."""

    @property
    def clients(self) -> list[str]:
        """The clients that take part."""
        return list(self._commands)

    def start(self, client: str) -> None:
        """Start the member of a client."""
        path = self._directory / f"{client}-{len(self._outputs)}.out"
        self._outputs[path] = client, 0
        with path.open("wb") as output, (self._directory / f"{client}.err").open("ab") as errors:
            self._processes[client] = subprocess.Popen(
                self._commands[client],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    def kill(self, client: str) -> None:
        """Kill the member of a client, and start another."""
        self._end(self._processes[client])
        self.start(client)

    def read(self) -> None:
        """Read what members have noted since the last call; start those again that have ended."""
        for path, (client, position) in list(self._outputs.items()):
            with path.open("rb") as file:
                file.seek(position)
                whole, newline, _ = file.read().rpartition(b"\n")
            self._outputs[path] = client, position + len(whole) + len(newline)
            parse = _PARSERS.get(client, parse_worker)
            found = (parse(client, line) for line in whole.decode(errors="replace").splitlines())
            self.deliveries.extend(each for each in found if each is not None)
        for client, process in list(self._processes.items()):
            if process.poll() is not None:
                print(f"{client} has ended with {process.returncode}; it is started again", flush=True)
                self.restarts += 1
                self.start(client)

    def close(self) -> None:
        """Kill all."""
        for process in self._processes.values():
            self._end(process)

    @staticmethod
    def _end(process: "subprocess.Popen[bytes]") -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _commands(bootstrap: str, topic: str, group: str) -> dict[str, list[str]]:
    """Return the command of each client; say which are missing."""
    common = ["--bootstrap", bootstrap, "--topic", topic, "--group", group]
    worker = [sys.executable, "-m", "tests.chaos.share_worker", *common, "--client"]
    found = {KALDA: [*worker, KALDA], LIBRDKAFKA: [*worker, LIBRDKAFKA]}
    try:
        found[FRANZ_GO] = [str(go_programs() / "sharer"), *common]
    except NotAvailableError as error:
        print(f"without {FRANZ_GO}: {error}", flush=True)
    try:
        release = JavaRelease(NEWEST)
    except NotAvailableError as error:
        print(f"without {CONSOLE} and {VERIFIABLE}: {error}", flush=True)
        return found
    shown = ("print.partition", "print.offset", "print.delivery")
    servers = ("--bootstrap-server", bootstrap, "--topic", topic)
    found[CONSOLE] = release.command(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        *servers,
        *("--group", group),
        *(word for each in shown for word in ("--formatter-property", f"{each}=true")),
    )
    found[VERIFIABLE] = release.command(
        "org.apache.kafka.tools.VerifiableShareConsumer",
        *servers,
        *("--group-id", group, "--verbose", "--acknowledgement-mode", "sync"),
    )
    return found
