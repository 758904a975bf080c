"""A rolling upgrade from the release before, and back, under load: nothing is lost, doubled or reordered.

The load is an idempotent producer with a reader beside it, transactional copiers in a group of the classic
protocol, members of groups of both protocols, a mirror, and a pipeline. Mirror and pipeline change their
release after the brokers, over the same state.
"""

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import confluent_kafka
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kalda import Consumer
from kalda.common.types import TopicPartition
from kalda.pipelines.spec.model import TableSpec
from kalda.pipelines.spec.parser import read_pipeline_file
from kalda.pipelines.tables import open_table
from tests.chaos.cluster_rounds import PARTITIONS, TOPIC, create_topics, wait_in_sync
from tests.chaos.copier_clients import LIBRDKAFKA, copier_command
from tests.chaos.copies import COPIES, Copies
from tests.chaos.ordered_load import RECONNECT, Ledger, LibrdkafkaLoad, LibrdkafkaReader, Record
from tests.chaos.replica_check import check_replicas
from tests.compat.rolling_cluster import PRESENT, RollingCluster
from tests.previous_release import NoPreviousReleaseError, previous_command

RECORDS_PER_SECOND: Final = 300
WAIT_SECONDS: Final = 120.0
BEFORE, AFTER = 0, 1
MIRRORED: Final = f"east.{TOPIC}"

pytestmark = pytest.mark.timeout(900)  # Sixteen starts, under load, and three of Spark.


class GroupMember:
    """The only member of a group, which reads the topic and counts its assignments."""

    def __init__(self, bootstrap: str, protocol: str) -> None:
        self.ledger: Final = Ledger(PARTITIONS)
        self.assignments = 0
        self.problems: Final[list[str]] = []
        self._protocol: Final = protocol
        self._stop: Final = threading.Event()
        session = {} if protocol == "consumer" else {"session.timeout.ms": 30_000}
        self._consumer: Final = confluent_kafka.Consumer(
            {
                **RECONNECT,
                **session,
                "bootstrap.servers": bootstrap,
                "group.id": f"readers-{protocol}",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
            }
        )
        self._thread: Final = threading.Thread(target=self._run, name=f"member {protocol}")

    def start(self) -> None:
        """Begin to read."""
        self._consumer.subscribe([TOPIC], on_assign=self._on_assign, on_revoke=self._on_revoke)
        self._thread.start()

    def stop(self) -> None:
        """Leave the group. Twice is harmless."""
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join()
            self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, timeout=0.1):
                if message.error() is not None:
                    self.problems.append(f"{self._protocol}: {message.error()}")
                    continue
                record = Record(message.partition(), message.offset(), int(message.value()))
                self.ledger.read(record)

    def _on_assign(self, _: object, partitions: Sequence[object]) -> None:
        self.assignments += 1

    def _on_revoke(self, _: object, partitions: Sequence[object]) -> None:
        if not self._stop.is_set():
            self.problems.append(f"{self._protocol}: {len(partitions)} partitions were taken away")


class Applications:
    """The mirror and the pipeline, each a process of either release over the same state."""

    def __init__(self, bootstrap: str, directory: Path, commands: Sequence[Sequence[str]]) -> None:
        directory.mkdir()
        self._directory: Final = directory
        self._commands: Final = commands
        self._running: Final[list[subprocess.Popen[bytes]]] = []
        self._mirror: Final = directory / "mirror.properties"
        self._mirror.write_text(
            "clusters = east, west\n"
            f"east.bootstrap.servers = {bootstrap}\n"
            f"west.bootstrap.servers = {bootstrap}\n"
            "east->west.enabled = true\n"
            f"topics = {TOPIC}\n"
            "groups = readers-classic\n"
            "sync.group.offsets.enabled = true\n"
            "emit.checkpoints.interval.seconds = 1\n"
        )
        self.pipelines: Final = directory / "pipelines.yaml"
        self.pipelines.write_text(
            f"""
name: upgrade
storage: {directory}/storage
cluster: {{bootstrap.servers: "{bootstrap}"}}
spark: {{master: "local[2]", settings: {{spark.driver.memory: 512m}}}}
pipelines:
  - name: numbers
    from: {{topic: {TOPIC}, start: earliest}}
    to: {{table: lake.numbers, format: delta}}
    trigger: 500ms
    execution: direct
    restart: {{tries: 1000, backoff: 200ms, backoff_max: 1s}}
"""
        )

    def start(self, release: int) -> None:
        """Start both in a release."""
        for arguments in (("mirror", "run", self._mirror), ("pipeline", "run", self.pipelines)):
            with (self._directory / f"{arguments[0]}.log").open("ab") as log:
                command = [*self._commands[release], *map(str, arguments)]
                self._running.append(
                    subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                )

    def stop(self) -> None:
        """End both in order."""
        for process in self._running:
            process.terminate()
        for process in self._running:
            assert 0 == process.wait(WAIT_SECONDS), self.logs()
        self._running.clear()

    def kill(self) -> None:
        """End both at once. Twice is harmless."""
        for process in self._running:
            process.kill()
            process.wait()
        self._running.clear()

    def logs(self) -> str:
        """Return the end of both logs."""
        return "\n".join(each.read_text(errors="replace")[-4000:] for each in self._directory.glob("*.log"))


