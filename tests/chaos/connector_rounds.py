"""Kills brokers and old consumers again and again while they read, and looks for every record.

Run ``python -m tests.chaos.connector_rounds --rounds 50``. A group of `ConsumerConnector`s, two processes and
one in this process, each with two streams, reads numbers that are written meanwhile. Each round kills with
``kill -9`` a broker, the coordination server or a consumer, stops a consumer for longer than its session, or
has one leave and come back in order.
With ``--storage migrate`` each round is a step of the migration of offsets instead, from ZooKeeper to Kafka
and back: the consumers are restarted one by one with the settings of the step.

Every acknowledged record is read at least once. Committed offsets never decrease. A partition has one reader
at a time: readers do not alternate but for the changes of the round. After an orderly end nothing comes
again.
"""

import argparse
import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kalda import Admin, NewTopic, Producer
from kalda.clients.errors import ClientError
from kalda.testing import ProcessCluster
from tests.chaos.command_line import application_parser
from tests.chaos.connector_reader import SESSION_TIMEOUT_MS, ConnectorReader, settings
from tests.zookeeper_offsets import ZooKeeperOffsets

PARTITIONS: Final = 8
TOPIC: Final = "numbers"
GROUP: Final = "old"
STREAMS: Final = 2
CLUSTER: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "4",
}
DAMAGES: Final = (
    "broker",
    "consumer",
    "consumer leaves",
    "coordination server",
    "own consumer leaves",
    "consumer pauses",
)
MIGRATION: Final = (("zookeeper", False), ("kafka", True), ("kafka", False), ("zookeeper", True))
"""The settings of each step, in a circle: storage, and whether commits are dual."""
ROUND_TIMEOUT_S: Final = 90.0
ALTERNATIONS_MAX: Final = 8
"""Changes of a partition's reader in one round: a consumer goes and comes, and others wait for claims."""


