"""Kills and breaks a running mirror again and again, and compares the copy with the source.

Run ``python -m tests.chaos.mirror_rounds --rounds 100``. Each round writes numbered records to a cluster,
some in a transaction that is aborted, while ``kalda pipeline run`` mirrors the topic to a second cluster of
three brokers, and waits until the copy has them. The damage of a round is ``kill -9`` of the mirror or of the
leader of a partition of the copy, or an error or a death of the mirror before or after a step of its
transactions.

At the end each partition of the copy has the records of the source once, in the same order, no transaction is
open, and the mirror ends in order after SIGTERM.
"""

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kalda import Admin, Consumer, NewTopic, Producer
from kalda.clients.errors import ClientError
from kalda.common.types import TopicPartition
from kalda.testing import ProcessCluster
from tests.chaos.command_line import application_parser
from tests.chaos.spark_application import Attack, SparkApplication

PARTITIONS: Final = 3
TOPIC: Final = "numbers"
SETTINGS: Final = {"default.replication.factor": "3", "min.insync.replicas": "2"}
ROUND_TIMEOUT_S: Final = 120.0
STOP_TIMEOUT_S: Final = 60.0
STEPS: Final = ("copy", "records", "progress", "init", "commit-transaction")
WEIGHTS: Final = {"error": 25, "driver": 40, "kill driver": 20, "kill leader": 15}


class Copy:
    """Reads the copy, transactions that are aborted left out."""

    def __init__(self, bootstrap: str) -> None:
        self.numbers: Final[list[list[int]]] = [[] for _ in range(PARTITIONS)]
        """By partition, in the order of the copy."""
        self._consumer: Final = Consumer(
            bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False
        )
        self._consumer.assign([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
        self._consumer.seek_to_beginning()

    def poll(self) -> int:
        """Read on and return how many records there are."""
        # While a leader is gone, the next call asks again.
        with contextlib.suppress(ClientError):
            for record in self._consumer.poll(timeout_s=0.05):
                self.numbers[record.partition].append(int(record.value or b""))
        return sum(map(len, self.numbers))

    def close(self) -> None:
        """Close connections."""
        self._consumer.close()


class Source:
    """Writes numbers to the source: in each round some that are aborted, then some that count."""

    def __init__(self, bootstrap: str) -> None:
        self.numbers: Final[list[list[int]]] = [[] for _ in range(PARTITIONS)]
        """What a copy has to have, by partition."""
        self._next = 0
        self._producer: Final = Producer(bootstrap_servers=bootstrap, transactional_id="source")
        self._producer.init_transactions()

    def write(self, count: int) -> None:
        """Write as many numbers that count, and a tenth of them that do not."""
        self._producer.begin_transaction()
        self._send(count // 10)
        self._producer.flush()
        self._producer.abort_transaction()
        with self._producer.transaction():
            for number, partition in self._send(count):
                self.numbers[partition].append(number)

    def close(self) -> None:
        """Close connections."""
        self._producer.close()

    def _send(self, count: int) -> list[tuple[int, int]]:
        sent = [(number, number % PARTITIONS) for number in range(self._next, self._next + count)]
        for number, partition in sent:
            self._producer.send(TOPIC, b"%d" % number, partition=partition)
        self._next += count
        return sent


class Rounds:
    """One run."""

    def __init__(
        self, options: argparse.Namespace, source: ProcessCluster, target: ProcessCluster, directory: Path
    ) -> None:
        self._options: Final = options
        self._source_cluster: Final = source
        self._target_cluster: Final = target
        file = directory / "pipelines.yaml"
        file.write_text(pipeline_file(source.bootstrap, target.bootstrap, directory))
        command = [sys.executable, "-m", "kalda", "pipeline", "run", str(file)]
        self._application: Final = SparkApplication(directory, command)
        rng = random.Random(options.seed)
        self._attack: Final = Attack(self._application, target, rng, STEPS, weights=WEIGHTS)

    def run(self) -> list[str]:
        """Run all rounds; return what is wrong."""
        for cluster in (self._source_cluster, self._target_cluster):
            with Admin(bootstrap_servers=cluster.bootstrap) as admin:
                admin.create_topics([NewTopic(TOPIC, partitions=PARTITIONS)])
        with (
            contextlib.closing(Source(self._source_cluster.bootstrap)) as source,
            contextlib.closing(Copy(self._target_cluster.bootstrap)) as copy,
        ):
            try:
                return self._run(source, copy)
            finally:
                self._application.kill()

    def _run(self, source: Source, copy: Copy) -> list[str]:
        per_round = max(10, self._options.ids // self._options.rounds)
        began = time.monotonic()
        rounds = 0
        while rounds < self._options.rounds and time.monotonic() - began < 60 * self._options.minutes:
            self._application.ensure()
            damage = self._attack.prepare()
            source.write(per_round)
            self._attack.strike(damage, TOPIC)
            took = self._attack.wait(copy.poll, sum(map(len, source.numbers)), ROUND_TIMEOUT_S)
            if took is None:
                return [f"round {rounds}, {damage}: only {copy.poll()} records came"]
            print(f"round {rounds}: {damage}: {took:.1f} s", flush=True)
            rounds += 1
        return list(self._verify(source, copy, rounds))

    def _verify(self, source: Source, copy: Copy, rounds: int) -> Iterator[str]:
        yield from self._attack.end(STOP_TIMEOUT_S)
        copy.poll()
        for partition, (expected, found) in enumerate(zip(source.numbers, copy.numbers, strict=True)):
            if expected != found:
                yield f"partition {partition}: {len(found)} records are not the {len(expected)} of the source"
        happened = self._attack.happened
        print(f"happened: {dict(sorted(happened.items()))}")
        print(
            f"{rounds} rounds, seed {self._options.seed}: {sum(happened.values())} failures, "
            f"{self._application.starts} starts, {sum(map(len, source.numbers))} ids"
        )


def pipeline_file(source: str, target: str, directory: Path) -> str:
    """Return the text of the file that is run."""
    return f"""
name: rounds
storage: {directory}/storage
clusters:
  east: {{bootstrap.servers: "{source}"}}
  west: {{bootstrap.servers: "{target}"}}
pipelines:
  - name: numbers
    mirror: {{source: east, target: west, topics: {TOPIC}}}
    trigger: 200ms
    restart: {{tries: 1000, backoff: 200ms, backoff_max: 1s}}
"""


def main() -> int:
    """Run the rounds; exit code 1 if the copy differs from the source."""
    options = application_parser(__doc__.splitlines()[0], rounds=100, ids=100_000).parse_args()
    with contextlib.ExitStack() as stack:
        directory = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        source = stack.enter_context(ProcessCluster(directory / "source", brokers=1))
        target = stack.enter_context(ProcessCluster(directory / "target", brokers=3, settings=SETTINGS))
        found = Rounds(options, source, target, directory).run()
    for each in found:
        print(each)
    print("FAILED" if found else "ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