@pytest.fixture(scope="module", autouse=True)
def library_threads(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Open the sockets of deltalake, which live as long as the process."""
    schema = pa.schema([("id", pa.int64())])
    DeltaTable.create(str(tmp_path_factory.mktemp("delta")), schema).to_pyarrow_table()


@pytest.fixture
def commands(tmp_path: Path) -> list[Sequence[str]]:
    """What runs `kalda` of the release before, and of this one."""
    try:
        return [previous_command(tmp_path / "previous"), PRESENT]
    except NoPreviousReleaseError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["up and down", "down and up"])
def releases(request: pytest.FixtureRequest, commands: list[Sequence[str]]) -> list[Sequence[str]]:
    """The release that the cluster begins in, and the one that it goes to and comes back from."""
    return commands if request.param == "up and down" else commands[::-1]


@pytest.fixture
def cluster(tmp_path: Path, releases: list[Sequence[str]]) -> Iterator[RollingCluster]:
    """The cluster, in the first release."""
    made = RollingCluster(tmp_path / "cluster", releases)
    with made.running():
        create_topics(made.bootstrap)
        yield made


def test_brokers_change_their_release_under_load(
    cluster: RollingCluster, releases: list[Sequence[str]], tmp_path: Path
) -> None:
    ledger = Ledger(PARTITIONS)
    load = LibrdkafkaLoad(cluster.bootstrap, TOPIC, ledger, records_per_second=RECORDS_PER_SECOND)
    reader = LibrdkafkaReader(cluster.bootstrap, TOPIC, ledger)
    copier = tuple(copier_command(LIBRDKAFKA))
    copies = Copies(
        cluster.bootstrap, TOPIC, PARTITIONS, tmp_path, commands=(copier, copier), protocol="classic"
    )
    members = [GroupMember(cluster.bootstrap, protocol) for protocol in ("classic", "consumer")]
    applications = Applications(cluster.bootstrap, tmp_path / "applications", releases)
    with contextlib.ExitStack() as ends:
        for end in (load.abandon, copies.stop, reader.stop, applications.kill, *(m.stop for m in members)):
            ends.callback(end)
        reader.start()
        load.start()
        load.wait_progress(WAIT_SECONDS)
        copies.start()
        copies.wait_stable(time.monotonic() + WAIT_SECONDS)
        for member in members:
            member.start()
        applications.start(BEFORE)
        for release in (AFTER, BEFORE):
            for broker_id in range(3):
                cluster.change_broker(broker_id, release)
                changed = time.monotonic()
                load.wait_progress(WAIT_SECONDS)
                copies.wait_stable(changed)
                wait_in_sync(cluster.bootstrap)
            cluster.change_coordinator(release)
            load.wait_progress(WAIT_SECONDS)
            applications.stop()
            applications.start(release)
        load.stop()
        assert not load.errors, load.errors[:3]
        reader.wait_all_read()
        copies.wait_all_copied(load.produced)
        copies.check_no_open_transaction()
        wait_all(
            lambda: all(member.ledger.next_numbers == load.produced for member in members),
            lambda: [(load.produced, member.ledger.next_numbers, member.problems) for member in members],
        )
        check_mirror(cluster.bootstrap, load.produced)
        check_table(applications.pipelines, load.produced)
        applications.stop()
        for member in members:
            member.stop()
        wait_in_sync(cluster.bootstrap)
        copies.stop()
        reader.stop()
        cluster.stop()
    ledger.check_all_read()
    problems = [problem for each in members for problem in (*each.problems, *each.ledger.violations)]
    assert not [*ledger.violations, *reader.errors, *copies.problems, *problems]
    assert [1, 1] == [member.assignments for member in members], "no group was rebalanced"
    for partition in range(PARTITIONS):
        assert ledger.next_offsets[partition] == check_replicas(cluster.log_directories, TOPIC, partition)
        check_replicas(cluster.log_directories, COPIES, partition)


def wait_all(is_done: Callable[[], bool], what: Callable[[], object]) -> None:
    """Wait until something is true; name what there is if it does not come."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_done():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def check_mirror(bootstrap: str, produced: Sequence[int]) -> None:
    """Check that each partition of the copy has each number once, in order."""
    ledger = Ledger(PARTITIONS, is_dense=False)
    with Consumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False
    ) as consumer:
        consumer.assign([TopicPartition(MIRRORED, partition) for partition in range(PARTITIONS)])
        consumer.seek_to_beginning()

        def is_read() -> bool:
            for record in consumer.poll(timeout_s=0.5):
                ledger.read(Record(record.partition, record.offset, int(record.value or b"-1")))
            return ledger.next_numbers == list(produced) or bool(ledger.violations)

        wait_all(is_read, lambda: f"mirrored {ledger.next_numbers} of {produced}")
    assert not ledger.violations


def check_table(pipelines: Path, produced: Sequence[int]) -> None:
    """Check that the table of the pipeline has each number of each partition once."""
    (spec,) = read_pipeline_file(pipelines).pipelines
    assert isinstance(spec.target, TableSpec)
    table = open_table(spec.target)
    expected = sorted(
        (partition, number) for partition, count in enumerate(produced) for number in range(count)
    )
    found: list[tuple[int, int]] = []

    def is_there() -> bool:
        batches = table.read(["partition", "value"]) if table.version() is not None else ()
        found[:] = [(row["partition"], int(row["value"])) for batch in batches for row in batch.to_pylist()]
        return len(found) >= len(expected)

    wait_all(is_there, lambda: f"{len(found)} rows of {len(expected)} are in the table")
    assert expected == sorted(found)
