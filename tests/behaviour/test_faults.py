"""What the clients keep when a broker is killed, paused or cut off: every record, once, in order."""

import functools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from kalda import Admin, Consumer, NewTopic, Producer, TopicPartition
from kalda.clients.consumer.consumer_config import ConsumerOptions, GroupProtocol
from kalda.common.errors import ErrorCode
from tests.behaviour.conftest import Topics, read_all, wait_until
from tests.behaviour.targets import Target

FAULTS = ["killed", "paused", "cut"]


@contextmanager
def fault(target: Target, kind: str, broker: int, seconds: float) -> Iterator[None]:
    """Break a broker for some seconds while the block runs; it serves again at the end."""

    def break_and_mend() -> None:
        time.sleep(0.5)
        broken, mended = _ACTIONS[kind]
        broken(target, broker)
        time.sleep(seconds)
        mended(target, broker)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(break_and_mend)
        yield
        done.result()


_ACTIONS: dict[str, tuple[Callable[[Target, int], None], Callable[[Target, int], None]]] = {
    "killed": (lambda target, broker: target.kill(broker), lambda target, broker: target.start_again(broker)),
    "paused": (lambda target, broker: target.pause(broker), lambda target, broker: target.resume(broker)),
    "cut": (lambda target, broker: target.cut(broker), lambda target, broker: target.heal(broker)),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_a_producer_loses_doubles_and_reorders_nothing(target: Target, topics: Topics, kind: str) -> None:
    topic = topics(partitions=3)
    count = 0
    errors: list[BaseException] = []

    def delivered(_metadata: object, error: BaseException | None) -> None:
        if error is not None:
            errors.append(error)

    with Producer(
        bootstrap_servers=target.bootstrap, request_timeout_ms=2_000, delivery_timeout_ms=60_000, linger_ms=5
    ) as producer:
        with fault(target, kind, target.brokers - 1, 3.0):
            end = time.monotonic() + 5.0
            while time.monotonic() < end:
                for _ in range(20):
                    producer.send(topic, value=b"%d" % count, partition=count % 3, on_delivery=delivered)
                    count += 1
                time.sleep(0.01)
        producer.flush(timeout_s=60)

    assert [] == errors
    records = read_all(target, topic, count)
    for partition in range(3):
        mine = [int(each.value or b"") for each in records if each.partition == partition]
        assert list(range(partition, count, 3)) == mine


@pytest.mark.parametrize("kind", FAULTS)
def test_a_group_reads_on_after_the_fault(
    target: Target, topics: Topics, group: str, group_protocol: GroupProtocol, kind: str
) -> None:
    topic = topics(partitions=3)
    stop = threading.Event()
    sent = 0

    def produce() -> None:
        nonlocal sent
        with Producer(bootstrap_servers=target.bootstrap, request_timeout_ms=2_000, linger_ms=5) as producer:
            while not stop.is_set():
                producer.send(topic, value=b"%d" % sent, partition=sent % 3)
                sent += 1
                time.sleep(0.002)
            producer.flush(timeout_s=60)

    member_options: ConsumerOptions = {
        "bootstrap_servers": target.bootstrap,
        "group_id": group,
        "group_protocol": group_protocol,
        "request_timeout_ms": 5_000,
        "auto_offset_reset": "earliest",
    }
    if group_protocol == "classic":
        member_options["session_timeout_ms"] = 10_000
    values: dict[int, list[int]] = {0: [], 1: [], 2: []}
    producing = threading.Thread(target=produce)
    producing.start()
    try:
        with Consumer(topic, **member_options) as consumer:
            begin = time.monotonic()
            with fault(target, kind, target.brokers - 1, 3.0):
                while time.monotonic() - begin < 6.0:
                    for record in consumer.poll(0.2):
                        values[record.partition].append(int(record.value or b""))
            stop.set()
            producing.join()
            while _distinct(values) < sent:
                assert time.monotonic() - begin < 90, f"{_distinct(values)} of {sent} records"
                for record in consumer.poll(0.5):
                    values[record.partition].append(int(record.value or b""))
    finally:
        stop.set()
        producing.join()

    for partition in range(3):
        # A member that was thrown out of its group may repeat what it had not committed, in order.
        seen = values[partition]
        assert set(range(partition, sent, 3)) == set(seen)


@pytest.mark.parametrize("kind", FAULTS)
def test_a_transaction_over_the_fault_is_whole(target: Target, topics: Topics, kind: str) -> None:
    topic = topics(partitions=3)
    committed: list[int] = []
    with Producer(
        bootstrap_servers=target.bootstrap,
        transactional_id=f"id-{topic}",
        request_timeout_ms=2_000,
        delivery_timeout_ms=60_000,
    ) as producer:
        producer.init_transactions()
        with fault(target, kind, target.brokers - 1, 3.0):
            begin = time.monotonic()
            number = 0
            while time.monotonic() - begin < 6.0:
                with producer.transaction():
                    for partition in range(3):
                        producer.send(topic, value=b"%d" % number, partition=partition)
                committed.append(number)
                number += 1
                time.sleep(0.05)

    records = read_all(target, topic, 3 * len(committed), isolation_level="read_committed")
    for partition in range(3):
        assert committed == [int(each.value or b"") for each in records if each.partition == partition]


@pytest.mark.parametrize("kind", FAULTS)
def test_an_admin_client_works_through_the_fault(target: Target, topics: Topics, kind: str) -> None:
    """Each call ends well within its time, though a broker that it may ask is not there."""
    with Admin(
        bootstrap_servers=target.bootstrap, request_timeout_ms=2_000, default_api_timeout_ms=60_000
    ) as admin:
        names = [topics()]
        with fault(target, kind, target.brokers - 1, 3.0):
            begin = time.monotonic()
            while time.monotonic() - begin < 6.0:
                name = f"{names[0]}-{len(names)}"
                created = admin.create_topics(
                    [NewTopic(name, partitions=1, replication_factor=1)], outcomes=True
                )
                # A response that was lost makes the client ask again, as Java's does.
                codes = {error.code for error in created.errors.values()}
                assert codes <= {ErrorCode.TOPIC_ALREADY_EXISTS}
                names.append(name)
                # A broker that was away may answer before it has the topic in its metadata.
                wait_until("the topic", functools.partial(_is_described, admin, name))
                time.sleep(0.1)
        assert set(names) <= admin.list_topics().keys()
        assert target.brokers == len(admin.describe_cluster().nodes)


def test_the_positions_of_an_idle_consumer_survive_a_restart(target: Target, topics: Topics) -> None:
    topic = topics()
    with Consumer(bootstrap_servers=target.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.poll(0.2)
        target.kill(0)
        consumer.poll(1.0)
        target.start_again(0)
        with Producer(bootstrap_servers=target.bootstrap) as producer:
            assert 0 == producer.send(topic, value=b"v").result(60).offset
        deadline = time.monotonic() + 60
        records = consumer.poll(1.0)
        while not records:
            assert time.monotonic() < deadline
            records = consumer.poll(1.0)
        assert [b"v"] == [each.value for each in records]


def _is_described(admin: Admin, name: str) -> bool:
    described = admin.describe_topics([name], outcomes=True)
    return name in described.results and 1 == len(described[name].partitions)


def _distinct(values: dict[int, list[int]]) -> int:
    """Count the records that were read, those that were read again once."""
    return sum(len(set(seen)) for seen in values.values())
