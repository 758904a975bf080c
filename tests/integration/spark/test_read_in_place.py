"""Reading in place next to real brokers: what passes their sockets, and what they do meanwhile.

The reader is the one that Spark's tasks use; no Spark is started.
"""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kalda import Admin, Producer
from kalda.clients.admin.configs import AlterConfigOp, ConfigResource
from kalda.clients.admin.topics import NewTopic
from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.net.metrics_text import render
from kalda.records.columnar import decode_batches
from kalda.records.errors import CorruptRecordError
from kalda.spark.source import mapped_segment
from kalda.spark.source.data_loss import DataLossError
from kalda.spark.source.options import parse_batch_options
from kalda.spark.source.plan import OffsetRange
from kalda.spark.source.range_reader import open_range
from kalda.spark.source.read_counters import ReadCounters
from kalda.spark.source.segment_reader import NotInPlaceError, unseen_leaders
from kalda.testing import Cluster

COUNT = 4000
SETTINGS = {
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "log.segment.delete.delay.ms": "0",
}
Row = tuple[int, bytes]


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many parts for little data: something can happen between any two of them."""
    monkeypatch.setattr(mapped_segment, "WINDOW_BYTES", 16 * 1024)
    unseen_leaders.clear()


@pytest.fixture(scope="module")
def broker() -> Iterator[Cluster]:
    with Cluster(brokers=1, settings=SETTINGS) as cluster:
        yield cluster


class Reading:
    """One range, part by part."""

    def __init__(
        self, cluster: Cluster, topic: str, end: int = COUNT, topic_id: UUID = ZERO_UUID, **given: str
    ) -> None:
        fixed = {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribe": topic,
            "kafka.fetch.max.wait.ms": "50",
            "kafka.request.timeout.ms": "3000",
        }
        self.options = parse_batch_options(fixed | given)
        self.counters = ReadCounters()
        self.rows: list[Row] = []
        self._end = end
        self._reader = LogReader(self.options.client)
        self._range = OffsetRange(TopicPartition(topic, 0), 0, end, topic_id=topic_id)
        self._parts = open_range(self._reader, self.options, self._range, self.counters)

    def again(self, topic_id: UUID) -> "Reading":
        """Read the range as that of another topic of the same name, with the same connections."""
        offset_range = replace(self._range, topic_id=topic_id)
        self._parts = open_range(self._reader, self.options, offset_range, self.counters)
        return self

    def next(self) -> bool:
        for position, part in self._parts:
            data, start = memoryview(part.records), position
            decoded = decode_batches(
                data, start_offset=start, end_offset=self._end, aborted=part.aborted_transactions
            )
            self.rows += zip(decoded.offsets.to_pylist(), decoded.values.to_pylist(), strict=True)
            return True
        return False

    def all(self) -> "Reading":
        while self.next():
            pass
        return self

    def close(self) -> None:
        cast("Any", self._parts).close()
        self._reader.close()


@contextmanager
def reading(cluster: Cluster, topic: str, **given: Any) -> Iterator[Reading]:
    made = Reading(cluster, topic, **given)
    try:
        yield made
    finally:
        made.close()


def fill(
    cluster: Cluster, topic: str, replicas: int = 1, keys: int = COUNT, segment_bytes: int = 20_000
) -> list[Row]:
    """Create a topic of one partition with `COUNT` records in several segments."""
    configs = {"segment.bytes": str(segment_bytes)}
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions=1, replication_factor=replicas, config=configs)])
    cluster.wait_in_sync(topic)
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=5, acks="all", batch_size=4000) as producer:
        for number in range(COUNT):
            producer.send(topic, value=b"value %d" % number, key=b"%d" % (number % keys))
        producer.flush(timeout_s=30)
    return [(number, b"value %d" % number) for number in range(COUNT)]


def bytes_out(cluster: Cluster, topic: str) -> int:
    """Return the broker's BytesOut of the topic, from its metrics page."""
    page = render(cluster.server(0).parts.context.metrics).decode()
    found = re.search(
        rf'^kafka_server_brokertopicmetrics_bytesout_total{{topic="{topic}"}} (\S+)$', page, re.MULTILINE
    )
    return 0 if found is None else int(float(found[1]))


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.05)


def size_of(directory: Path) -> int:
    """Return the bytes of the segments that are there; a broker may remove some meanwhile."""
    sizes = []
    for file in directory.glob("*.log"):
        with suppress(FileNotFoundError):
            sizes.append(file.stat().st_size)
    return sum(sizes)


