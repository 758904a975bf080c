"""What the controller sends is applied in order, whole, and without keeping others waiting."""

import asyncio
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import cast

import pytest

from kalda.broker.control_plane.requests import (
    METADATA_PER_SLICE,
    PARTITIONS_PER_SLICE,
    ControllerRequests,
)
from kalda.broker.metadata.metadata_cache import TopicMetadata
from kalda.broker.replicas.role_changes import RoleChanges
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.schema import SchemaError
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import STEPS_AT_ONCE
from kalda.common.types import TopicPartition
from kalda.controller.effects import LeaderAndIsr, PartitionLeadership, StopReplica, UpdateMetadata
from kalda.zookeeper.errors import ZooKeeperError
from tests.unit.broker.admin_fakes import AdminHarness


class Replicas:
    """Takes note of what it is told; the last partition of a request fails."""

    def __init__(self) -> None:
        self.applied: list[TopicPartition] = []
        self.slices: list[int] = []
        self.strays_sought = self.was_compared = False

    def apply_leader_and_isr(self, request: LeaderAndIsr) -> dict[TopicPartition, ErrorCode]:
        return self._note([leadership.topic_partition for leadership in request.partitions])

    def apply_stop_replica(self, request: StopReplica) -> dict[TopicPartition, ErrorCode]:
        return self._note(request.partitions)

    def set_unassigned_strays_aside(self, topic_id_of: Callable[[str], uuid.UUID]) -> None:
        self.strays_sought = True

    def leave_unassigned(self, topic_of: Callable[[str], TopicMetadata | None]) -> None:
        self.was_compared = True

    def _note(self, partitions: list[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        self.applied += partitions
        self.slices.append(len(partitions))
        return {partitions[-1]: ErrorCode.KAFKA_STORAGE_ERROR}


def leadership(partition: TopicPartition) -> PartitionLeadership:
    return PartitionLeadership(partition.topic, uuid.UUID(int=1), partition.partition, 1, 0, 0, (0,), 0, (0,))


def receiver(
    harness: AdminHarness,
    replicas: Replicas,
    *,
    broker_epoch: int | Callable[[], int] = 5,
    has_logs: bool = True,
) -> ControllerRequests:
    return ControllerRequests(
        cast("ClusterStore", harness.cluster),
        harness.store,
        cast("RoleChanges", replicas),
        harness.cache,
        has_log=lambda _: has_logs,
        broker_epoch=broker_epoch if callable(broker_epoch) else lambda: broker_epoch,
    )


def full_metadata() -> UpdateMetadata:
    return UpdateMetadata(1, 8, [], AdminHarness().brokers, is_full=True)


async def test_metadata_is_there_with_the_first_full_request_of_the_present_registration() -> None:
    """Serving clients any earlier would deny that their topics exist."""
    requests = receiver(AdminHarness(), Replicas(), broker_epoch=5)
    waiting = asyncio.ensure_future(requests.wait_metadata())
    await requests.apply(UpdateMetadata(1, 8, [], AdminHarness().brokers), 5)
    await asyncio.sleep(0)
    assert not waiting.done()
    await requests.apply(full_metadata(), 5)
    await waiting


async def test_metadata_that_was_meant_for_a_former_life_does_not_count() -> None:
    """The controller may still deliver it to the restarted broker before that has registered."""
    epochs = [-1]
    requests = receiver(AdminHarness(), Replicas(), broker_epoch=lambda: epochs[0])
    await requests.apply(full_metadata(), 4)
    epochs[0] = 5
    waiting = asyncio.ensure_future(requests.wait_metadata())
    await asyncio.sleep(0)
    assert not waiting.done()
    await requests.apply(full_metadata(), 5)
    await waiting


@pytest.mark.parametrize("stops", [False, True])
async def test_thousands_of_partitions_leave_turns_to_others(stops: bool) -> None:
    harness, replicas = AdminHarness(), Replicas()
    requests = receiver(harness, replicas)
    partitions = [TopicPartition("a", number) for number in range(10 * PARTITIONS_PER_SLICE + 1)]
    turns = 0

    async def other() -> None:
        nonlocal turns
        while len(replicas.applied) < len(partitions):
            turns += 1
            await asyncio.sleep(0)

    request = (
        StopReplica(0, 1, partitions, delete=True, leader_epochs={})
        if stops
        else LeaderAndIsr(0, 1, [leadership(partition) for partition in partitions])
    )
    errors, _ = await asyncio.gather(requests.apply(request), other())

    assert partitions == replicas.applied
    assert [PARTITIONS_PER_SLICE] * 10 + [1] == replicas.slices
    assert 11 == len(errors)
    assert turns >= 10


async def test_the_metadata_of_a_topic_with_many_partitions_leaves_turns_to_others() -> None:
    harness = AdminHarness()
    requests = receiver(harness, Replicas())
    partitions = [TopicPartition("a", number) for number in range(1000)]
    turns = 0
    seen: set[int] = set()

    async def other() -> None:
        nonlocal turns
        while harness.cache.partition_count("a") < len(partitions):
            turns += 1
            seen.add(harness.cache.partition_count("a"))
            await asyncio.sleep(0)

    update = UpdateMetadata(0, 1, [leadership(partition) for partition in partitions], harness.brokers)
    await asyncio.gather(requests.apply(update), other())

    assert turns >= 1000 / STEPS_AT_ONCE
    assert {0} == seen, "a topic is updated as a whole"


class Interleaved(Replicas):
    """Notes the epoch of the request that each slice belongs to."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[int] = []

    def apply_leader_and_isr(self, request: LeaderAndIsr) -> dict[TopicPartition, ErrorCode]:
        self.epochs.append(request.controller_epoch)
        return {}


async def test_a_request_does_not_overtake_one_that_is_under_way() -> None:
    """Both are in flight when a controller's request timed out there, and it sends the next."""
    replicas = Interleaved()
    requests = receiver(AdminHarness(), replicas)
    roles = [leadership(TopicPartition("a", number)) for number in range(3 * PARTITIONS_PER_SLICE)]
    await asyncio.gather(*(requests.apply(LeaderAndIsr(0, epoch, roles)) for epoch in (1, 2, 3)))
    assert [1, 1, 1, 2, 2, 2, 3, 3, 3] == replicas.epochs


async def test_an_epoch_learnt_from_one_kind_of_request_fences_all() -> None:
    harness, replicas = AdminHarness(), Replicas()
    requests = receiver(harness, replicas)
    await requests.apply(UpdateMetadata(1, 8, [], harness.brokers))
    for request in (
        LeaderAndIsr(0, 7, [leadership(TopicPartition("a", 0))]),
        StopReplica(0, 7, [TopicPartition("a", 0)], delete=True, leader_epochs={}),
        UpdateMetadata(0, 7, [], []),
    ):
        with pytest.raises(ApiError) as caught:
            await requests.apply(request)
        assert ErrorCode.STALE_CONTROLLER_EPOCH is caught.value.code
    assert [] == replicas.applied
    assert 1 == harness.cache.controller_id


async def test_a_request_for_a_former_life_changes_nothing() -> None:
    """The controller may also be ahead: it sees a registration before its owner is told."""
    replicas = Replicas()
    requests = receiver(AdminHarness(), replicas, broker_epoch=5)
    request = LeaderAndIsr(0, 1, [leadership(TopicPartition("a", 0))])
    with pytest.raises(ApiError) as caught:
        await requests.apply(request, 4)
    assert ErrorCode.STALE_BROKER_EPOCH is caught.value.code
    for broker_epoch in (5, 6, -1):
        await requests.apply(request, broker_epoch)
    assert 3 == len(replicas.applied)


async def test_roles_wait_for_settings_that_cannot_be_read() -> None:
    """A log made with the wrong settings could lose data by retention; the controller tries again."""
    harness, replicas = AdminHarness(), Replicas()

    async def fail(entity_type: str, entity_name: str) -> dict[str, str]:
        raise ZooKeeperError("out of reach")

    harness.cluster.config = fail  # type: ignore[method-assign]  # stands in for a lost connection
    requests = receiver(harness, replicas, has_logs=False)
    with pytest.raises(ApiError) as caught:
        await requests.apply(LeaderAndIsr(0, 1, [leadership(TopicPartition("a", 0))]))
    assert ErrorCode.BROKER_NOT_AVAILABLE is caught.value.code
    assert [] == replicas.applied


@pytest.mark.parametrize(
    "bad",
    [TopicPartition(name, 0) for name in ("../a", "a/b", "", "..", "a\0", "ü", "a" * 250)]
    + [TopicPartition("a", -1)],
)
async def test_no_log_is_made_for_a_name_that_no_topic_can_have(bad: TopicPartition) -> None:
    """Anybody who reaches the port can send this: a log's directory must stay within the log directory."""
    harness, replicas = AdminHarness(), Replicas()
    good = [TopicPartition("a", 0), TopicPartition("a", 1)]
    request = LeaderAndIsr(0, 1, [leadership(each) for each in (good[0], bad, good[1])])

    errors = await receiver(harness, replicas, has_logs=False).apply(request)

    assert good == replicas.applied
    assert {
        bad: ErrorCode.INVALID_TOPIC_EXCEPTION,
        good[1]: ErrorCode.KAFKA_STORAGE_ERROR,
    } == errors


async def test_settings_that_are_nonsense_keep_no_other_topic_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness, replicas = AdminHarness(), Replicas()

    async def config(entity_type: str, entity_name: str) -> dict[str, str]:
        if entity_name == "bad":
            raise SchemaError("a configuration is not JSON")
        return {"retention.ms": "5"}

    monkeypatch.setattr(harness.cluster, "config", config)
    both = [TopicPartition("bad", 0), TopicPartition("good", 0)]

    await receiver(harness, replicas, has_logs=False).apply(
        LeaderAndIsr(0, 1, [leadership(each) for each in both])
    )

    assert both == replicas.applied
    assert {"retention.ms": "5"} == harness.store.topic_overrides("good")
    assert ["ERROR"] == [record.levelname for record in caplog.records]


async def test_a_broker_about_to_stop_follows_nobody_anew() -> None:
    """It would be in sync again when it goes, and producers would wait for it."""
    replicas = Replicas()
    requests = receiver(AdminHarness(), replicas)
    unfollowed: list[TopicPartition] = []
    request = LeaderAndIsr(0, 1, [leadership(TopicPartition("a", 0))])
    await requests.apply(request)
    requests.stop_following(unfollowed.extend)
    await requests.apply(request)
    assert 2 == len(replicas.applied)
    assert [TopicPartition("a", 0)] == unfollowed


async def test_much_metadata_is_applied_in_slices_of_whole_topics() -> None:
    harness = AdminHarness()
    requests = receiver(harness, Replicas())
    changes: list[Collection[str]] = []
    harness.cache.on_change(changes.append)
    partitions = [
        leadership(TopicPartition(f"t{topic:03}", number)) for topic in range(100) for number in range(7)
    ]
    partitions = [replace(each, topic_id=uuid.UUID(int=int(each.topic[1:]) + 1)) for each in partitions]
    turns = 0

    async def other() -> None:
        nonlocal turns
        while not applied.done():
            turns += 1
            await asyncio.sleep(0)

    update = UpdateMetadata(0, 1, partitions, harness.brokers)
    applied = asyncio.ensure_future(requests.apply(update))
    await other()
    assert [f"t{topic:03}" for topic in range(100)] == sorted(topic for change in changes for topic in change)
    assert 100 == sum(map(len, changes))
    assert max(map(len, changes)) <= METADATA_PER_SLICE // 7 + 1
    assert turns >= len(changes)


async def test_settings_of_many_new_topics_are_read_some_at_a_time() -> None:
    """All at once would be a task for each, and all of them in one iteration of the event loop."""
    harness, asked = AdminHarness(), list[int]()
    requests = receiver(harness, Replicas(), has_logs=False)

    async def load_topics(_: object, topics: Sequence[str]) -> None:
        asked.append(len(topics))

    harness.store.load_topics = load_topics  # type: ignore[assignment, method-assign]  # it counts
    partitions = [leadership(TopicPartition(f"t{number}", 0)) for number in range(1_000)]
    await requests.apply(LeaderAndIsr(0, 1, partitions))
    assert 1_000 == sum(asked)
    assert max(asked) <= 64


async def listed(requests: ControllerRequests, epoch: int, *topics: str, is_full: bool | None) -> None:
    partitions = [
        replace(leadership(TopicPartition(topic, 0)), topic_id=uuid.UUID(int=ord(topic[0])))
        for topic in topics
    ]
    await requests.apply(UpdateMetadata(1, epoch, partitions, AdminHarness().brokers, is_full))


async def test_a_topic_that_a_full_request_does_not_list_is_gone() -> None:
    """It was deleted while the controller of that time could not reach this broker, and has failed since."""
    harness, replicas = AdminHarness(), Replicas()
    requests = receiver(harness, replicas)
    await listed(requests, 1, "kept", "deleted", is_full=True)
    await listed(requests, 1, "deleted", is_full=False)
    await listed(requests, 2, "kept", is_full=True)
    assert {"kept"} == set(harness.cache.topic_names) & {"kept", "deleted"}
    assert replicas.was_compared


async def test_a_full_request_may_come_in_parts() -> None:
    harness = AdminHarness()
    requests = receiver(harness, Replicas())
    await listed(requests, 1, "a", is_full=False)
    await listed(requests, 1, "b", is_full=True)
    await listed(requests, 2, "a", is_full=False)
    await listed(requests, 2, "b", is_full=True)
    assert {"a", "b"} == set(harness.cache.topic_names) & {"a", "b"}


async def test_a_request_that_does_not_say_whether_it_is_full_ends_nothing() -> None:
    """A controller of Apache Kafka lists the changes only."""
    harness, replicas = AdminHarness(), Replicas()
    requests = receiver(harness, replicas)
    await listed(requests, 1, "a", "b", is_full=None)
    await listed(requests, 2, "a", is_full=None)
    assert {"a", "b"} == set(harness.cache.topic_names) & {"a", "b"}
    assert (True, False) == (replicas.strays_sought, replicas.was_compared)
