"""Which checkpoints are written."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kalda.clients.producer.producer import Producer
from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.checkpoints import CheckpointTopic
from kalda.pipelines.mirror.delivery import Delivery
from kalda.pipelines.mirror.mirror_maker_records import Checkpoint

PARTITION = TopicPartition("A.orders", 0)


class Target:
    """A producer and its delivery."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bytes]] = []
        self.units = 0

    def send(self, topic: str, value: bytes, *, key: bytes, partition: int) -> object:
        assert ("checkpoints", 0) == (topic, partition)
        self.sent.append((key, value))
        return SimpleNamespace(result=lambda _: None)

    @contextmanager
    def unit(self) -> Iterator[None]:
        self.units += 1
        yield


def topic_of(target: Any) -> CheckpointTopic:
    return CheckpointTopic("checkpoints", cast(Producer, target), cast(Delivery, target))


def test_a_checkpoint_is_written_once_and_never_back_while_its_group_goes_on() -> None:
    target = Target()
    topic = topic_of(target)
    first = Checkpoint("g", PARTITION, 10, 9)

    assert 1 == topic.write([first])
    assert 0 == topic.write([first, Checkpoint("g", PARTITION, 11, 9)])
    assert 0 == topic.write([Checkpoint("g", PARTITION, 12, 8)])
    assert 1 == topic.write([Checkpoint("g", PARTITION, 12, 10)])
    assert 2 == target.units


def test_a_group_that_was_reset_takes_its_checkpoint_back() -> None:
    topic = topic_of(Target())
    topic.write([Checkpoint("g", PARTITION, 10, 9), Checkpoint("h", PARTITION, 10, 9)])

    assert 1 == topic.write([Checkpoint("g", PARTITION, 5, 4)])


def test_a_checkpoint_that_no_record_can_hold_keeps_no_other_away(caplog: pytest.LogCaptureFixture) -> None:
    """`offset.metadata.max.bytes` of the source allows more metadata than a string of MirrorMaker."""
    topic = topic_of(Target())
    long = Checkpoint("g", PARTITION, 10, 9, "x" * 0x8000)

    assert 1 == topic.write([long, Checkpoint("h", PARTITION, 10, 9, "x" * 0x7FFF)])
    assert 0 == topic.write([long])
    assert ["the checkpoint of group g is not written"] == [each.getMessage()[:40] for each in caplog.records]
