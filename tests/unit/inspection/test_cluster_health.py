"""What the one screen of `kalda cluster describe` says about a cluster."""

import pytest

from kalda.clients.admin.topics import TopicDescription, TopicPartitionInfo
from kalda.common.api_keys import ApiKey
from kalda.inspection.cluster_health import is_full, partition_health, problems, spoken_release


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ({ApiKey.FETCH: 18, ApiKey.PRODUCE: 13}, "4.1"),
        ({ApiKey.FETCH: 17, ApiKey.PRODUCE: 12}, "4.0"),
        ({ApiKey.FETCH: 17, ApiKey.PRODUCE: 11}, "3.9"),
        ({ApiKey.FETCH: 12, ApiKey.DESCRIBE_CLUSTER: 0}, "2.8"),
        ({ApiKey.FETCH: 10}, "2.1"),
        ({ApiKey.FETCH: 7}, None),
        ({}, None),
    ],
)
def test_the_release_is_the_newest_whose_requests_are_served(
    versions: dict[int, int], expected: str | None
) -> None:
    assert expected == spoken_release(versions)


def topic(*partitions: tuple[int, tuple[int, ...], tuple[int, ...]]) -> TopicDescription:
    infos = [
        TopicPartitionInfo(number, leader, 0, replicas, isr)
        for number, (leader, replicas, isr) in enumerate(partitions)
    ]
    return TopicDescription("t", None, False, tuple(infos))


def test_partitions_are_counted_by_state_and_broker() -> None:
    health = partition_health(
        [topic((0, (0, 1), (0, 1)), (1, (0, 1), (1,)), (1, (0, 1), (0, 1)), (-1, (2, 0), (2,)))]
    )

    assert (4, 1, 2, 1) == (health.partitions, health.offline, health.under_replicated, health.not_preferred)
    assert {0: 1, 1: 2} == health.leaders
    assert {0: 4, 1: 3, 2: 1} == health.replicas


def test_problems_say_what_to_look_at() -> None:
    health = partition_health([topic((0, (0, 1), (0,)), (-1, (1,), (1,)))])
    found = problems(
        health,
        [0, 3],
        [0],
        has_controller=False,
        offline_dirs=["/data of broker 0"],
        full_dirs=["/big of broker 0"],
    )

    assert [
        "There is no controller: topics and leaders cannot change; look at the brokers' logs.",
        "Brokers 1, 3 are not running; start them.",
        "1 partition has no leader: `kalda topics describe --unavailable-partitions`.",
        "1 partition lacks in-sync replicas: `kalda topics describe --under-replicated-partitions`.",
        "Log directory /data of broker 0 is offline; see the broker's log.",
        "Log directory /big of broker 0 is full; delete topics, lower their retention or enlarge the volume.",
    ] == found


def test_a_healthy_cluster_has_none() -> None:
    health = partition_health([topic((0, (0,), (0,)))])

    assert [] == problems(health, [0], [0], has_controller=True, offline_dirs=[])


def test_a_volume_is_full_below_one_percent_and_never_where_its_size_is_unknown() -> None:
    """A broker that cannot write stays in the cluster; only its directory shows why."""
    assert [True, False, False, False] == [
        is_full(0, 100),
        is_full(1, 100),
        is_full(None, 100),
        is_full(0, None),
    ]
