"""How well quotas hold: each kind, for each combination of user and client id, on one broker and on three.

The clients run at the same time, each in a process of its own and above its quota; the figures are what each
got over 30 s, in percent of its quota. The first window, in which a quota allows a burst, is not measured.
Another client sends one record at a time, before and while one of them is throttled.

The quota of request time is compared with the processor time of the brokers: clients that send equal requests
share it by their numbers of requests.
"""

import json
import multiprocessing
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final, NamedTuple

import confluent_kafka

from benchmarks.end_to_end import Figure
from benchmarks.request_rate import processor_seconds
from kalda import Admin, NewTopic
from kalda.clients.admin.quotas import QuotaAlteration, quota_entity
from kalda.clients.errors import ClientError
from kalda.testing import ProcessCluster, Security

_WARM_UP_SECONDS: Final = 12.5
_SECONDS: Final = 30.0
_IDLE_SECONDS: Final = 10.0
_RATE: Final = 200_000
_RECORD: Final = b"x" * 10_000
_MUTATION_RATE: Final = 2.0
_REQUEST_PERCENT: Final = 4.0
_CONNECTION_RATE: Final = 10.0
_CONNECTING_THREADS: Final = 4
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class _Bounded(NamedTuple):
    """A client, and the entity whose quota bounds it."""

    entity: Mapping[str, str | None]
    user: str
    client_id: str
    address: str = "127.0.0.1"


_TOGETHER: Final = (
    {
        "user and client id": _Bounded({"user": "u1", "client-id": "c1"}, "u1", "c1"),
        "user, default client id": _Bounded({"user": "u2", "client-id": None}, "u2", "c2"),
        "user": _Bounded({"user": "u3"}, "u3", "c3"),
        "default user, client id": _Bounded({"user": None, "client-id": "c4"}, "u4", "c4"),
        "client id": _Bounded({"client-id": "c5"}, "u5", "c5"),
        "default client id": _Bounded({"client-id": None}, "u6", "c6"),
    },
    {"default user and client id": _Bounded({"user": None, "client-id": None}, "u7", "c7")},
    {"default user": _Bounded({"user": None}, "u8", "c8")},
)
"""Clients that run at the same time. A quota of the default user decides for all that have no quota of
their own user, so those run alone."""
_ADDRESSES: Final = (
    {
        "address": _Bounded({"ip": "127.0.0.2"}, "u1", "c1", "127.0.0.2"),
        "default address": _Bounded({"ip": None}, "u2", "c2", "127.0.0.3"),
    },
)
_FREE: Final = _Bounded({"user": "admin", "client-id": "free"}, "admin", "free")
_FREE_ADDRESS: Final = _Bounded({"ip": "127.0.0.1"}, "admin", "free")

_Work = Callable[[dict[str, Any], "Synchronized[float]", "Event"], None]
"""Uses a quota until the event is set, and counts what it got."""


class _Kind(NamedTuple):
    """One kind of quota."""

    name: str
    value: float
    work: _Work
    together: tuple[dict[str, _Bounded], ...] = _TOGETHER
    free: _Bounded = _FREE
    is_of_each_broker: bool = False
    """Whether a client uses the quota of every broker at the same time."""


def run() -> list[Figure]:
    """Measure one broker, then three."""
    return [figure for brokers in (1, 3) for figure in _run(brokers)]


def _run(brokers: int) -> list[Figure]:
    users = [f"u{number}" for number in range(1, 9)]
    security = Security(users=users, protocol="SASL_PLAINTEXT", mechanism="PLAIN", acls=False)
    kinds = (
        _Kind("producer_byte_rate", float(_RATE), _produce),
        _Kind("consumer_byte_rate", float(_RATE), _consume),
        _Kind("request_percentage", _REQUEST_PERCENT, _request),
        _Kind("controller_mutation_rate", _MUTATION_RATE, _mutate),
        _Kind(
            "connection_creation_rate",
            _CONNECTION_RATE,
            _connect,
            _ADDRESSES,
            _FREE_ADDRESS,
            is_of_each_broker=True,
        ),
    )
    with (
        tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory,
        ProcessCluster(Path(directory), brokers=brokers, security=security) as cluster,
    ):
        with Admin.from_config(cluster.client_config("admin")) as admin:
            topics = [*(f"t-{user}" for user in users), "free"]
            admin.create_topics([NewTopic(name, 1, 1) for name in topics])
            figures: list[Figure] = []
            for kind in kinds:
                if kind.work is _consume:
                    _fill(cluster, topics)
                figures += _measure(cluster, admin, brokers, kind)
        return figures


