"""The same cluster on ZooKeeper and on etcd, with one and three servers: topics created, and a leader killed.

ZooKeeper comes from the jars in PySpark's wheel and needs Java; etcd is the one on the PATH. Both sync their
logs. The time after a kill is counted from the kill, so it contains the end of the session.
"""

import itertools
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import confluent_kafka.admin

from benchmarks.apache_kafka import NotAvailableError
from benchmarks.coordination import zookeeper
from benchmarks.end_to_end import Figure
from benchmarks.failover import Prober, bring_back, create_topic, led_by
from kalda.testing import ProcessCluster
from kalda.testing.ports import free_ports

_SERVERS: Final = (1, 3)
_BROKERS: Final = 3
_SESSION_TIMEOUT_MS: Final = 6_000
_TOPICS: Final = 40
_PARTITIONS: Final = 10
_ROUNDS: Final = 3


def run() -> list[Figure]:
    """Measure a cluster of three brokers on each engine that can be had."""
    figures: list[Figure] = []
    for servers, (engine, start) in itertools.product(_SERVERS, (("ZooKeeper", _zookeeper), ("etcd", _etcd))):
        name = f"{engine}, {servers} {'server' if servers == 1 else 'servers'}"
        try:
            with start(servers) as address:
                figures += [(f"{name}: {label}", value, unit) for label, value, unit in _measure(address)]
        except NotAvailableError as error:
            print(f"{engine} is not measured: {error}", file=sys.stderr)
    return figures


def _measure(address: str) -> list[Figure]:
    settings = {"zookeeper.session.timeout.ms": str(_SESSION_TIMEOUT_MS), "min.insync.replicas": "2"}
    with (
        tempfile.TemporaryDirectory(prefix="kalda-engines-") as directory,
        ProcessCluster(Path(directory), brokers=_BROKERS, zookeeper=address, settings=settings) as cluster,
    ):
        created = [_creation_seconds(cluster, f"topic-{number}") for number in range(_TOPICS)]
        create_topic(cluster.bootstrap, "probed", _PARTITIONS)
        killed = [_killed_leader_seconds(cluster, number % _BROKERS) for number in range(_ROUNDS)]
    return [
        (f"topic of {_PARTITIONS} partitions created", statistics.median(created) * 1000, "ms"),
        ("killed leader: out of service", statistics.median(killed), "s"),
    ]


def _creation_seconds(cluster: ProcessCluster, name: str) -> float:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.list_topics(timeout=10)
    topic = confluent_kafka.admin.NewTopic(name, _PARTITIONS, _BROKERS)
    begin = time.monotonic()
    admin.create_topics([topic], operation_timeout=60, request_timeout=60)[name].result(90)
    return time.monotonic() - begin


def _killed_leader_seconds(cluster: ProcessCluster, victim: int) -> float:
    led = led_by(cluster.bootstrap, "probed", victim)
    with Prober(cluster.bootstrap.split(","), "probed", led) as prober:
        prober.wait_all_taken(time.monotonic())
        begin = time.monotonic()
        cluster.kill(victim)
        seconds = prober.wait_all_taken(begin + _IN_FLIGHT_SECONDS) - begin
    bring_back(cluster, victim)
    return seconds


_IN_FLIGHT_SECONDS: Final = 0.5
"""Responses of a killed broker may be read within this time after the kill."""


@contextmanager
def _zookeeper(servers: int) -> Iterator[str]:
    with zookeeper(servers) as (hosts, _):
        yield hosts


@contextmanager
def _etcd(servers: int) -> Iterator[str]:
    if shutil.which("etcd") is None:
        raise NotAvailableError("there is no 'etcd' on the PATH")
    urls = [f"http://127.0.0.1:{port}" for port in free_ports(2 * servers)]
    clients, peers = urls[:servers], urls[servers:]
    members = ",".join(f"m{number}={peer}" for number, peer in enumerate(peers))
    with tempfile.TemporaryDirectory(prefix="etcd-bench-") as directory, ExitStack() as processes:
        for number, (client, peer) in enumerate(zip(clients, peers, strict=True)):
            process = subprocess.Popen(
                [
                    *("etcd", "--name", f"m{number}", "--data-dir", f"{directory}/{number}"),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", members),
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            processes.callback(process.wait)
            processes.callback(process.kill)
        yield "etcd://" + ",".join(client.removeprefix("http://") for client in clients)
