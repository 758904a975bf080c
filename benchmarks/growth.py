"""How costs grow: an active connection beside many idle ones, and idle partitions on three brokers."""

import resource
import socket
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.end_to_end import Figure, create_topic
from benchmarks.failover import SESSION_TIMEOUT_MS, controller_failover_seconds
from benchmarks.footprint import memory_mb
from benchmarks.request_rate import Connections, processor_seconds, produce_frame
from kalda import Admin, NewTopic, Producer
from kalda.testing import KaldaProcess, ProcessCluster

_CONNECTIONS: Final = (10, 100, 1_000, 10_000)
_PARTITIONS: Final = (2_000, 20_000)
_TOPIC_PARTITIONS: Final = 100
_BUSY_CONNECTIONS: Final = 200
_SECONDS: Final = 4.0
_IDLE_SECONDS: Final = 20.0
_SPARE_DESCRIPTORS: Final = 500


def run() -> list[Figure]:
    """Measure connections on one broker, then partitions on three."""
    return [*_connections(), *_brokers(), *(figure for count in _PARTITIONS for figure in _partitions(count))]


def _connections() -> list[Figure]:
    """Measure one record in flight on one connection while others are open and idle."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(_CONNECTIONS) + _SPARE_DESCRIPTORS
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, hard)), hard))
    figures: list[Figure] = []
    settings = {"max.connections.per.ip": str(wanted)}
    with (
        tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory,
        KaldaProcess(Path(directory), settings=settings) as broker,
        ExitStack() as stack,
    ):
        create_topic(broker.bootstrap, "requests")
        host, _, port = broker.bootstrap.rpartition(":")
        idle: list[socket.socket] = []
        for count in _CONNECTIONS:
            while len(idle) < count:
                idle.append(stack.enter_context(socket.create_connection((host, int(port)), 30)))
            time.sleep(1.0)
            before = processor_seconds(broker.pid)
            time.sleep(_IDLE_SECONDS / 4)
            used = (processor_seconds(broker.pid) - before) / _IDLE_SECONDS * 4 * 100
            with Connections(host, int(port), produce_frame("requests"), 1) as active:
                active.drive(1.0)
                before = processor_seconds(broker.pid)
                done, seconds = active.drive(_SECONDS)
                spent = processor_seconds(broker.pid) - before
            label = f"{count} idle connections"
            figures += [
                (f"one request in flight beside {label}", seconds / done * 1e6, "us"),
                (f"processor time of a request beside {label}", spent / done * 1e6, "us"),
                (f"processor time of {label}", used, "% of a core"),
                (f"memory with {label}", memory_mb(broker.pid), "MB"),
            ]
    return figures


def _brokers() -> list[Figure]:
    """Measure one-record requests over all connections, which several brokers share."""
    figures: list[Figure] = []
    for count in (1, 2):
        with (
            tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory,
            ProcessCluster(Path(directory), brokers=count) as cluster,
            Admin(bootstrap_servers=cluster.bootstrap) as admin,
        ):
            admin.create_topics([NewTopic("requests", count, 1)])
            partitions = dict(admin.describe_topics(["requests"]))["requests"].partitions
            busy: Connections | None = None
            for partition in partitions:
                host, _, port = cluster.bootstrap.split(",")[partition.leader_id].rpartition(":")
                frame = produce_frame("requests", partition.partition)
                if busy is None:
                    busy = Connections(host, int(port), frame, _BUSY_CONNECTIONS // count)
                else:
                    busy.add(host, int(port), frame, _BUSY_CONNECTIONS // count)
            assert busy is not None
            with busy:
                busy.drive(1.0)
                before = [processor_seconds(pid) for pid in cluster.broker_pids]
                done, seconds = busy.drive(_SECONDS)
                after = [processor_seconds(pid) for pid in cluster.broker_pids]
            label = f"{count} brokers, {_BUSY_CONNECTIONS} busy connections"
            figures += [
                (f"one-record produce requests, {label}", done / seconds / 1000, "k/s"),
                (f"processor time of a request, {label}", (sum(after) - sum(before)) / done * 1e6, "us"),
            ]
    return figures


def _partitions(count: int) -> list[Figure]:
    """Measure start, idle cost and failover of three brokers with partitions of two replicas."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory:
        root = Path(directory)
        settings = {"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS)}
        with (
            ProcessCluster(root, brokers=3, settings=settings) as cluster,
            Admin(bootstrap_servers=cluster.bootstrap) as admin,
        ):
            began = time.monotonic()
            for number in range(count // _TOPIC_PARTITIONS):
                admin.create_topics([NewTopic(f"t{number}", _TOPIC_PARTITIONS, 2)])
            figures.append((f"{count} partitions: created in", time.monotonic() - began, "s"))
            _fill(cluster, count)
            time.sleep(5.0)
            before = [processor_seconds(pid) for pid in cluster.broker_pids]
            time.sleep(_IDLE_SECONDS)
            used = [
                processor_seconds(pid) - was for pid, was in zip(cluster.broker_pids, before, strict=True)
            ]
            for broker, seconds in enumerate(used):
                figures.append(
                    (f"{count} partitions: broker {broker} idle", seconds / _IDLE_SECONDS * 100, "%")
                )
            figures += _active(cluster, count)
            memory = statistics.mean(memory_mb(pid) for pid in cluster.broker_pids)
            figures.append((f"{count} partitions: memory of a broker", memory, "MB"))
            seconds = controller_failover_seconds(cluster)
            label = f"{count} partitions: controller killed, all led after its session's end"
            figures.append((label, seconds, "s"))
            cluster.stop_all(60.0)
            began = time.monotonic()
            cluster.start_coordinator()
            with ThreadPoolExecutor() as pool:
                list(pool.map(cluster.start, range(3)))
            figures.append((f"{count} partitions: start of the cluster", time.monotonic() - began, "s"))
    return figures


def _active(cluster: ProcessCluster, count: int) -> list[Figure]:
    """Measure the same with a record a second for one partition in a hundred, the first of each topic."""
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
        before = [processor_seconds(pid) for pid in cluster.broker_pids]
        began = time.monotonic()
        for second in range(1, int(_IDLE_SECONDS) + 1):
            for number in range(count // _TOPIC_PARTITIONS):
                producer.send(f"t{number}", b"x" * 200, partition=0)
            time.sleep(max(0.0, began + second - time.monotonic()))
        used = [processor_seconds(pid) - was for pid, was in zip(cluster.broker_pids, before, strict=True)]
    return [
        (f"{count} partitions: broker {broker}, 1 % active", seconds / _IDLE_SECONDS * 100, "%")
        for broker, seconds in enumerate(used)
    ]


def _fill(cluster: ProcessCluster, count: int) -> None:
    """Write a record to each partition: empty ones are a special case at a start."""
    with Producer(bootstrap_servers=cluster.bootstrap, linger_ms=100) as producer:
        for number in range(count):
            producer.send(f"t{number // _TOPIC_PARTITIONS}", b"x", partition=number % _TOPIC_PARTITIONS)
        producer.flush(60)
