"""How well quotas hold: rates, for combinations of user and client id, on one broker and on three.

The clients run at the same time, each in a process of its own and above its quota; the figures are what each
got over 30 s, in percent of its quota. The first window, in which a quota allows a burst, is not measured.
Another client sends one record at a time, before and while one of them is throttled.
"""

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, Final

import confluent_kafka

from benchmarks.end_to_end import Figure
from kalda import Admin, NewTopic
from kalda.clients.admin.quotas import QuotaAlteration, quota_entity
from kalda.clients.errors import ClientError
from kalda.testing import ProcessCluster, Security

_WARM_UP_SECONDS: Final = 14.0
_SECONDS: Final = 30.0
_RATE: Final = 200_000
_RECORD: Final = b"x" * 10_000
_MUTATION_RATE: Final = 2.0

_ENTITIES: Final[dict[str, tuple[dict[str, str | None], str, str]]] = {
    "user and client id": ({"user": "u1", "client-id": "c1"}, "u1", "c1"),
    "user, default client id": ({"user": "u2", "client-id": None}, "u2", "c2"),
    "user": ({"user": "u3"}, "u3", "c3"),
    "default user, client id": ({"user": None, "client-id": "c4"}, "u4", "c4"),
    "client id": ({"client-id": "c5"}, "u5", "c5"),
    "default client id": ({"client-id": None}, "u6", "c6"),
}
"""By name: the entity, and the user and client id to which it applies. A quota of the default user alone
would decide for `u5` and `u6` as well, so it is left to the tests."""


_Work = Callable[[dict[str, Any], "Synchronized[float]", "Event"], None]
"""Uses a quota until the event is set, and counts what it got."""


def run() -> list[Figure]:
    """Measure one broker, then three."""
    return [figure for brokers in (1, 3) for figure in _run(brokers)]


def _run(brokers: int) -> list[Figure]:
    users = [user for _, user, _ in _ENTITIES.values()]
    security = Security(users=users, protocol="SASL_PLAINTEXT", mechanism="PLAIN", acls=False)
    with (
        tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory,
        ProcessCluster(Path(directory), brokers=brokers, security=security) as cluster,
    ):
        with Admin.from_config(cluster.client_config("admin")) as admin:
            admin.create_topics(
                [NewTopic(f"t{number}", 1, 1) for number in range(len(_ENTITIES))] + [NewTopic("free", 1, 1)]
            ).raise_for_errors()
            figures: list[Figure] = []
            kinds: tuple[tuple[str, float, _Work], ...] = (
                ("producer_byte_rate", float(_RATE), _produce),
                ("consumer_byte_rate", float(_RATE), _consume),
                ("controller_mutation_rate", _MUTATION_RATE, _mutate),
            )
            for kind, value, work in kinds:
                if work is _consume:
                    _fill(cluster)
                figures += _measure(cluster, admin, brokers, kind, value, work)
        return figures


def _measure(
    cluster: ProcessCluster, admin: Admin, brokers: int, kind: str, value: float, work: _Work
) -> list[Figure]:
    changes = [QuotaAlteration(quota_entity(names), {kind: value}) for names, _, _ in _ENTITIES.values()]
    free = QuotaAlteration(quota_entity({"user": "admin", "client-id": "free"}), {kind: 1e12})
    admin.alter_client_quotas([*changes, free]).raise_for_errors()
    quiet = _latencies(cluster, _SECONDS)
    with _clients(cluster, work, ["user"]):
        time.sleep(_WARM_UP_SECONDS)
        busy = _latencies(cluster, _SECONDS)
    with _clients(cluster, work, list(_ENTITIES)) as counters:
        time.sleep(_WARM_UP_SECONDS)
        before = {name: counter.value for name, counter in counters.items()}
        time.sleep(_SECONDS)
        got = {name: counters[name].value - before[name] for name in counters}
    removed = [QuotaAlteration(change.entity, {kind: None}) for change in [*changes, free]]
    admin.alter_client_quotas(removed).raise_for_errors()
    figures: list[Figure] = [
        (f"{kind}, {name}, {brokers} broker(s)", amount / _SECONDS / value * 100, "% of the quota")
        for name, amount in got.items()
    ]
    meanwhile = f"p99 of another client while one is throttled, {kind}, {brokers} broker(s)"
    return [*figures, (meanwhile, busy / quiet, f"x of before ({quiet * 1000:.1f} ms)")]


@contextmanager
def _clients(
    cluster: ProcessCluster, work: _Work, names: list[str]
) -> "Iterator[dict[str, Synchronized[float]]]":
    """Run clients above their quotas, each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    counters = {name: context.Value("d", 0.0) for name in names}
    processes = []
    for number, name in enumerate(names):
        _, user, client_id = _ENTITIES[name]
        config = {
            **cluster.client_config(user, "confluent-kafka"),
            "client.id": client_id,
            "_topic": f"t{number}",
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
    topic = str(config.pop("_topic"))
    producer = confluent_kafka.Producer({**config, "linger.ms": 0, "queue.buffering.max.messages": 20})

    def delivered(error: object, _: object) -> None:
        if error is None:
            counter.value += len(_RECORD)

    while not stop.is_set():
        try:
            producer.produce(topic, _RECORD, on_delivery=delivered)
        except BufferError:
            producer.poll(0.1)
        producer.poll(0)
    producer.purge()
    producer.flush(10)


def _consume(config: dict[str, Any], counter: "Synchronized[float]", stop: "Event") -> None:
    topic = str(config.pop("_topic"))
    consumer = confluent_kafka.Consumer({**config, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    while not stop.is_set():
        for message in consumer.consume(100, 0.2):
            if message.error() is None:
                counter.value += len(message.value() or b"")
    consumer.close()


def _fill(cluster: ProcessCluster) -> None:
    """Write more than a consumer may read in the time, in small batches.

    What brokers count may end in a part of a batch, which clients drop and fetch again.
    """
    config = {**cluster.client_config("admin", "confluent-kafka"), "batch.size": len(_RECORD)}
    producer = confluent_kafka.Producer(config)
    for number in range(len(_ENTITIES)):
        for _ in range(int(_RATE * (_WARM_UP_SECONDS + _SECONDS + 30) / len(_RECORD))):
            producer.produce(f"t{number}", _RECORD)
        assert producer.flush(60) == 0


def _mutate(config: dict[str, Any], counter: "Synchronized[float]", stop: "Event") -> None:
    config.pop("_topic")
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
