"""A cluster that does a little of everything, so that each of its metrics has something to show.

Two groups: one commits half of what there is, so that it lags, and one is up to date and has a member. Its
clients run in a process of their own, since they open connections when they like, for as long as they live.
"""

import contextlib
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kalda.testing import KaldaProcess
from kalda.testing.ports import free_ports_in_a_row
from tests import forked_commands, observed_clients

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Sample:
    """One line of a scrape."""

    name: str
    labels: dict[str, str] = field(compare=False)
    value: float


@dataclass
class ObservedCluster:
    """Running brokers, and where their metrics are."""

    bootstrap: str
    metrics_ports: list[int]
    clients: subprocess.Popen[str]

    def scrape(self, broker: int = 0) -> str:
        """Return the metrics of one broker as text."""
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.metrics_ports[broker]}/metrics", timeout=10
        ) as answer:
            return str(answer.read().decode())

    def samples(self) -> list[Sample]:
        """Return the samples of all brokers."""
        return [sample for number in range(len(self.metrics_ports)) for sample in parse(self.scrape(number))]

    def work(self) -> None:
        """Produce, fetch and commit some more."""
        assert self.clients.stdin is not None, "the process was started with pipes"
        self.clients.stdin.write("work\n")
        self.clients.stdin.flush()
        self.wait_for_clients()

    def wait_for_clients(self) -> None:
        """Return when the clients have done what they were asked; fail when they have ended."""
        assert self.clients.stdout is not None, "the process was started with pipes"
        line = self.clients.stdout.readline()
        assert observed_clients.DONE == line, f"the clients ended: {self.clients.wait()}"


def parse(text: str) -> list[Sample]:
    """Read the samples of a scrape."""
    samples = []
    for line in text.splitlines():
        if not line.startswith("#"):
            match = _SAMPLE.match(line)
            assert match is not None, line
            labels = dict(_LABEL.findall(match[2] or ""))
            samples.append(Sample(match[1], labels, float(match[3])))
    return samples


@contextlib.contextmanager
def observed_cluster(directory: Path, brokers: int = 3) -> Iterator[ObservedCluster]:
    """Start brokers, feed them, and have a consumer that stays in its group."""
    first_port = free_ports_in_a_row(brokers)
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,NATS://127.0.0.1:0",
        "kalda.nats.subjects": "observed:observed",
        "kalda.nats.jetstream.enable": "true",
        "metrics.port": str(first_port),
        "group.initial.rebalance.delay.ms": "0",
        "default.replication.factor": str(brokers),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "6",
        "share.coordinator.state.topic.num.partitions": "3",
        "share.coordinator.state.topic.replication.factor": "1",
    }
    with KaldaProcess(directory, settings=settings, brokers=brokers, start_timeout_seconds=120) as process:
        command = [sys.executable, "-m", observed_clients.__name__, process.bootstrap, str(brokers)]
        # The clients end when their standard input does.
        with forked_commands.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as clients:
            ports = [first_port + each for each in range(brokers)]
            cluster = ObservedCluster(process.bootstrap, ports, clients)
            cluster.wait_for_clients()
            yield cluster
