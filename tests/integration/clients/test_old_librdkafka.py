"""librdkafka as a client of brokers before 0.10: it asks for no versions and speaks the oldest ones."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from tests.integration.clients.clients import old_librdkafka

RECORDS = 200


def old(bootstrap: str, version: str, **settings: object) -> dict[str, object]:
    return {"bootstrap.servers": bootstrap, **old_librdkafka(version), **settings}


def read(consumer: Consumer) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + 60
    while len(found) < RECORDS and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("version", ["0.8.2", "0.9.0"])
def test_old_and_new_clients_read_what_the_others_wrote(
    bootstrap: str, topic_name: Callable[[str], str], version: str, codec: str
) -> None:
    topic = topic_name("old")
    failed: list[object] = []

    def on_delivery(error: object, _: Message) -> None:
        if error is not None:
            failed.append(error)

    for settings in (old(bootstrap, version), {"bootstrap.servers": bootstrap}):
        producer = Producer({**settings, "compression.type": codec})
        for number in range(RECORDS // 2):
            producer.produce(topic, b"value %d" % number, b"key %d" % number, on_delivery=on_delivery)
        assert 0 == producer.flush(20)
    assert [] == failed
    sent = 2 * [(b"key %d" % number, b"value %d" % number) for number in range(RECORDS // 2)]
    for settings in (old(bootstrap, version), {"bootstrap.servers": bootstrap}):
        consumer = Consumer({**settings, "group.id": topic})
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert sent == [(message.key(), message.value()) for message in read(consumer)]
        consumer.close()


def test_group_of_an_old_consumer_goes_on_where_a_new_one_committed(
    bootstrap: str, topic_name: Callable[[str], str]
) -> None:
    topic = topic_name("old-group")
    producer = Producer(old(bootstrap, "0.9.0"))
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number)
    assert 0 == producer.flush(20)
    group = {"group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    new = Consumer({"bootstrap.servers": bootstrap, **group})
    new.subscribe([topic])
    assert RECORDS == len(read(new))
    new.commit(offsets=[TopicPartition(topic, 0, RECORDS // 2)], asynchronous=False)
    new.close()
    consumer = Consumer(old(bootstrap, "0.9.0", **group))
    consumer.subscribe([topic])
    message = consumer.poll(30)
    assert message is not None
    assert b"%d" % (RECORDS // 2) == message.value()
    consumer.commit(message, asynchronous=False)
    (committed,) = consumer.committed([TopicPartition(topic, 0)], 10)
    assert RECORDS // 2 + 1 == committed.offset
    consumer.close()
