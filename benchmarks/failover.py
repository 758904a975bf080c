"""How long partitions are out of service: a leader killed, a broker shut down, a controller lost.

A prober asks every broker, every few milliseconds, to take one record with acks=all for each watched
partition; whoever leads takes it. So the gaps are the cluster's own, without a client's pauses and metadata.
"""

import asyncio
import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import confluent_kafka
import confluent_kafka.admin
from kazoo.client import KazooClient

from benchmarks.end_to_end import Figure
from kalda.common.api_keys import ApiKey
from kalda.net.client.broker_connection import BrokerConnection
from kalda.net.client.client_errors import ClientError
from kalda.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kalda.records.record import RecordBatchBuilder
from kalda.testing import ProcessCluster

_BROKERS: Final = 3
SESSION_TIMEOUT_MS: Final = 2_000
_TOPIC: Final = "probed"
_PARTITIONS: Final = 12
_MANY_PARTITIONS: Final = 1_000
_REQUEST_TIMEOUT_MS: Final = 1_000
_PROBE_PAUSE_SECONDS: Final = 0.002
_PROBE_TIMEOUT_SECONDS: Final = 5.0
_PRODUCE_VERSION_MAX: Final = 12
"""The last version that names topics by name."""
_WAIT_SECONDS: Final = 60.0
_SETTLE_SECONDS: Final = 3.0
_ROUNDS: Final = 3
_SAMPLE: Final = 10
"""Topics that are asked for before all of them are."""