class Readings:
    """What the files of all readers say."""

    def __init__(self, directory: Path, count: int) -> None:
        self._directory: Final = directory
        self._read_to: Final[dict[Path, int]] = {}
        self.found: Final = bytearray(count)
        self.arrived = 0
        self.lines = 0
        self._recent: list[tuple[float, int, Path]] = []

    def look(self) -> int:
        """Read on in all files; return how many different numbers came."""
        for path in self._directory.glob("reader-*"):
            with path.open("rb") as file:
                file.seek(self._read_to.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read_to[path] = self._read_to.get(path, 0) + len(whole)
            for line in whole.splitlines():
                partition, _, value, when = line.split()
                number = int(value)
                self.lines += 1
                self.arrived += not self.found[number]
                self.found[number] = 1
                self._recent.append((float(when), int(partition), path))
        return self.arrived

    def alternations(self) -> int:
        """Return how often the reader of one partition changed at most since the last call."""
        changes: Counter[int] = Counter()
        last: dict[int, Path] = {}
        for _, partition, path in sorted(self._recent):
            changes[partition] += last.get(partition, path) != path
            last[partition] = path
        self._recent = []
        return max(changes.values(), default=0)


class CommittedOffsets:
    """Watches that no committed offset decreases, in either storage."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self._cluster: Final = cluster
        self._highest: Final[dict[tuple[str, int], int]] = {}
        self.faults: Final[list[str]] = []
        self._is_over: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the watch."""
        self._is_over.set()
        self._thread.join(30)

    def _watch(self) -> None:
        zookeeper = ZooKeeperOffsets(self._cluster.zookeeper, GROUP, TOPIC)
        try:
            while not self._is_over.wait(0.1):
                for partition, offset in zookeeper.read().items():
                    self._note("ZooKeeper", partition, offset)
                with (
                    contextlib.suppress(ClientError),
                    Admin(bootstrap_servers=self._cluster.bootstrap) as admin,
                ):
                    found = admin.list_consumer_group_offsets([GROUP])[GROUP]
                    for each, committed in found.items():
                        if committed is not None:
                            self._note("Kafka", each.partition, committed.offset)
        finally:
            zookeeper.close()

    def _note(self, storage: str, partition: int, offset: int) -> None:
        before = self._highest.get((storage, partition), 0)
        if offset < before:
            self.faults.append(
                f"the offset of partition {partition} in {storage} went from {before} to {offset}"
            )
        self._highest[storage, partition] = max(offset, before)


class Readers:
    """The consumers: processes, and one in this process."""

    def __init__(self, cluster: ProcessCluster, directory: Path, processes: int) -> None:
        self._cluster: Final = cluster
        self._directory: Final = directory
        self._processes: Final[list[subprocess.Popen[bytes] | None]] = [None] * processes
        self._files: Final[dict[int, Path]] = {}
        self._own: ConnectorReader | None = None
        self._starts = 0
        self.step = 0
        """Which settings of `MIGRATION` consumers start with."""

    def ensure(self) -> None:
        """Start what does not run.

        Raises:
            AssertionError: a process ended although nothing killed it.
        """
        for number, process in enumerate(self._processes):
            if process is None or process.poll() is not None:
                assert process is None or process.returncode in (-9, 0), (
                    f"reader {number}: {process.returncode}"
                )
                self._processes[number] = self._start(number)
        if self._own is None:
            self._own = ConnectorReader(self._settings(), TOPIC, STREAMS, self._new_file())

    def kill(self, number: int) -> None:
        """End a process at once."""
        process = self._processes[number]
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()

    def pause(self, number: int) -> None:
        """Stop a process for longer than its session, and let it go on: others own its partitions then."""
        process = self._processes[number]
        assert process is not None, "started"
        process.send_signal(signal.SIGSTOP)
        time.sleep(2 * SESSION_TIMEOUT_MS / 1000)
        process.send_signal(signal.SIGCONT)

    def leave(self, number: int) -> None:
        """Have a process leave in order."""
        process = self._processes[number]
        assert process is not None, "started"
        # A reader has its file when it handles SIGTERM.
        deadline = time.monotonic() + 30
        while not self._files[number].exists():
            assert time.monotonic() < deadline, f"reader {number} does not start"
            time.sleep(0.02)
        process.terminate()
        assert 0 == process.wait(60), f"reader {number} ended with {process.returncode}"

    def own_leaves(self) -> None:
        """Have the consumer of this process leave."""
        if self._own is not None:
            self._own.close()
            self._own = None

    def restart_one_by_one(self) -> Iterator[None]:
        """Restart every consumer with the present settings, as operators do."""
        for number in range(len(self._processes)):
            self.leave(number)
            self.ensure()
            yield
        self.own_leaves()
        self.ensure()
        yield

    def close(self, *, is_orderly: bool) -> None:
        """End all."""
        for number, process in enumerate(self._processes):
            if process is not None and process.poll() is None:
                self.leave(number) if is_orderly else self.kill(number)
        self.own_leaves()

    def _settings(self) -> dict[str, object]:
        storage, is_dual = MIGRATION[self.step % len(MIGRATION)]
        return dict(settings(self._cluster.zookeeper, GROUP, storage, is_dual=is_dual))

    def _new_file(self) -> Path:
        self._starts += 1
        return self._directory / f"reader-{self._starts}"

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        properties = self._directory / f"properties-{self._starts}"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
        self._files[number] = self._new_file()
        arguments = [str(properties), TOPIC, str(STREAMS), str(self._files[number])]
        with (self._directory / "readers.log").open("ab") as log:
            command = [sys.executable, "-m", "tests.chaos.connector_reader", *arguments]
            return subprocess.Popen(command, stdout=log, stderr=log)


class Rounds:
    """One run."""

    def __init__(self, options: argparse.Namespace, cluster: ProcessCluster, directory: Path) -> None:
        self._options: Final = options
        self._cluster: Final = cluster
        self._rng: Final = random.Random(options.seed)
        self._count: Final = options.ids // options.rounds * options.rounds
        self._readings: Final = Readings(directory, self._count)
        self._readers: Final = Readers(cluster, directory, processes=2)
        if options.storage == "kafka":
            self._readers.step = MIGRATION.index(("kafka", False))

    def run(self) -> Sequence[str]:
        """Run all rounds; return what is wrong."""
        with Admin(bootstrap_servers=self._cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, partitions=PARTITIONS)])
        offsets = CommittedOffsets(self._cluster)
        try:
            return [*self._rounds(), *offsets.faults[:10]]
        finally:
            offsets.close()
            self._readers.close(is_orderly=False)

    def _rounds(self) -> Iterator[str]:
        per_round = self._count // self._options.rounds
        slowest = 0.0
        for number in range(self._options.rounds):
            self._readers.ensure()
            is_step = self._options.storage == "migrate"
            damage = f"step {number % 4}" if is_step else DAMAGES[number % len(DAMAGES)]
            started = time.monotonic()
            first = number * per_round
            writer = threading.Thread(target=self._write, args=[first, per_round])
            writer.start()
            time.sleep(self._rng.uniform(0.1, 0.6))
            if is_step:
                self._readers.step = number + 1
                for _ in self._readers.restart_one_by_one():
                    time.sleep(self._rng.uniform(0.0, 0.5))
            else:
                self._strike(damage)
            writer.join()
            while self._readings.look() < first + per_round:
                if time.monotonic() - started > ROUND_TIMEOUT_S:
                    missing = self._readings.found[: first + per_round].count(0)
                    yield f"round {number}, {damage}: {missing} of {first + per_round} records did not come"
                    return
                self._readers.ensure()
                time.sleep(0.05)
            changes = self._readings.alternations()
            if changes > ALTERNATIONS_MAX:
                yield f"round {number}, {damage}: a partition changed its reader {changes} times"
            seconds = time.monotonic() - started
            slowest = max(slowest, seconds)
            print(f"round {number}: {damage}: {seconds:.1f} s, {changes} changes of a reader", flush=True)
        yield from self._end(slowest)

    def _write(self, first: int, count: int) -> None:
        """Write numbers, slowly enough that the damage falls into it."""
        with Producer(bootstrap_servers=self._cluster.bootstrap, linger_ms=5) as producer:
            for number in range(first, first + count):
                producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                if number % 500 == 0:
                    time.sleep(0.05)

    def _strike(self, damage: str) -> None:
        if damage == "broker":
            victim = self._rng.randrange(3)
            self._cluster.kill(victim)
            time.sleep(self._rng.uniform(0.0, 1.5))
            self._cluster.start(victim)
        elif damage == "consumer":
            self._readers.kill(self._rng.randrange(2))
            time.sleep(self._rng.uniform(0.0, 1.0))
        elif damage == "consumer leaves":
            self._readers.leave(self._rng.randrange(2))
        elif damage == "consumer pauses":
            self._readers.pause(self._rng.randrange(2))
        elif damage == "coordination server":
            self._cluster.kill_coordinator()
            time.sleep(self._rng.uniform(0.0, 1.0))
            self._cluster.start_coordinator()
        else:
            self._readers.own_leaves()
        self._readers.ensure()

    def _end(self, slowest: float) -> Iterator[str]:
        self._readers.close(is_orderly=True)
        self._readings.look()
        before = self._readings.lines
        self._readers.ensure()
        time.sleep(4)
        self._readers.close(is_orderly=True)
        self._readings.look()
        if self._readings.lines != before:
            yield f"{self._readings.lines - before} records came again after an orderly end"
        print(
            f"{self._options.rounds} rounds, {self._options.storage}, seed {self._options.seed}: "
            f"{self._readings.arrived} of {self._count} records read, {before - self._readings.arrived} of "
            f"them again, the slowest round took {slowest:.1f} s"
        )


def main() -> int:
    """Run the rounds; exit code 1 if something is wrong."""
    parser = application_parser(__doc__.splitlines()[0], rounds=50, ids=500_000)
    parser.add_argument("--storage", choices=("zookeeper", "kafka", "migrate"), default="zookeeper")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        cluster = stack.enter_context(ProcessCluster(directory / "cluster", brokers=3, settings=CLUSTER))
        found = Rounds(options, cluster, directory).run()
    for each in found:
        print(each)
    print("FAILED" if found else "ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
