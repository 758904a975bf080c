"""Compacted topics on a real broker: the cleaner's child process, real files, real clients."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from kalda.storage.checkpoints import parse_offset_checkpoint
from kalda.testing import KaldaProcess

KEYS = 50
WAIT_SECONDS = 60


@pytest.fixture
def kalda(tmp_path: Path) -> Iterator[KaldaProcess]:
    settings = {"log.cleaner.backoff.ms": "50", "log.cleaner.threads": "2"}
    with KaldaProcess(tmp_path / "data", settings=settings) as process:
        yield process


def create(bootstrap: str, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {"cleanup.policy": "compact", "segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}
    new = NewTopic(topic, 1, 1, config={**settings, **config})
    admin.create_topics([new])[topic].result(60)


def produce(bootstrap: str, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce(topic, key=b"k%d" % (number % KEYS), value=b"%d" % number * 20)
        if number % 20 == 0:
            producer.flush(10)
    assert 0 == producer.flush(10)


def consume(bootstrap: str, topic: str) -> dict[bytes, list[bytes]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        partition = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(partition, timeout=60)
        consumer.assign([partition])
        found: dict[bytes, list[bytes]] = {}
        deadline = time.monotonic() + WAIT_SECONDS
        while consumer.position([partition])[0].offset < end:
            assert time.monotonic() < deadline, f"stuck at {consumer.position([partition])}, the end is {end}"
            message = consumer.poll(0.2)
            if message is not None:
                assert message.error() is None
                key, value = message.key(), message.value()
                assert isinstance(key, bytes)
                assert isinstance(value, bytes)
                found.setdefault(key, []).append(value)
        return found
    finally:
        consumer.close()


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.05)


def clean_offset(directory: Path, topic: str) -> int:
    found: dict[str, int] = {}
    for file in directory.rglob("cleaner-offset-checkpoint"):
        found.update(
            (name.topic, offset) for name, offset in parse_offset_checkpoint(file.read_bytes()).items()
        )
    return found.get(topic, 0)


def test_a_compacted_topic_is_cleaned_while_it_is_written_and_read(
    kalda: KaldaProcess, tmp_path: Path
) -> None:
    """The last value of each key is there at any time, and after a kill."""
    create(kalda.bootstrap, "table")
    for part in range(4):
        produce(kalda.bootstrap, "table", range(part * 1000, (part + 1) * 1000))
        values = consume(kalda.bootstrap, "table")
        end = (part + 1) * 1000
        expected = {b"k%d" % (number % KEYS): b"%d" % number * 20 for number in range(end - KEYS, end)}
        assert expected == {key: each[-1] for key, each in values.items()}
    wait_until(lambda: clean_offset(tmp_path / "data", "table") > 3000)
    values = consume(kalda.bootstrap, "table")
    assert sum(map(len, values.values())) < 1500
    kalda.kill()
    kalda.start()
    # The cleaner may have gone on meanwhile.
    assert expected == {key: each[-1] for key, each in consume(kalda.bootstrap, "table").items()}
    produce(kalda.bootstrap, "table", range(4000, 4100))
    assert b"4099" * 20 == consume(kalda.bootstrap, "table")[b"k49"][-1]


def test_settings_change_while_the_broker_runs(kalda: KaldaProcess, tmp_path: Path) -> None:
    """A topic becomes compacted, and then dirty enough, without a restart; the broker's threads change."""
    bootstrap = kalda.bootstrap
    create(bootstrap, "late", **{"cleanup.policy": "delete", "min.cleanable.dirty.ratio": "1"})
    produce(bootstrap, "late", range(2000))
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def change(kind: ResourceType, name: str, setting: str, value: str) -> None:
        entry = ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(kind, name, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)

    broker_id = next(iter(admin.list_topics(timeout=60).brokers))
    change(ResourceType.BROKER, str(broker_id), "log.cleaner.threads", "1")
    change(ResourceType.TOPIC, "late", "cleanup.policy", "compact")
    assert 0 == clean_offset(tmp_path / "data", "late")
    change(ResourceType.TOPIC, "late", "min.cleanable.dirty.ratio", "0.01")
    wait_until(lambda: clean_offset(tmp_path / "data", "late") > 1000)
    assert sum(map(len, consume(bootstrap, "late").values())) < 1000
    producer = Producer({"bootstrap.servers": bootstrap})
    errors: list[object] = []
    producer.produce("late", value=b"no key", on_delivery=lambda error, _: errors.append(error))
    producer.flush(10)
    assert "INVALID_RECORD" in str(errors[0]) or "Broker failed to validate record" in str(errors[0])
