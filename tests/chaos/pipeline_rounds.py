"""Kill the processes of a running pipeline again and again, and account for every record.

Run ``python -m tests.chaos.pipeline_rounds --rounds 200``. A producer writes numbered records to a cluster of
three brokers while ``kalda pipeline run`` moves them to a table. Each round kills -9 the driver, one of its
Python workers, or the broker that leads most partitions, and starts again what does not start by itself. At
the end each number is in the table exactly once, the ledger balances and joins in every row, its sums are the
table's, and no transaction is open. ``--format delta|parquet|iceberg``, ``--execution direct|spark``.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import psutil

from kalda.clients.admin.admin import Admin
from kalda.pipelines.spec.model import TableSpec
from kalda.pipelines.spec.parser import read_pipeline_file
from kalda.pipelines.tables import open_table
from kalda.testing import ProcessCluster

BROKERS = 3
PARTITIONS = 4
TOPIC = "numbers"
VALUES_PER_SECOND = 2_000
SETTINGS = {"default.replication.factor": "3", "min.insync.replicas": "2"}
START_SECONDS = 300.0
"""How long a driver may take until its first batch; a JVM on a loaded machine is slow."""
FINISH_SECONDS = 600.0


class NumberedLoad(threading.Thread):
    """Produces rising numbers until it is stopped; each is acknowledged by all in-sync replicas."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="load", daemon=True)
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": 2}
        )
        self._is_stopping = threading.Event()
        self.count = 0
        self.failures: list[str] = []

    def run(self) -> None:
        """Produce at a steady rate."""
        began = time.monotonic()
        while not self._is_stopping.is_set():
            due = int((time.monotonic() - began) * VALUES_PER_SECOND)
            while self.count < due:
                self._produce()
            self._producer.poll(0.02)
        left = self._producer.flush(120)
        if left:
            self.failures.append(f"{left} records were not acknowledged")

    def stop(self) -> int:
        """Stop and return how many numbers there are."""
        self._is_stopping.set()
        self.join()
        return self.count

    def _produce(self) -> None:
        number = self.count
        value = json.dumps({"id": number, "at": time.time()}).encode()
        while True:
            try:
                self._producer.produce(
                    TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(0.1)
                continue
            break
        self.count += 1

    def _delivered(self, error: confluent_kafka.KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is not None:
            self.failures.append(str(error))


class Driver:
    """A `kalda pipeline run` process with all processes that it starts."""

    def __init__(self, file: Path, log: Path) -> None:
        self._file = file
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self) -> None:
        """Start it."""
        self.starts += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kalda", "pipeline", "run", str(self._file)],
                stdout=log,
                stderr=log,
                env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            )

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def workers(self) -> list[psutil.Process]:
        """Return the Python workers of tasks: the children of Spark's daemon."""
        return [
            each
            for each in self._children()
            if "pyspark" in " ".join(_command(each)) and "daemon" in " ".join(_command(each))
        ]

    def kill(self) -> None:
        """Kill the driver; its JVM ends by itself when the pipe breaks, and is killed where it does not."""
        assert self._process is not None
        children = self._children()
        self._process.kill()
        self._process.wait()
        _, alive = psutil.wait_procs(children, timeout=15)
        for each in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()

    def stop(self) -> None:
        """Stop it in order."""
        assert self._process is not None
        children = self._children()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        _, alive = psutil.wait_procs(children, timeout=30)
        for each in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()

    def _children(self) -> list[psutil.Process]:
        assert self._process is not None
        try:
            return psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


