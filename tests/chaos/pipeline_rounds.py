"""Kills and breaks a running pipeline again and again, and accounts for every record.

Run ``python -m tests.chaos.pipeline_rounds --rounds 25 --target delta --execution direct``. Each round
produces records to a cluster of three brokers, one in a hundred corrupt, while ``kalda pipeline run`` moves
them to a table or a topic, and waits until all of them have come. The damage of a round is ``kill -9`` of the
driver, of a Python worker or of the leader of a partition, or an error, a worker's or a driver's death before
or after a step of a batch (`spark_faults`).

At no time a row is twice in the table. At the end each number is exactly once in the target or among the dead
letters, the ledger balances and joins in every row, its sums are the table's, it accounts for the whole log,
no transaction is open, and the pipeline ends in order after SIGTERM.
"""

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from kalda import Admin, Consumer, NewTopic, Producer
from kalda.clients.errors import ClientError
from kalda.common.types import TopicPartition
from kalda.pipelines.ledger.evidence import audit_pipeline
from kalda.pipelines.ledger.topic import read_ledger
from kalda.pipelines.spec.model import PipelineSpec, TableSpec
from kalda.pipelines.spec.parser import read_pipeline_file
from kalda.pipelines.tables import open_table
from kalda.testing import ProcessCluster
from tests.chaos.command_line import application_parser
from tests.chaos.snapshot_reader import Row, SnapshotReader
from tests.chaos.spark_application import Attack, SparkApplication

BROKERS: Final = 3
PARTITIONS: Final = 4
SOURCE, TARGET, LETTERS = "numbers", "copied", "numbers.dlq"
SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.two.phase.commit.enable": "true",
}
ROUND_TIMEOUT_S: Final = 300.0
"""The first query of a JVM takes minutes on a machine that other tests load."""
STOP_TIMEOUT_S: Final = 120.0

WEIGHTS: Final = {
    "error": 50,
    "worker": 12,
    "driver": 3,
    "kill worker": 15,
    "kill driver": 4,
    "kill leader": 16,
}
"""Most steps are in the driver, where a worker's death is the driver's."""

TABLES: Final = ("delta", "iceberg", "parquet")
TOPICS: Final = ("exactly-once", "exactly-once-batch")
_STEPS: Final = ("intent", "letters", "commit-transaction", "ledger", "batch")
STEPS: Final = {
    **dict.fromkeys(TABLES, (*_STEPS, "files", "table-commit")),
    "exactly-once": (*_STEPS, "init", "write", "flush", "topic-decision"),
    "exactly-once-batch": (
        *_STEPS,
        "write",
        "flush",
        "prepare",
        "list",
        "topic-decision",
        "end-txn",
        "complete",
    ),
}
"""Where failures are injected, by target; see `spark_faults`."""


class Arrivals:
    """Counts each number that came, in the target and among the dead letters."""

    def __init__(self, bootstrap: str, spec: PipelineSpec) -> None:
        self.letters: Final[Counter[int]] = Counter()
        """How often each number is among the dead letters."""
        self._table: Final = open_table(spec.target) if isinstance(spec.target, TableSpec) else None
        self._version: int | None = None
        self._rows: frozenset[int] = frozenset()
        self._reader: SnapshotReader | None = None
        if self._table is None:
            self._reader = SnapshotReader(bootstrap, TARGET, PARTITIONS, row_of)
            self._reader.start()
        self._consumer: Final = Consumer(
            bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False
        )
        self._consumer.assign([TopicPartition(LETTERS, number) for number in range(PARTITIONS)])
        self._consumer.seek_to_beginning()

    def poll(self) -> int:
        """Look at what came in the meantime and return how many numbers have come.

        Raises:
            AssertionError: a row is in the table twice.
        """
        # While a leader is gone, the next call asks again.
        with contextlib.suppress(ClientError):
            for record in self._consumer.poll(timeout_s=0.05):
                self.letters[int(bytes(record.value or b"").removeprefix(b"bad "))] += 1
        if self._table is not None and (version := self._table.version()) != self._version:
            rows = [row for batch in self._table.read(["id"]) for row in batch.column(0).to_pylist()]
            self._rows, self._version = frozenset(rows), version
            assert len(rows) == len(self._rows), f"{len(rows) - len(self._rows)} rows are twice in the table"
        return len(self._rows) + len(self.letters) + (len(self._reader.ids) if self._reader else 0)

    def finish(self) -> Counter[int]:
        """Read what is there and return how often each number came anywhere."""
        self.poll()
        if self._reader is not None:
            self._reader.finish()
        return self.letters + Counter(self._rows) + (self._reader.ids if self._reader else Counter())

    def partial_snapshots(self, batch_of: Mapping[tuple[int, int], int]) -> tuple[int, int]:
        """Return how many snapshots of a topic show a part of a batch, in one partition and in all."""
        assert self._reader is not None, "the target is a topic"
        return self._reader.partial_snapshots(batch_of)

    def close(self) -> None:
        """Close connections."""
        self._consumer.close()


