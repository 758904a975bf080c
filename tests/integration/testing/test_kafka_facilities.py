"""Clients, topics and assertions that `kalda.testing` gives a test, with real brokers."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from kalda import ClientError, Producer
from kalda.testing import KafkaCluster
from kalda.testing.failure_report import report_of


@pytest.fixture
def kafka() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=1) as cluster:
        yield cluster


def test_topics_have_names_of_their_own_or_given_ones(kafka: KafkaCluster) -> None:
    names = {kafka.topic(), kafka.topic("orders", partitions=3, config={"retention.ms": 1000}), kafka.topic()}

    assert {"topic-1", "topic-2", "orders"} == names
    assert 3 == len(kafka.admin().describe_topics(["orders"])["orders"].partitions)
    with pytest.raises(ClientError, match=r"TOPIC_ALREADY_EXISTS|already exists"):
        kafka.topic("orders")


def test_records_are_those_of_all_partitions_in_order(kafka: KafkaCluster) -> None:
    topic = kafka.topic(partitions=2)
    producer = kafka.producer()
    for number in range(4):
        producer.send(topic, b"%d" % number, partition=1 - number % 2).result(60)

    assert [b"1", b"3", b"0", b"2"] == [record.value for record in kafka.records(topic)]
    producer.send(topic, b"4", partition=0).result(60)
    assert [b"1", b"3", b"4", b"0", b"2"] == [record.value for record in kafka.records(topic)]


def test_records_of_a_topic_that_was_created_again_are_the_new_ones(kafka: KafkaCluster) -> None:
    topic = kafka.topic("orders")
    kafka.producer().send(topic, b"old").result(60)
    assert [b"old"] == [record.value for record in kafka.records(topic)]
    admin = kafka.admin()
    admin.delete_topics([topic])
    kafka.wait_until(lambda: topic not in admin.list_topics())
    kafka.topic("orders")
    kafka.producer().send(topic, b"new").result(60)

    assert [b"new"] == [record.value for record in kafka.records(topic)]


def test_an_expected_record_is_waited_for_also_where_its_topic_does_not_exist_yet(
    kafka: KafkaCluster,
) -> None:
    """An application creates its output topic when it starts."""
    sender = threading.Timer(
        0.05, lambda: kafka.producer().send("later", b'{"due": 12}', b"alice").result(60)
    )
    sender.start()

    found = kafka.assert_produced("later", key="alice", value={"due": 12}, within_s=30)

    assert ("later", 0, b"alice") == (found.topic, found.offset, found.key)
    sender.join()


def test_a_missing_topic_is_named_with_those_that_exist(kafka: KafkaCluster) -> None:
    with pytest.raises(AssertionError, match="there is no such topic, and no other"):
        kafka.assert_produced("order", within_s=0)
    kafka.topic("orders")
    with pytest.raises(AssertionError, match="there is no such topic, only: orders"):
        kafka.assert_produced("order", within_s=0)


def test_uncommitted_records_count_only_where_asked_for(kafka: KafkaCluster) -> None:
    topic = kafka.topic()
    producer = kafka.producer(transactional_id="billing")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"open").result(60)

    kafka.assert_produced(topic, value="open", uncommitted=True)
    assert [] == kafka.records(topic)
    with pytest.raises(
        AssertionError, match=r"(?s)transactions are open.*'billing': Ongoing.*topic-1-0, open"
    ):
        kafka.assert_no_open_transactions(within_s=0)

    producer.commit_transaction()
    kafka.assert_no_open_transactions()
    kafka.assert_produced(topic, value="open")


def test_a_group_behind_a_transactional_producer_has_committed_all(kafka: KafkaCluster) -> None:
    topic = kafka.topic()
    producer = kafka.producer(transactional_id="billing")
    producer.init_transactions()
    with producer.transaction():
        producer.send(topic, b"1")
        producer.send(topic, b"2")
    consumer = kafka.consumer(topic, group_id="readers")

    next(consumer)
    consumer.commit()
    kafka.assert_committed("readers", topic, records=1)
    kafka.assert_committed("readers", topic, offsets={0: 1})
    with pytest.raises(
        AssertionError, match=r"has not committed all records.*\n.*committed 1, 1 record behind"
    ):
        kafka.assert_committed("readers", topic, within_s=0)
    next(consumer)
    consumer.commit()
    kafka.assert_committed("readers", topic)
    with pytest.raises(ValueError, match="give one of them"):
        kafka.assert_committed("readers", topic, records=1, offsets={0: 1})


async def test_asynchronous_tests_have_the_same_as_coroutines() -> None:
    """An assertion waits while the application under test runs on the same loop."""
    async with KafkaCluster(brokers=1) as kafka:
        topic = await kafka.aio.topic(partitions=2)

        async def application() -> None:
            async with asyncio.timeout(60):
                producer = await kafka.aio.producer()
                await (await producer.send(topic, b"later"))

        task = asyncio.create_task(application())
        await kafka.aio.assert_produced(topic, value="later", within_s=30)
        await task
        consumer = await kafka.aio.consumer(topic, group_id="readers")
        assert b"later" == (await anext(aiter(consumer))).value
        await consumer.commit()
        await kafka.aio.assert_committed("readers", topic)
        await kafka.aio.assert_no_open_transactions()
        assert [topic] == list(await (await kafka.aio.admin()).list_topics())


def test_the_report_of_a_failed_test_shows_what_the_brokers_hold(kafka: KafkaCluster) -> None:
    topic = kafka.topic("orders")
    producer = kafka.producer(transactional_id="billing")
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(7):
        producer.send(topic, b"%d" % number, b"alice").result(60)
    consumer = kafka.consumer(topic, group_id="readers", isolation_level="read_uncommitted")
    next(consumer)
    consumer.commit()

    lines = report_of(kafka, ["WARNING it is late"]).splitlines()

    assert [
        "topic orders: 7 records",
        *(f"  orders-0@{number} key=alice value={number}" for number in range(2, 7)),
        "  and 2 more before",
        "group readers, Stable",
        "  orders-0: committed 1, lag 6",
        "open transactions:",
    ] == lines[:-3]
    assert lines[-3].startswith("  'billing': Ongoing, producer id ")
    assert ["warnings of the brokers:", "  WARNING it is late"] == lines[-2:]


def test_the_report_is_bounded_and_never_fails() -> None:
    """Brokers that are down must not turn a failed test into an error, or hold it up."""
    with KafkaCluster(brokers=1) as kafka:
        kafka.topic()
        kafka.kill(0)
        assert "the brokers cannot be asked: " in report_of(kafka, [])
    assert len(report_of(kafka, ["x" * 1000] * 1000)) < 21_000


def test_clients_of_a_test_are_closed_with_it_though_their_broker_is_gone() -> None:
    with KafkaCluster(brokers=1) as kafka:
        producer: Producer[bytes | None, bytes | None] = kafka.producer(delivery_timeout_ms=600_000)
        topic = kafka.topic()
        producer.send(topic, b"1").result(60)
        kafka.kill(0)
        producer.send(topic, b"2")

    with pytest.raises(ClientError, match="closed"):
        producer.send(topic, b"3")