class Rounds:
    """The rounds of one run."""

    def __init__(self, cluster: ProcessCluster, directory: Path, options: argparse.Namespace) -> None:
        self._cluster = cluster
        self._options = options
        self._random = random.Random(options.seed)
        self._file = directory / "pipelines.yaml"
        self._file.write_text(_pipeline(cluster.bootstrap, directory, options))
        self._driver = Driver(self._file, directory / "driver.log")
        self._killed: Counter[str] = Counter()
        (spec,) = read_pipeline_file(self._file).pipelines
        assert isinstance(spec.target, TableSpec)
        self._target = spec.target

    def run(self) -> list[str]:
        """Run all rounds; return what is wrong."""
        try:
            return self._run()
        finally:
            if self._driver.is_running:
                self._driver.kill()

    def _run(self) -> list[str]:
        load = NumberedLoad(self._cluster.bootstrap)
        load.start()
        self._driver.start()
        self._wait_for_batch(self._version())
        for number in range(self._options.rounds):
            kind = self._random.choice(("driver", "worker", "leader"))
            time.sleep(self._random.uniform(0.2, 4.0))
            self._kill(kind)
            self._killed[kind] += 1
            print(f"round {number + 1}: killed {kind}, {load.count} records", flush=True)
            if number % 10 == 9:
                self._wait_for_batch(self._version())
        count = load.stop()
        self._wait_for_rows(count)
        self._driver.stop()
        return load.failures + self._check(count)

    def _kill(self, kind: str) -> None:
        if kind == "worker":
            workers = self._driver.workers()
            if workers:
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._random.choice(workers).kill()
        elif kind == "leader":
            broker = self._busiest_leader()
            self._cluster.kill(broker)
            time.sleep(self._random.uniform(0.5, 2.0))
            self._cluster.start(broker)
            self._wait_in_sync()
            return
        if kind == "driver" or not self._driver.is_running:
            self._driver.kill()
            self._driver.start()

    def _busiest_leader(self) -> int:
        with Admin(bootstrap_servers=self._cluster.bootstrap) as admin:
            described = admin.describe_topics([TOPIC])[TOPIC]
        leaders = Counter(each.leader_id for each in described.partitions if each.leader_id >= 0)
        return leaders.most_common(1)[0][0] if leaders else 0

    def _wait_in_sync(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        with Admin(bootstrap_servers=self._cluster.bootstrap) as admin:
            while time.monotonic() < deadline:
                described = admin.describe_topics([TOPIC])[TOPIC]
                if all(len(each.isr) == BROKERS for each in described.partitions):
                    return
                time.sleep(0.2)
        raise RuntimeError("the replicas did not get in sync")

    def _version(self) -> int | None:
        return open_table(self._target).version()

    def _wait_for_batch(self, before: int | None) -> None:
        """Wait until the pipeline commits, so that not every round meets a driver that starts."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if not self._driver.is_running:
                self._driver.start()
            if self._version() != before:
                return
            time.sleep(0.3)
        raise RuntimeError("the pipeline committed nothing; see driver.log")

    def _wait_for_rows(self, count: int) -> None:
        deadline = time.monotonic() + FINISH_SECONDS
        while time.monotonic() < deadline:
            if not self._driver.is_running:
                self._driver.start()
            if len(self._ids()) >= count:
                return
            time.sleep(1)

    def _ids(self) -> list[int]:
        table = open_table(self._target)
        if table.version() is None:
            return []
        return [number for rows in table.read(["id"]) for number in rows.column("id").to_pylist()]

    def _check(self, count: int) -> list[str]:
        found = []
        ids = Counter(self._ids())
        missing = count - len(ids)
        twice = sum(1 for times in ids.values() if times > 1)
        if missing or twice or (ids and max(ids) >= count):
            found.append(f"of {count} records {missing} are missing and {twice} are there twice")
        audit = subprocess.run(
            [sys.executable, "-m", "kalda", "pipeline", "audit", str(self._file), "--recount"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        print(audit.stdout)
        if audit.returncode:
            found.append(f"the audit failed: {audit.stderr}")
        with Admin(bootstrap_servers=self._cluster.bootstrap) as admin:
            listed = admin.list_transactions().all()
        found += [f"{each.transactional_id} is open" for each in listed if str(each.state) == "Ongoing"]
        killed = ", ".join(f"{count} x {kind}" for kind, count in sorted(self._killed.items()))
        print(
            f"{count} records, {len(ids)} rows, {self._driver.starts} starts of the driver; killed {killed}"
        )
        return found


def _pipeline(bootstrap: str, directory: Path, options: argparse.Namespace) -> str:
    return f"""
name: rounds
storage: {directory}/storage
cluster: {{bootstrap.servers: "{bootstrap}"}}
spark: {{master: "local[2]", settings: {{spark.driver.memory: 1g}}}}
pipelines:
  - name: numbers
    from: {{topic: {TOPIC}, start: earliest, value: {{format: json, schema: "id bigint, at double"}}}}
    to: {{table: lake.numbers, format: {options.format}}}
    trigger: 1s
    execution: {options.execution}
    restart: {{tries: 1000, backoff: 500ms}}
"""


def main() -> int:
    """Run the rounds; exit code 1 if a record is lost or there twice."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--format", choices=("delta", "parquet", "iceberg"), default="parquet")
    parser.add_argument("--execution", choices=("direct", "spark"), default="direct")
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pipeline-rounds-") as made:
        directory = options.directory or Path(made)
        with ProcessCluster(directory / "cluster", brokers=BROKERS, settings=SETTINGS) as cluster:
            admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
            topic = confluent_kafka.admin.NewTopic(TOPIC, PARTITIONS, BROKERS)
            admin.create_topics([topic])[TOPIC].result(60)
            found = Rounds(cluster, directory, options).run()
    for each in found:
        print(each)
    print("every record is there once" if not found else f"{len(found)} faults; seed {options.seed}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