def _measure(cluster: ProcessCluster, admin: Admin, brokers: int, kind: _Kind) -> list[Figure]:
    quiet = _latencies(cluster, _SECONDS)
    idle = _processor_time_idle(cluster) if kind.work is _request else 0.0
    suffix = f"{brokers} broker(s)"
    figures: list[Figure] = []
    for clients in kind.together:
        limits = [*((client, kind.value) for client in clients.values()), (kind.free, 1e9)]
        _set_quotas(admin, kind, limits)
        with _clients(cluster, kind.work, clients) as counters:
            time.sleep(_WARM_UP_SECONDS)
            used = _processor_seconds(cluster)
            before = {name: counter.value for name, counter in counters.items()}
            time.sleep(_SECONDS)
            got = {name: counters[name].value - before[name] for name in counters}
            used = _processor_seconds(cluster) - used - idle * _SECONDS
        _set_quotas(admin, kind, [(client, None) for client, _ in limits])
        if kind.work is _request:
            got = {name: used * 100 * count / sum(got.values()) for name, count in got.items()}
        wanted = kind.value * _SECONDS * (brokers if kind.is_of_each_broker else 1)
        figures += [
            (f"{kind.name}, {name}, {suffix}", amount / wanted * 100, "% of the quota")
            for name, amount in got.items()
        ]
    one = dict([next(iter(kind.together[0].items()))])
    limits = [*((client, kind.value) for client in one.values()), (kind.free, 1e9)]
    _set_quotas(admin, kind, limits)
    with _clients(cluster, kind.work, one):
        time.sleep(_WARM_UP_SECONDS)
        busy = _latencies(cluster, _SECONDS)
    _set_quotas(admin, kind, [(client, None) for client, _ in limits])
    meanwhile = f"p99 of another client while one is throttled, {kind.name}, {suffix}"
    return [*figures, (meanwhile, busy / quiet, f"x of before ({quiet * 1000:.1f} ms)")]


def _set_quotas(admin: Admin, kind: _Kind, limits: Sequence[tuple[_Bounded, float | None]]) -> None:
    changes = [
        QuotaAlteration(quota_entity(dict(client.entity)), {kind.name: limit}) for client, limit in limits
    ]
    admin.alter_client_quotas(changes)


def _processor_time_idle(cluster: ProcessCluster) -> float:
    """Return the part of a second that the brokers use without clients, for leases, sessions and fetches."""
    before = _processor_seconds(cluster)
    time.sleep(_IDLE_SECONDS)
    return (_processor_seconds(cluster) - before) / _IDLE_SECONDS


def _processor_seconds(cluster: ProcessCluster) -> float:
    return sum(map(processor_seconds, cluster.broker_pids))


