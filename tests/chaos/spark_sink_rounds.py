"""Kills and breaks a Spark query that copies ids from topic to topic, and checks that each arrives once.

Each round produces ids, arms one failure and waits until a ``read_committed`` reader has all of them. The
failures are ``kill -9`` of the driver, of a Python worker and of the leader of an output partition, and
errors, worker and driver deaths before and after each step of the sink (`spark_faults`). Half of the rounds
run with speculative tasks where ``--speculation`` is given.

At the end: each id is there exactly once, no transaction is open, and, in mode exactly-once-batch, no
snapshot of the last stable offsets shows a part of a batch.
"""

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from kalda import Admin, NewTopic, Producer
from kalda.testing import ProcessCluster
from tests.chaos.command_line import application_parser
from tests.chaos.snapshot_reader import Row, SnapshotReader
from tests.chaos.spark_application import WEIGHTS, Attack, SparkApplication, open_transactions

PARTITIONS: Final = 4
SOURCE, TARGET = "ids", "copied"
ROUND_TIMEOUT_SECONDS: Final = 900.0
"""The first query of a JVM takes minutes on a machine that other tests load."""
_STEPS: Final = ("write", "flush", "init", "task", "commit", "abort")
STEPS: Final = {
    "exactly-once": (*_STEPS, "commit-transaction"),
    "exactly-once-batch": (*_STEPS, "prepare", "list", "decision", "end-txn", "barrier"),
}
"""Where failures are injected, by delivery; see `spark_faults`."""


def parse(value: bytes) -> Row:
    """Return where the row of a value comes from."""
    partition, offset, number = value.split(b":")
    return Row(int(partition), int(offset), int(number))


def batches_of(checkpoint: Path) -> dict[tuple[int, int], int]:
    """Return the batch of each source partition and offset."""
    ends = sorted(
        (int(each.name), json.loads(each.read_text().splitlines()[-1])[SOURCE])
        for each in (checkpoint / "offsets").iterdir()
        if each.name.isdigit()
    )
    found: dict[tuple[int, int], int] = {}
    before: dict[str, int] = {}
    for batch, end in ends:
        for source, to in end.items():
            for at in range(before.get(source, 0), to):
                found[(int(source), at)] = batch
        before = end
    return found


def main() -> int:
    """Run the rounds and print the figures."""
    parser = application_parser(__doc__, rounds=200, ids=1_000_000)
    parser.add_argument("--delivery", choices=STEPS, default="exactly-once-batch")
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--speculation", action="store_true")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        replicas = min(3, options.brokers)
        settings = {
            "transaction.two.phase.commit.enable": "true",
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(max(1, replicas - 1)),
        }
        cluster = stack.enter_context(
            ProcessCluster(brokers=options.brokers, settings=settings, directory=directory / "cluster")
        )
        return Rounds(options, cluster, directory).run()


class Rounds:
    """One run."""

    def __init__(self, options: argparse.Namespace, cluster: ProcessCluster, directory: Path) -> None:
        self._options: Final = options
        self._cluster: Final = cluster
        self._checkpoint: Final = directory / "checkpoint"
        self._per_round: Final = max(1, options.ids // options.rounds)
        command = [sys.executable, str(Path(__file__).with_name("spark_sink_driver.py"))]
        command += ["--bootstrap", cluster.bootstrap, "--source", SOURCE, "--target", TARGET]
        command += ["--checkpoint", str(self._checkpoint), "--delivery", options.delivery]
        command += ["--per-trigger", str(max(PARTITIONS, self._per_round // 2))]
        self._application: Final = SparkApplication(directory, command)
        rng = random.Random(options.seed)
        # Without replicas the cluster would only stand still.
        weights = WEIGHTS if options.brokers > 2 else WEIGHTS | {"kill leader": 0}
        steps = STEPS[options.delivery]
        self._attack: Final = Attack(self._application, cluster, rng, steps, weights=weights)

    def run(self) -> int:
        """Run all rounds; return the exit code."""
        options = self._options
        with Admin(bootstrap_servers=self._cluster.bootstrap) as admin:
            topics = [NewTopic(name, partitions=PARTITIONS) for name in (SOURCE, TARGET)]
            admin.create_topics(topics)
        reader = SnapshotReader(self._cluster.bootstrap, TARGET, PARTITIONS, parse)
        reader.start()
        produced = rounds = 0
        began = time.monotonic()
        try:
            with Producer(bootstrap_servers=self._cluster.bootstrap) as producer:
                while rounds < options.rounds and time.monotonic() - began < 60 * options.minutes:
                    self._ensure(rounds)
                    damage = self._attack.prepare()
                    for each in range(produced, produced + self._per_round):
                        producer.send(SOURCE, b"%d" % each, partition=each % PARTITIONS)
                    produced += self._per_round
                    producer.flush()
                    self._attack.strike(damage, TARGET)
                    took = self._wait(reader, produced, rounds)
                    if took is None:
                        print(f"round {rounds}: {damage}: only {len(reader.ids)} of {produced} ids")
                        break
                    print(f"round {rounds}: {damage}: {took:.1f} s", flush=True)
                    rounds += 1
            return self._verify(reader, produced, rounds)
        finally:
            self._application.kill()

    def _ensure(self, number: int) -> None:
        is_speculative = self._options.speculation and number % 2 == 1
        self._application.ensure(*(["--speculation"] if is_speculative else []))

    def _wait(self, reader: SnapshotReader, produced: int, number: int) -> float | None:
        began = time.monotonic()
        while len(reader.ids) < produced:
            if time.monotonic() - began > ROUND_TIMEOUT_SECONDS:
                return None
            self._ensure(number)
            time.sleep(0.02)
        self._attack.note()
        return time.monotonic() - began

    def _verify(self, reader: SnapshotReader, produced: int, rounds: int) -> int:
        self._application.disarm()
        # The last batch is visible; the driver may still be ending what it left.
        deadline = time.monotonic() + 60
        while (left := open_transactions(self._cluster.bootstrap)) and time.monotonic() < deadline:
            self._application.ensure()
            time.sleep(0.5)
        self._attack.note()
        self._application.kill()
        reader.finish()
        missing = produced - len(reader.ids)
        twice = sum(1 for count in reader.ids.values() if count > 1)
        happened = self._attack.happened
        print(f"happened: {dict(sorted(happened.items()))}")
        print(
            f"{rounds} rounds, seed {self._options.seed}: {sum(happened.values())} failures, "
            f"{self._application.starts} starts, {produced} ids, {missing} missing, {twice} twice"
        )
        print(f"open transactions: {left}")
        bad = missing or twice or left
        if self._options.delivery == "exactly-once-batch":
            inside, across = reader.partial_snapshots(batches_of(self._checkpoint))
            print(
                f"of {len(reader.snapshots)} snapshots show a part of a batch: {inside} inside a partition, "
                f"{across} across partitions"
            )
            bad = bad or inside or (across if self._options.brokers == 1 else 0)
        print("FAILED" if bad else "ok")
        return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
