"""Clients of others on a cluster that answers as an older release of Apache Kafka."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from kalda import Consumer as KaldaConsumer
from kalda import Producer as KaldaProducer
from kalda.net.client.client_errors import UnsupportedApiError
from kalda.testing import KaldaProcess

RELEASES = {"0.10.0": (0, 10, 0), "0.11.0": (0, 11), "1.1": (1, 1), "2.4": (2, 4)}


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def address(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("as-version")
    with KaldaProcess(directory / "data", settings={"kalda.as.version": release}) as process:
        yield process.bootstrap


def test_kafka_python_recognises_the_release(address: str, release: str) -> None:
    producer = KafkaProducer(bootstrap_servers=address)
    assert RELEASES[release] == producer.config["api_version"][: len(RELEASES[release])]
    producer.send("python", b"one", key=b"k").get(60)
    producer.close()
    consumer: Any = KafkaConsumer(
        "python",
        bootstrap_servers=address,
        group_id="python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    assert (b"k", b"one") == (lambda message: (message.key, message.value))(next(consumer))
    consumer.close()


def test_librdkafka_produces_and_consumes_in_a_group(address: str) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": address, "compression.type": "lz4"})
    producer.produce("theirs", b"one", on_delivery=lambda error, _: failed.append(error) if error else None)
    assert 0 == producer.flush(20)
    assert [] == failed
    consumer = Consumer({"bootstrap.servers": address, "group.id": "c", "auto.offset.reset": "earliest"})
    consumer.subscribe(["theirs"])
    message = consumer.poll(20)
    assert message is not None
    assert b"one" == message.value()
    consumer.close()


def test_kaldas_clients_take_a_cluster_from_0_11_on(address: str, release: str) -> None:
    with KaldaProducer(bootstrap_servers=address, enable_idempotence=release != "0.10.0") as producer:
        sent = producer.send("ours", b"one")
        if release == "0.10.0":
            with pytest.raises(UnsupportedApiError, match="offers versions 0 to 2 of Produce"):
                sent.result(60)
            return
        sent.result(60)
    with KaldaConsumer(
        "ours", bootstrap_servers=address, group_id="k", auto_offset_reset="earliest"
    ) as consumer:
        assert [b"one"] == [record.value for record in consumer.poll(20.0)]