@contextmanager
def _clients(
    cluster: ProcessCluster, work: _Work, clients: dict[str, _Bounded]
) -> "Iterator[dict[str, Synchronized[float]]]":
    """Run clients above their quotas, each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    counters = {name: context.Value("d", 0.0) for name in clients}
    processes = []
    for name, client in clients.items():
        config = {
            **cluster.client_config(client.user, "confluent-kafka"),
            "client.id": client.client_id,
            "_topic": f"t-{client.user}",
            "_address": client.address,
        }
        processes.append(context.Process(target=work, args=(config, counters[name], stop)))
    for process in processes:
        process.start()
    try:
        yield counters
    finally:
        stop.set()
        for process in processes:
            process.join(90)


def _latencies(cluster: ProcessCluster, seconds: float) -> float:
    """Return the 99th percentile of one record at a time, for some seconds."""
    config = {**cluster.client_config("admin", "confluent-kafka"), "client.id": "free", "linger.ms": 0}
    producer = confluent_kafka.Producer(config)
    taken: list[float] = []
    end = time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        producer.produce("free", b"x" * 100)
        assert producer.flush(30) == 0
        taken.append(time.monotonic() - began)
        time.sleep(0.005)
    return statistics.quantiles(taken, n=100)[98]


def _produce(config: dict[str, Any], counter: "Synchronized[float]", stop: "Event") -> None:
    _send({**config, "queue.buffering.max.messages": 20}, _RECORD, len(_RECORD), counter, stop)


def _request(config: dict[str, Any], counter: "Synchronized[float]", stop: "Event") -> None:
    small = {"batch.num.messages": 1, "queue.buffering.max.messages": 200}
    _send({**config, **small}, b"x" * 100, 1, counter, stop)


def _send(
    config: dict[str, Any], record: bytes, worth: float, counter: "Synchronized[float]", stop: "Event"
) -> None:
    """Send records as fast as the producer takes them, and count `worth` for each."""
    topic = str(config.pop("_topic"))
    config.pop("_address")
    producer = confluent_kafka.Producer({**config, "linger.ms": 0})

    def delivered(error: object, _: object) -> None:
        if error is None:
            counter.value += worth

    while not stop.is_set():
        try:
            producer.produce(topic, record, on_delivery=delivered)
        except BufferError:
            producer.poll(0.1)
        producer.poll(0)
    producer.purge()
    producer.flush(10)


def _consume(config: dict[str, Any], counter: "Synchronized[float]", stop: "Event") -> None:
    """Read a topic, and count the bytes that came.

    They are more than those of the records: brokers count what they send, and a response may end in a part of
    a batch, which clients drop and fetch again.
    """
    topic = str(config.pop("_topic"))
    config.pop("_address")

    def note(statistics: str) -> None:
        counter.value = json.loads(statistics)["rx_bytes"]

    consumer = confluent_kafka.Consumer(
        {
            **config,
            "group.id": "none",
            "enable.auto.commit": False,
            "statistics.interval.ms": 200,
            "stats_cb": note,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    while not stop.is_set():
        consumer.consume(100, 0.2)
    consumer.close()


def _fill(cluster: ProcessCluster, topics: list[str]) -> None:
    """Write more than a consumer may read in the time, in small batches."""
    config = {**cluster.client_config("admin", "confluent-kafka"), "batch.size": len(_RECORD)}
    producer = confluent_kafka.Producer(config)
    for topic in topics:
        for _ in range(int(_RATE * (_WARM_UP_SECONDS + _SECONDS + 30) / len(_RECORD))):
            producer.produce(topic, _RECORD)
        assert producer.flush(60) == 0


def _mutate(config: dict[str, Any], counter: "Synchronized[float]", stop: "Event") -> None:
    properties = {
        "bootstrap.servers": config["bootstrap.servers"],
        "security.protocol": config["security.protocol"],
        "sasl.mechanism": "PLAIN",
        "client.id": config["client.id"],
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{config["sasl.username"]}" password="{config["sasl.password"]}";'
        ),
    }
    number = 0
    with Admin.from_config(properties) as admin:
        while not stop.is_set():
            number += 1
            try:
                created = admin.create_topics([NewTopic(f"m-{config['client.id']}-{number}", 1, 1)])
            except ClientError:
                continue
            if not created.errors:
                counter.value += 1


def _connect(config: dict[str, Any], counter: "Synchronized[float]", stop: "Event") -> None:
    """Connect from an address again and again, and count the connections that are served."""

    def loop(host: str, port: int) -> None:
        while not stop.is_set():
            with socket.create_connection((host, port), 10, (config["_address"], 0)) as connection:
                try:
                    connection.sendall(_API_VERSIONS)
                    is_served = connection.recv(4) != b""
                except ConnectionError:
                    is_served = False
            if is_served:
                with counter.get_lock():
                    counter.value += 1

    brokers = [each.rpartition(":") for each in config["bootstrap.servers"].split(",")]
    threads = [
        threading.Thread(target=loop, args=(host, int(port)))
        for host, _, port in brokers
        for _ in range(_CONNECTING_THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
