"""How fast throttled replicas may move, and which replicas those are."""

import pytest

from kalda.broker.replicas.replication_quota import (
    LEADER_REPLICAS,
    UNLIMITED,
    ReplicationQuota,
    throttled_partitions,
)
from kalda.common.types import TopicPartition
from kalda.runtime.clock import ManualClock

BROKER_ID = 1


class Throttle:
    """A quota, the settings of topics behind it, and its clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.topics: dict[str, dict[str, str]] = {}
        self.quota = ReplicationQuota(
            LEADER_REPLICAS,
            BROKER_ID,
            lambda topic: self.topics.get(topic, {}),
            self.clock,
            sample_count=11,
            sample_seconds=1,
        )


@pytest.mark.parametrize(
    ("text", "partitions"),
    [
        ("", frozenset()),
        ("none", frozenset()),
        ("*", None),
        (" * ", None),
        ("0:1,1:2, 2:1", frozenset({0, 2})),
        ("0:10", frozenset()),
    ],
)
def test_a_setting_names_partitions_of_brokers(text: str, partitions: frozenset[int] | None) -> None:
    assert partitions == throttled_partitions(text, BROKER_ID)


def test_a_topics_replicas_are_read_again_when_its_settings_change() -> None:
    throttle = Throttle()
    partition = TopicPartition("orders", 3)
    assert not throttle.quota.is_throttled(partition)
    throttle.topics["orders"] = {LEADER_REPLICAS: "3:1"}
    assert not throttle.quota.is_throttled(partition)
    throttle.quota.forget_topic("orders")
    assert throttle.quota.is_throttled(partition)


def test_without_a_rate_nothing_is_exceeded() -> None:
    throttle = Throttle()
    throttle.quota.record(1 << 40)
    assert (False, False, UNLIMITED) == (
        throttle.quota.is_limited,
        throttle.quota.is_exceeded(),
        throttle.quota.bytes_per_second,
    )


def test_a_burst_is_spread_over_the_window_and_forgotten_after_it() -> None:
    throttle = Throttle()
    throttle.quota.set_rate(1_000)
    throttle.quota.record(5_000)
    assert throttle.quota.is_exceeded()
    exceeded_seconds = 0
    while throttle.quota.is_exceeded():
        throttle.clock.advance(1)
        exceeded_seconds += 1
    assert 5 == exceeded_seconds
    throttle.clock.advance(10)
    assert 0.0 == throttle.quota.byte_rate


def test_a_steady_rate_below_the_limit_is_never_exceeded() -> None:
    throttle = Throttle()
    throttle.quota.set_rate(1_000)
    for _ in range(100):
        throttle.quota.record(90)
        assert not throttle.quota.is_exceeded()
        throttle.clock.advance(0.1)


def test_a_rate_of_zero_lets_nothing_more_through_and_lifting_it_does() -> None:
    throttle = Throttle()
    throttle.quota.set_rate(0)
    throttle.quota.record(1)
    assert throttle.quota.is_exceeded()
    throttle.quota.set_rate(UNLIMITED)
    assert not throttle.quota.is_exceeded()
