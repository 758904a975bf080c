"""What is published of groups: who publishes it, and the arithmetic of lag."""

from types import SimpleNamespace
from typing import Any, cast

from kalda.broker.metrics.consumer_groups import register_consumer_group_metrics
from kalda.common.metrics import Metrics
from kalda.common.types import TopicPartition
from kalda.net.metrics_text import render
from tests.unit.coordinator.group.group_simulation import GROUP, GroupSimulation


class Published:
    """A coordinator with replicas of some partitions, and what a scrape of it shows."""

    def __init__(self, local: dict[int, int], remote: dict[int, int]) -> None:
        self.groups = GroupSimulation()
        self.metrics = Metrics()
        partitions = {
            TopicPartition("t", number): SimpleNamespace(log=SimpleNamespace(high_watermark=end))
            for number, end in local.items()
        }
        register_consumer_group_metrics(
            self.metrics,
            self.groups.coordinator,
            cast("Any", SimpleNamespace(partitions=partitions)),
            cast("Any", SimpleNamespace(get=lambda partition: remote.get(partition.partition))),
        )

    def commit(self, partition: int, offset: int) -> None:
        self.groups.commit("", offset, partition=partition)
        self.groups.replicate()

    def values(self, name: str) -> dict[str, float]:
        """Return the values of one metric by the number of the partition, "" where there is none."""
        found = {}
        for line in render(self.metrics).decode().splitlines():
            if line.startswith(f"{name}{{"):
                assert f'consumergroup="{GROUP}"' in line
                number = line.partition('partition="')[2].partition('"')[0]
                found[number] = float(line.rpartition(" ")[2])
        return found


def test_lag_is_measured_to_the_end_that_a_replica_or_the_leader_knows() -> None:
    published = Published(local={0: 100}, remote={1: 50})
    published.commit(0, 40)
    published.commit(1, 50)
    assert {"0": 40, "1": 50} == published.values("kafka_consumergroup_current_offset")
    assert {"0": 60, "1": 0} == published.values("kafka_consumergroup_lag")
    assert {"": 90} == published.values("kafka_consumergroup_current_offset_sum")
    assert {"": 60} == published.values("kafka_consumergroup_lag_sum")


def test_a_lag_that_is_not_known_is_left_out_with_its_sum() -> None:
    """0 would say that the group keeps up."""
    published = Published(local={0: 100}, remote={})
    published.commit(0, 40)
    published.commit(1, 7)
    assert {"0": 60} == published.values("kafka_consumergroup_lag")
    assert {} == published.values("kafka_consumergroup_lag_sum")
    assert {"": 47} == published.values("kafka_consumergroup_current_offset_sum")


def test_a_follower_that_is_behind_the_commit_shows_no_negative_lag() -> None:
    published = Published(local={0: 30}, remote={})
    published.commit(0, 40)
    assert {"0": 0} == published.values("kafka_consumergroup_lag")


def test_members_are_counted_and_a_group_that_only_commits_has_none() -> None:
    published = Published(local={0: 10}, remote={})
    published.commit(0, 1)
    assert {"": 0} == published.values("kafka_consumergroup_members")


def test_another_coordinator_publishes_nothing_of_the_group() -> None:
    published = Published(local={0: 10}, remote={})
    published.commit(0, 1)
    published.groups.runtime.resign(0)
    assert b"" == render(published.metrics)
