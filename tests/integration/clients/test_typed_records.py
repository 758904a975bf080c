"""Records with types: what a producer with a serializer sends, a consumer with the same one returns."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kalda import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Producer,
    RecordDeserializationError,
    SerializationError,
    TopicPartition,
    serializers,
)
from tests.integration.cluster.helpers import shared_cluster

TIMEOUT_SECONDS = 30


@dataclass
class Line:
    price: float


@dataclass
class Order:
    article: str
    lines: list[Line]


ORDERS = serializers.json(Order)
NUMBERS = serializers.integer(bytes=8)


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with shared_cluster(tmp_path_factory.mktemp("records"), brokers=3, settings={}) as addresses:
        yield addresses


def test_objects_come_back_and_the_faulty_record_is_named(bootstrap: str) -> None:
    sent = [Order("nut", [Line(0.5), Line(1.0)]), Order("größe", [])]
    with Producer(bootstrap_servers=bootstrap, key_serializer=NUMBERS, value_serializer=ORDERS) as producer:
        for number, order in enumerate(sent):
            producer.send("orders", order, key=number, partition=0)
        producer.send("orders", None, partition=0)
        with pytest.raises(SerializationError, match="topic orders: it is 'nut', not a Order"):
            producer.send("orders", "nut")  # type: ignore[arg-type]  # a type checker finds it, too
    with Producer(bootstrap_servers=bootstrap) as plain:
        plain.send("orders", b'{"article": "nut", "lines": [{"price": "1"}]}', partition=0)

    partition = TopicPartition("orders", 0)
    consumer: Consumer[int | None, Order | None] = Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        key_deserializer=NUMBERS,
        value_deserializer=ORDERS,
    )
    with consumer:
        consumer.assign([partition])
        found = [(record.key, record.value) for record in (next(consumer) for _ in range(3))]
        assert [(0, sent[0]), (1, sent[1]), (None, None)] == found
        with pytest.raises(RecordDeserializationError) as error:
            consumer.poll(TIMEOUT_SECONDS)
        assert "offset 3 of orders-0: field `lines[0].price` is '1', not a float" in str(error.value)


async def test_the_asynchronous_clients_take_the_same_objects(bootstrap: str) -> None:
    text = serializers.string()
    async with AsyncProducer(bootstrap_servers=bootstrap, value_serializer=text) as producer:
        await (await producer.send("texts", "grüße", partition=0))
    async with AsyncConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", value_deserializer=text
    ) as consumer:
        await consumer.assign([TopicPartition("texts", 0)])
        async for record in consumer:
            assert "grüße" == record.value
            break


def test_settings_of_a_file_leave_the_functions_to_arguments(bootstrap: str) -> None:
    with Producer.from_config({"bootstrap.servers": bootstrap}, value_serializer=NUMBERS) as producer:
        producer.send("numbers", 5, partition=0).result(TIMEOUT_SECONDS)
    settings = {
        "bootstrap.servers": bootstrap,
        "auto.offset.reset": "earliest",
        "value.deserializer": "StringDeserializer",
    }
    with Consumer.from_config(settings, value_deserializer=NUMBERS) as consumer:
        consumer.assign([TopicPartition("numbers", 0)])
        assert 5 == next(consumer).value
    with Consumer.from_config(settings) as consumer:
        consumer.assign([TopicPartition("numbers", 0)])
        assert "\0" * 7 + "\x05" == next(consumer).value
