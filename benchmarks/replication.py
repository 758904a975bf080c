"""Three brokers, replication 3, min ISR 2, acks=all: throughput, latency, memory, and the cost of idling."""

import tempfile
import time
from pathlib import Path
from typing import Final

import confluent_kafka.admin
import psutil

from benchmarks import end_to_end
from benchmarks.apache_kafka_cluster import ApacheKafkaCluster
from benchmarks.end_to_end import Figure, Workload
from benchmarks.footprint import memory_mb
from kalda.testing import ProcessCluster

BROKERS: Final = 3
WORKLOADS: Final = tuple(
    Workload(
        f"replication 3, acks=all, {partitions} partition{'s' if partitions > 1 else ''}",
        "all",
        partitions,
        BROKERS,
        {"min.insync.replicas": "2"},
    )
    for partitions in (1, 3)
)
_IDLE_TOPICS: Final = 20
_IDLE_PARTITIONS: Final = 100
_IDLE_SECONDS: Final = 10.0


def run() -> list[Figure]:
    """Measure Kalda."""
    with tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory:
        with ProcessCluster(Path(directory) / "load", brokers=BROKERS) as cluster:
            figures = _measure(cluster.bootstrap)
            figures.append(("memory of 3 brokers, after load", _memory(cluster.broker_pids), "MB"))
            coordinator = [cluster.coordinator_pid]
            figures.append(("memory of the coordinator", _memory(coordinator), "MB"))
            figures.append(("start of 3 brokers and their coordinator", cluster.start_seconds, "s"))
        with ProcessCluster(Path(directory) / "idle", brokers=BROKERS) as cluster:
            figures += _idle(cluster)
    return figures


def run_apache_kafka() -> list[Figure]:
    """Measure Apache Kafka under the same labels.

    Raises:
        NotAvailableError: it cannot be had here.
    """
    with ApacheKafkaCluster() as cluster:
        figures = _measure(cluster.bootstrap)
        figures.append(("memory of 3 brokers, after load", _memory(cluster.pids), "MB"))
        figures.append(("start of 3 brokers and their coordinator", cluster.start_seconds, "s"))
    return figures


def _measure(bootstrap: str) -> list[Figure]:
    return [figure for workload in WORKLOADS for figure in end_to_end.run(bootstrap, workload)]


def _memory(pids: list[int]) -> float:
    return sum(memory_mb(pid) for pid in pids)


def _idle(cluster: ProcessCluster) -> list[Figure]:
    """What 2,000 replicated partitions cost while nothing happens."""
    many = f"{_IDLE_TOPICS * _IDLE_PARTITIONS} partitions x 3"
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    begin = time.perf_counter()
    for number in range(_IDLE_TOPICS):
        topic = confluent_kafka.admin.NewTopic(f"idle-{number:02}", _IDLE_PARTITIONS, BROKERS)
        admin.create_topics([topic], operation_timeout=60, request_timeout=60)[topic.topic].result(90)
    created_seconds = time.perf_counter() - begin
    time.sleep(5)
    processes = [psutil.Process(pid) for pid in cluster.broker_pids]
    before = [sum(process.cpu_times()[:2]) for process in processes]
    time.sleep(_IDLE_SECONDS)
    used = [sum(process.cpu_times()[:2]) - start for process, start in zip(processes, before, strict=True)]
    return [
        (f"{many}: created in", created_seconds, "s"),
        (f"{many}: CPU of the busiest broker when idle", max(used) / _IDLE_SECONDS * 100, "%"),
        (f"{many}: memory of 3 brokers", _memory(cluster.broker_pids), "MB"),
    ]