def leader_directory(cluster: Cluster, topic: str, broker_id: int = 0) -> Path:
    log = cluster.server(broker_id).services.log_manager.get(TopicPartition(topic, 0))
    assert log is not None
    return Path(log.directory)


def alter(cluster: Cluster, topic: str, name: str, value: str) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        changes = {ConfigResource.topic(topic): [AlterConfigOp.set(name, value)]}
        admin.incremental_alter_configs(changes)


def test_the_brokers_socket_carries_no_record(broker: Cluster) -> None:
    expected = fill(broker, "socket")

    with reading(broker, "socket") as read:
        assert expected == read.all().rows
        assert (0, {}) == (read.counters.bytes_fetched, dict(read.counters.fallbacks))
        assert read.counters.bytes_in_place > 80_000
    assert 0 == bytes_out(broker, "socket")

    with reading(broker, "socket", readMode="network") as read:
        assert expected == read.all().rows
        assert 0 == read.counters.bytes_in_place
    assert bytes_out(broker, "socket") > 80_000


def topic_id_of(cluster: Cluster, topic: str) -> UUID:
    with LogReader(LogReaderConfig.from_options({"bootstrap_servers": cluster.bootstrap})) as reader:
        return reader.metadata([topic]).topic_id(topic)


@pytest.mark.parametrize(
    ("mode", "failure", "message"),
    [
        ("network", DataLossError, "created again"),
        ("auto", DataLossError, "created again"),
        ("files", NotInPlaceError, "does not host a topic with this id"),
    ],
)
def test_a_topic_created_again_after_the_plan_is_not_read(
    broker: Cluster, mode: str, failure: type[Exception], message: str
) -> None:
    """The new topic has records at all of the offsets. The reader knew the former one, as workers do."""
    topic = f"reborn-{mode}"
    expected = fill(broker, topic)
    former = topic_id_of(broker, topic)

    with reading(broker, topic, readMode=mode, topic_id=former) as read:
        assert expected == read.all().rows
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.delete_topics([topic])
        fill(broker, topic)
        with pytest.raises(failure, match=message):
            read.again(former).all()
        read.rows.clear()
        # Another query, in the same worker.
        assert expected == read.again(topic_id_of(broker, topic)).all().rows


def test_two_ends_of_a_range_over_several_segments(broker: Cluster) -> None:
    expected = fill(broker, "ends")
    assert len(list(leader_directory(broker, "ends").glob("*.log"))) > 3

    with reading(broker, "ends", end=3333) as read:
        assert expected[:3333] == read.all().rows


def test_retention_and_delete_records_wait_for_the_reader(broker: Cluster) -> None:
    expected = fill(broker, "retained")
    directory = leader_directory(broker, "retained")
    before = sorted(directory.glob("*.log"))

    with reading(broker, "retained") as read:
        assert read.next()
        alter(broker, "retained", "retention.bytes", "0")
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.delete_records({TopicPartition("retained", 0): 2000})
        time.sleep(1.0)
        assert before == sorted(directory.glob("*.log"))[: len(before)]
        assert expected == read.all().rows
        assert {} == dict(read.counters.fallbacks)
    wait_until(lambda: not set(before) & set(directory.glob("*.log")))


def test_compaction_waits_for_the_reader(broker: Cluster) -> None:
    expected = fill(broker, "compacted", keys=10)
    directory = leader_directory(broker, "compacted")
    size = size_of(directory)

    with reading(broker, "compacted") as read:
        assert read.next()
        alter(broker, "compacted", "cleanup.policy", "compact")
        time.sleep(1.0)
        assert size == size_of(directory)
        assert expected == read.all().rows
    wait_until(lambda: size_of(directory) < size / 2)

    def is_read_in_place() -> bool:
        with reading(broker, "compacted") as read, reading(broker, "compacted", readMode="network") as other:
            rows = read.all().rows
            return not read.counters.fallbacks and rows == other.all().rows and 0 < len(rows) < COUNT / 2

    # What is left is read in place, with the gaps that a fetch shows; the cleaner may be at work until then.
    wait_until(is_read_in_place)


def test_a_topic_that_is_deleted_meanwhile_is_read_as_far_as_it_is_mapped(broker: Cluster) -> None:
    expected = fill(broker, "deleted", segment_bytes=10_000_000)

    with reading(broker, "deleted") as read:
        assert read.next()
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.delete_topics(["deleted"])
        assert expected == read.all().rows


