"""The old producer and the old mirror maker with brokers of Apache Kafka since 0.10.0."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError
from kalda.clients.legacy import FetchRequest, Producer, ProducerData, SimpleConsumer
from kalda.records.batch import TimestampType
from kalda.testing import KaldaProcess
from tests.compat.old_kafka import OldKafka, old_kafka
from tests.integration.cluster.helpers import wait_until
from tests.integration.tools.commands import KALDA

Pair = tuple[bytes | None, bytes | None]


@pytest.fixture(scope="module", params=["0.10.2.2", "2.8.2"])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldKafka]:
    try:
        with old_kafka(request.param, tmp_path_factory.mktemp("kafka")) as broker:
            yield broker
    except NotAvailableError as error:
        pytest.skip(str(error))


def messages(bootstrap: str, topic: str) -> list[tuple[Pair, bool]]:
    """Return keys, payloads, and whether there is a timestamp of the producer."""
    host, _, port = bootstrap.rpartition(":")
    with SimpleConsumer(host, int(port)) as consumer:
        return [
            (
                (each.message.key, each.message.payload),
                each.message.timestamp > 0 and each.message.timestamp_type is TimestampType.CREATE_TIME,
            )
            for each in consumer.fetch(FetchRequest(topic, 0, 0, 1_000_000))
        ]


@pytest.mark.parametrize("source", ["zk.connect", "broker.list", "metadata.broker.list"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_producer_sends_with_every_codec(kafka: OldKafka, source: str, codec: str) -> None:
    """Brokers and leaders come from Kafka's znodes or its metadata; the broker creates the topic."""
    addresses = {
        "zk.connect": kafka.zookeeper,
        "broker.list": f"0:{kafka.bootstrap}",
        "metadata.broker.list": kafka.bootstrap,
    }
    topic = f"{source}-{codec}"
    settings: dict[str, object] = {source: addresses[source], "compression.codec": codec}
    # The election of the first leader of a new topic takes a moment on a cold virtual machine.
    settings |= {"request.required.acks": -1, "zk.read.num.retries": 50, "message.send.max.retries": 50}
    with Producer(settings) as producer:
        producer.send(ProducerData(topic, b"k", [b"1", None]), ProducerData(topic, b"2" * 5_000))
    pairs: list[Pair] = [(b"k", b"1"), (b"k", None), (None, b"2" * 5_000)]
    assert [(each, True) for each in pairs] == messages(kafka.bootstrap, topic)


@pytest.mark.parametrize("to_kafka", [True, False])
def test_mirror_maker_copies_between_kafka_and_kalda(kafka: OldKafka, to_kafka: bool, tmp_path: Path) -> None:
    """A cluster is moved from one to the other, or back."""
    with KaldaProcess(tmp_path / "data") as kalda:
        source, target = (
            (kalda.bootstrap, kafka.bootstrap) if to_kafka else (kafka.bootstrap, kalda.bootstrap)
        )
        topic = f"mirrored-{to_kafka}"
        wait = {"request.required.acks": 1, "message.send.max.retries": 50}
        with Producer({"metadata.broker.list": source, **wait}) as producer:
            producer.send([ProducerData(topic, b"k%d" % number, b"%d" % number) for number in range(500)])
        consumer, target_file = tmp_path / "consumer.properties", tmp_path / "producer.properties"
        consumer.write_text(f"bootstrap.servers={source}\ngroup.id={topic}\nauto.offset.reset=earliest\n")
        target_file.write_text(f"metadata.broker.list={target}\ncompression.codec=snappy\n")
        files = ["--consumer.config", str(consumer), "--producer.config", str(target_file)]
        process = subprocess.Popen([*KALDA, "legacy", "MirrorMaker", *files, "--whitelist", topic])
        try:
            # The topic appears with the first message.
            with Producer({"metadata.broker.list": target, **wait}) as producer:
                producer.send(ProducerData(topic, b"first"))
            wait_until(lambda: len(messages(target, topic)) == 501, 60.0)
            process.send_signal(signal.SIGTERM)
            assert 0 == process.wait(60)
        finally:
            process.kill()
            process.wait()
        expected: list[Pair] = [(b"k%d" % number, b"%d" % number) for number in range(500)]
        found = messages(target, topic)
        assert [(each, True) for each in expected] == [each for each in found if each[0][0] is not None]