class Prober:
    """Notes when each watched partition took a record."""

    def __init__(self, addresses: Sequence[str], topic: str, partitions: Sequence[int]) -> None:
        self._topic = topic
        self._partitions = list(partitions)
        self.taken: dict[int, list[float]] = {partition: [] for partition in partitions}
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._probe, args=(address,), name=f"probe {address}")
            for address in addresses
        ]

    def __enter__(self) -> "Prober":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def longest_gap_seconds(self, since: float) -> float:
        """The longest time, from `since` on, for which some partition took nothing."""
        gaps = [0.0]
        for times in self.taken.values():
            seen = [since, *(each for each in sorted(times) if each > since)]
            gaps += [later - earlier for earlier, later in itertools.pairwise(seen)]
        return max(gaps)

    def wait_all_taken(self, since: float) -> float:
        """Wait until every partition has taken a record after `since`; return when the last did so first."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < deadline:
            firsts = [min((t for t in times if t > since), default=None) for times in self.taken.values()]
            if all(first is not None for first in firsts):
                return max(first for first in firsts if first is not None)
            time.sleep(0.01)
        raise RuntimeError(f"partitions of {self._topic} were still out of service after {_WAIT_SECONDS} s")

    def _probe(self, address: str) -> None:
        asyncio.run(self._probe_until_stopped(address))

    async def _probe_until_stopped(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        connection: BrokerConnection | None = None
        while not self._stop.is_set():
            try:
                if connection is None or connection.is_closed:
                    connection = await BrokerConnection.open(
                        host, int(port), client_id="prober", timeout_seconds=_PROBE_TIMEOUT_SECONDS
                    )
                version = connection.versions.latest(ApiKey.PRODUCE, _PRODUCE_VERSION_MAX)
                response = await connection.send(self._request(), version, _PROBE_TIMEOUT_SECONDS)
            except ClientError:
                await asyncio.sleep(0.01)
                continue
            assert isinstance(response, ProduceResponse), f"a {type(response).__name__}"
            now = time.monotonic()
            for partition in response.responses[0].partition_responses:
                if partition.error_code == 0:
                    self.taken[partition.index].append(now)
            await asyncio.sleep(_PROBE_PAUSE_SECONDS)
        if connection is not None:
            connection.close()

    def _request(self) -> ProduceRequest:
        data = []
        for partition in self._partitions:
            builder = RecordBatchBuilder()
            builder.append(timestamp=int(time.time() * 1000), key=None, value=b"x")
            data.append(PartitionProduceData(index=partition, records=bytes(builder.build())))
        return ProduceRequest(
            acks=-1,
            timeout_ms=_REQUEST_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self._topic, partition_data=data)],
        )


def run() -> list[Figure]:
    """Measure each kind of loss a few times; the worst is reported."""
    figures: list[Figure] = []
    settings = {"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS), "min.insync.replicas": "2"}
    with (
        tempfile.TemporaryDirectory(prefix="kalda-failover-") as directory,
        ProcessCluster(Path(directory), brokers=_BROKERS, settings=settings) as cluster,
    ):
        create_topic(cluster.bootstrap, _TOPIC, _PARTITIONS)
        killed = [_killed_leader_seconds(cluster, number % _BROKERS) for number in range(_ROUNDS)]
        figures.append(("killed leader: out of service after its session's end", max(killed), "s"))
        gaps = [_shutdown_gap_seconds(cluster, number % _BROKERS) for number in range(_ROUNDS)]
        figures.append(("controlled shutdown: longest gap of a partition", max(gaps) * 1000, "ms"))
        create_topic(cluster.bootstrap, "many", _MANY_PARTITIONS)
        lost = [controller_failover_seconds(cluster) for _ in range(_ROUNDS)]
        label = f"controller killed, {_MANY_PARTITIONS} partitions: all led after its session's end"
        figures.append((label, max(lost), "s"))
    return figures


def _killed_leader_seconds(cluster: ProcessCluster, victim: int) -> float:
    led = led_by(cluster.bootstrap, _TOPIC, victim)
    with Prober(cluster.bootstrap.split(","), _TOPIC, led) as prober:
        prober.wait_all_taken(time.monotonic())
        with _Registration(cluster.zookeeper, f"/brokers/ids/{victim}") as registration:
            cluster.kill(victim)
            ended = registration.wait_gone()
        seconds = prober.wait_all_taken(ended) - ended
    bring_back(cluster, victim)
    return seconds


def _shutdown_gap_seconds(cluster: ProcessCluster, victim: int) -> float:
    led = led_by(cluster.bootstrap, _TOPIC, victim)
    with Prober(cluster.bootstrap.split(","), _TOPIC, led) as prober:
        begin = time.monotonic()
        prober.wait_all_taken(begin)
        cluster.stop(victim)
        prober.wait_all_taken(time.monotonic())
        gap = prober.longest_gap_seconds(begin)
    bring_back(cluster, victim)
    return gap


def controller_failover_seconds(cluster: ProcessCluster) -> float:
    """Kill the controller; return the seconds from its session's end until all partitions are led."""
    metadata = _metadata(cluster.bootstrap)
    victim, topics = metadata.controller_id, sorted(metadata.topics)
    others = [each for number, each in enumerate(cluster.bootstrap.split(",")) if number != victim]
    with _Registration(cluster.zookeeper, "/controller") as registration:
        cluster.kill(victim)
        ended = registration.wait_gone()
    otherwise = "some partitions are not known to be led"
    # Metadata of all of many topics takes brokers and client long: a few topics first.
    for topic in (*topics[:: max(1, len(topics) // _SAMPLE)], None):
        for address in others:
            _wait(partial(_all_led, address, victim, topic), otherwise)
    seconds = time.monotonic() - ended
    bring_back(cluster, victim)
    return seconds


class _Registration:
    """Sees an ephemeral znode vanish."""

    def __init__(self, hosts: str, path: str) -> None:
        self._client = KazooClient(hosts)
        self._path = path
        self._gone = threading.Event()
        self._at = 0.0

    def __enter__(self) -> "_Registration":
        self._client.start()
        self._client.exists(self._path, watch=self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()

    def wait_gone(self) -> float:
        """Return the monotonic time at which it vanished."""
        if not self._gone.wait(_WAIT_SECONDS):
            raise RuntimeError(f"{self._path} is still there after {_WAIT_SECONDS} s")
        return self._at

    def _on_event(self, _: object) -> None:
        self._at = time.monotonic()
        self._gone.set()


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    """Create a topic with a replica on each broker."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    topic = confluent_kafka.admin.NewTopic(name, partitions, _BROKERS)
    admin.create_topics([topic], operation_timeout=60, request_timeout=60)[name].result(90)
    time.sleep(_SETTLE_SECONDS)


def _metadata(bootstrap: str, topic: str | None = None) -> confluent_kafka.admin.ClusterMetadata:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return admin.list_topics(topic, timeout=10)


def led_by(bootstrap: str, topic: str, broker: int) -> list[int]:
    """Return the partitions of a topic that a broker leads; at least one."""
    partitions = _metadata(bootstrap).topics[topic].partitions
    led = [number for number, partition in partitions.items() if partition.leader == broker]
    if not led:
        raise RuntimeError(f"broker {broker} leads no partition of {topic}")
    return led


def _all_led(address: str, dead: int, topic: str | None) -> bool:
    """Return whether the broker knows a living leader of each partition of a topic, or of all topics."""
    topics = _metadata(address, topic).topics
    leaders = [p.leader for topic in topics.values() for p in topic.partitions.values()]
    return bool(leaders) and all(leader not in (-1, dead) for leader in leaders)


def bring_back(cluster: ProcessCluster, broker: int) -> None:
    """Start a broker and wait until it is in sync, then have it lead again what it prefers to lead."""
    cluster.start(broker)
    _wait(lambda: _all_in_sync(cluster.bootstrap), f"replicas stay behind after the return of {broker}")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED).result(30)
    time.sleep(_SETTLE_SECONDS)


def _all_in_sync(bootstrap: str) -> bool:
    topics = _metadata(bootstrap).topics.values()
    return all(len(p.isrs) == len(p.replicas) for topic in topics for p in topic.partitions.values())


def _wait(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(otherwise)
        time.sleep(0.02)