def test_a_damaged_batch_is_fetched_and_refused_by_the_decoder_there(broker: Cluster) -> None:
    """The broker serves the same bytes: the error is that of a fetch, and the metric names the cause."""
    fill(broker, "damaged")
    file = sorted(leader_directory(broker, "damaged").glob("*.log"))[1]
    with file.open("r+b") as opened:
        opened.seek(-10, 2)
        last = opened.read(1)
        opened.seek(-10, 2)
        opened.write(bytes([last[0] ^ 1]))

    with reading(broker, "damaged") as read, pytest.raises(CorruptRecordError):
        read.all()

    assert 1 == read.counters.fallbacks["corrupt"]
    assert 1 <= broker.server(0).services.lease_grants.fallbacks["corrupt"]  # type: ignore[union-attr]


def test_a_killed_reader_holds_files_no_longer_than_its_lease(tmp_path: Path) -> None:
    settings = SETTINGS | {"kalda.read.lease.ms": "3000"}
    with Cluster(brokers=1, settings=settings, directory=tmp_path) as cluster:
        fill(cluster, "killed")
        directory = leader_directory(cluster, "killed")
        before = set(directory.glob("*.log"))
        grants = cluster.server(0).services.lease_grants
        assert grants is not None
        program = (
            "import sys, time; from tests.integration.spark.test_read_in_place import read_one_part; "
            "read_one_part(sys.argv[1], 'killed'); print('reading', flush=True); time.sleep(600)"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program, cluster.bootstrap], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert "reading\n" == process.stdout.readline()
            alter(cluster, "killed", "retention.bytes", "0")
            process.kill()

        def are_removed() -> bool:
            files = set(directory.glob("*.log"))
            # Retention ends an expired lease before it removes a file.
            assert before <= files or not len(grants._leases)
            return not before & files

        wait_until(are_removed)


def read_one_part(bootstrap: str, topic: str) -> None:
    """Hold a lease; called in a process of its own."""
    cluster = cast("Cluster", SimpleNamespace(bootstrap=bootstrap))
    mapped_segment.WINDOW_BYTES = 16 * 1024  # type: ignore[misc]
    kept.append(Reading(cluster, topic))
    assert kept[0].next()


kept: list[Reading] = []


def test_a_broker_that_restarts_meanwhile(tmp_path: Path) -> None:
    """It does not know the lease any more, and its log is as long as it was."""
    with Cluster(brokers=1, settings=SETTINGS, directory=tmp_path) as cluster:
        expected = fill(cluster, "restarted")
        with reading(cluster, "restarted") as read:
            assert read.next()
            cluster.kill(0)
            cluster.start(0)
            assert expected == read.all().rows
            assert {"lease_lost": 1} == dict(read.counters.fallbacks)
            assert 0 == read.counters.bytes_fetched


def test_leaders_that_die_and_come_back(tmp_path: Path) -> None:
    """Three brokers on one machine: whoever leads, its files can be read."""
    settings = SETTINGS | {"min.insync.replicas": "1"}
    with Cluster(brokers=3, settings=settings, directory=tmp_path) as cluster:
        expected = fill(cluster, "moved", replicas=3)
        with reading(cluster, "moved") as read:
            assert read.next()
            leader = read._reader.known_leader_id(TopicPartition("moved", 0))
            cluster.kill(leader, expire_session=True)
            # The files of the dead leader are still there.
            assert expected == read.all().rows
            assert 0 == read.counters.bytes_fetched
        with reading(cluster, "moved") as read:
            assert expected == read.all().rows
            assert leader != read._reader.known_leader_id(TopicPartition("moved", 0))
            assert {} == dict(read.counters.fallbacks)
        cluster.start(leader)


def test_a_broker_without_leases_is_fetched_from(tmp_path: Path) -> None:
    settings = SETTINGS | {"kalda.read.lease.enable": "false"}
    with Cluster(brokers=1, settings=settings, directory=tmp_path) as cluster:
        expected = fill(cluster, "fetched")
        with reading(cluster, "fetched") as read:
            assert expected == read.all().rows
            assert ({"unsupported": 1}, 0) == (dict(read.counters.fallbacks), read.counters.bytes_in_place)
        with (
            reading(cluster, "fetched", readMode="files") as read,
            pytest.raises(NotInPlaceError, match=r"kalda\.read\.lease\.enable"),
        ):
            read.all()