class Rounds:
    """One run."""

    def __init__(self, options: argparse.Namespace, cluster: ProcessCluster, directory: Path) -> None:
        self._options: Final = options
        self._cluster: Final = cluster
        self._file: Final = directory / "pipelines.yaml"
        self._file.write_text(pipeline_file(cluster.bootstrap, directory, options))
        (self._spec,) = read_pipeline_file(self._file).pipelines
        command = [sys.executable, "-m", "kalda", "pipeline", "run", str(self._file)]
        self._application: Final = SparkApplication(directory, command)
        rng = random.Random(options.seed)
        steps = STEPS[options.target]
        self._attack: Final = Attack(self._application, cluster, rng, steps, weights=WEIGHTS)
        self._per_round: Final = max(PARTITIONS, options.ids // options.rounds)

    def run(self) -> list[str]:
        """Run all rounds; return what is wrong."""
        bootstrap = self._cluster.bootstrap
        with Admin(bootstrap_servers=bootstrap) as admin:
            topics = [NewTopic(name, partitions=PARTITIONS) for name in (SOURCE, TARGET, LETTERS)]
            admin.create_topics(topics)
        arrivals = Arrivals(bootstrap, self._spec)
        produced = rounds = 0
        began = time.monotonic()
        try:
            with Producer(bootstrap_servers=bootstrap) as producer:
                while rounds < self._options.rounds and time.monotonic() - began < 60 * self._options.minutes:
                    self._application.ensure()
                    damage = self._attack.prepare()
                    for number in range(produced, produced + self._per_round):
                        producer.send(SOURCE, value_of(number), partition=number % PARTITIONS)
                    produced += self._per_round
                    producer.flush()
                    self._attack.strike(damage, SOURCE)
                    took = self._attack.wait(arrivals.poll, produced, ROUND_TIMEOUT_S)
                    if took is None:
                        return [
                            f"round {rounds}, {damage}: only {arrivals.poll()} of {produced} numbers came"
                        ]
                    print(f"round {rounds}: {damage}: {took:.1f} s", flush=True)
                    rounds += 1
            return list(self._verify(arrivals, produced, rounds))
        finally:
            self._application.kill()
            arrivals.close()

    def _verify(self, arrivals: Arrivals, produced: int, rounds: int) -> Iterator[str]:
        yield from self._attack.end(STOP_TIMEOUT_S)
        total = arrivals.finish()
        missing = produced - len(total)
        twice = sum(1 for count in total.values() if count > 1)
        misplaced = sum(not is_bad(number) for number in arrivals.letters)
        if missing or twice or misplaced:
            yield f"{missing} numbers are missing, {twice} came twice, {misplaced} are dead letters and good"
        happened = self._attack.happened
        print(f"happened: {dict(sorted(happened.items()))}")
        print(
            f"{rounds} rounds, seed {self._options.seed}: {sum(happened.values())} failures, "
            f"{self._application.starts} starts, {produced} ids, {missing} missing, {twice} twice"
        )
        yield from self._audit(arrivals, produced)

    def _audit(self, arrivals: Arrivals, produced: int) -> Iterator[str]:
        """Yield what is wrong in the ledger, and whether a part of one of its batches was visible."""
        properties = {"bootstrap.servers": self._cluster.bootstrap}
        ledger = read_ledger(properties, frozenset([self._spec.name]))
        report = audit_pipeline(self._spec, properties, ledger, recount=True)
        yield from report.findings
        bad = sum(map(is_bad, range(produced)))
        expected = {"records": produced, "rows_out": produced - bad, "dlq": bad, "filtered": 0}
        found = {name: report.total(name) for name in expected}
        if found != expected:
            yield f"the ledger has {found}, not {expected}"
        for each in report.partitions:
            if each.start or each.lag:
                yield f"the ledger of {each.topic_partition} begins at {each.start} and lags by {each.lag}"
        if self._options.target == "exactly-once-batch":
            batch_of = {
                (each.account.partition, offset): each.batch_id
                for each in ledger.records
                for offset in range(each.account.start, each.account.end)
            }
            inside, across = arrivals.partial_snapshots(batch_of)
            print(f"snapshots of a part of a batch: {inside} inside a partition, {across} across partitions")
            if inside:
                yield f"{inside} snapshots show a part of a batch inside a partition"


def is_bad(number: int) -> bool:
    """Return whether the record of a number is corrupt."""
    return number % 100 == 99


def value_of(number: int) -> bytes:
    """Return the value of a number's record."""
    return b"bad %d" % number if is_bad(number) else json.dumps({"id": number}).encode()


def row_of(value: bytes) -> Row:
    """Return the row of a value of the target; a partition's numbers rise with its offsets."""
    number = int(json.loads(value)["id"])
    return Row(number % PARTITIONS, number // PARTITIONS, number)


def pipeline_file(bootstrap: str, directory: Path, options: argparse.Namespace) -> str:
    """Return the text of the file that is run."""
    if options.target in TABLES:
        target = f"table: lake.numbers, format: {options.target}, compact: {{every: 10s, newest: 2s}}"
    else:
        target = f"topic: {TARGET}, value: {{format: json}}, delivery: {options.target}"
    settings = {"spark.driver.memory": "1g"}
    if options.speculation:
        settings |= {
            "spark.speculation": "true",
            "spark.speculation.interval": "50ms",
            "spark.speculation.multiplier": "1.05",
            "spark.speculation.quantile": "0.25",
            "spark.speculation.minTaskRuntime": "50ms",
        }
    # Tasks are retried, so that attempts meet.
    return f"""
name: rounds
storage: {directory}/storage
cluster: {{bootstrap.servers: "{bootstrap}"}}
spark: {{master: "local[2,3]", settings: {json.dumps(settings)}}}
pipelines:
  - name: numbers
    from: {{topic: {SOURCE}, start: earliest, value: {{format: json, schema: "id bigint"}}}}
    to: {{{target}}}
    trigger: 200ms
    execution: {options.execution}
    restart: {{tries: 1000, backoff: 200ms, backoff_max: 1s}}
"""


def main() -> int:
    """Run the rounds; exit code 1 if a record is lost or there twice."""
    parser = application_parser(__doc__.splitlines()[0], rounds=200, ids=200_000)
    parser.add_argument("--target", choices=(*TABLES, *TOPICS), default="delta")
    parser.add_argument("--execution", choices=("direct", "spark"), default="direct")
    parser.add_argument("--speculation", action="store_true", help="run slow tasks twice")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        cluster = stack.enter_context(
            ProcessCluster(directory / "cluster", brokers=BROKERS, settings=SETTINGS)
        )
        found = Rounds(options, cluster, directory).run()
    for each in found:
        print(each)
    print("FAILED" if found else "ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
