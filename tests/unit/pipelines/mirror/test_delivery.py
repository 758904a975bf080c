"""What is committed, and when."""

import contextlib
from typing import Any, cast

import pytest

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.errors import ClientError
from kalda.clients.producer.producer import Producer
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.delivery import AtLeastOnce

PARTITION = TopicPartition("orders", 0)


class Target:
    """A producer and an admin client that keep the order of calls."""

    def __init__(self, error: ClientError | None = None) -> None:
        self.calls: list[object] = []
        self.error = error

    def flush(self, timeout_s: float) -> None:
        self.calls.append("flush")

    def alter_consumer_group_offsets(self, offsets: Any) -> object:
        self.calls.append(offsets)
        if self.error is not None:
            raise self.error
        return Outcomes(dict.fromkeys(offsets, Outcomes({})))


def delivery_to(target: Any) -> AtLeastOnce:
    return AtLeastOnce(cast(Producer, target), "g", cast(Admin, target))


def test_progress_is_committed_behind_the_records() -> None:
    target = Target()
    delivery = delivery_to(target)
    with delivery.unit():
        delivery.commit({PARTITION: OffsetAndMetadata(5)})
        assert [] == target.calls

    assert ["flush", {"g": {PARTITION: OffsetAndMetadata(5)}}] == target.calls


def test_a_unit_that_fails_commits_nothing_nor_does_the_next_one_for_it() -> None:
    target = Target()
    delivery = delivery_to(target)
    with contextlib.suppress(ClientError), delivery.unit():
        delivery.commit({PARTITION: OffsetAndMetadata(5)})
        raise ClientError("away")
    with delivery.unit():
        pass

    assert ["flush"] == target.calls


def test_progress_that_is_refused_is_an_error() -> None:
    delivery = delivery_to(Target(ClientError("refused")))
    with pytest.raises(ClientError, match="refused"), delivery.unit():
        delivery.commit({PARTITION: OffsetAndMetadata(5)})
