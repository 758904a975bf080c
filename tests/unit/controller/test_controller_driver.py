"""The driver: elections, watches and writes against the in-process coordination server."""

import asyncio

import pytest

from kalda.cluster import paths
from kalda.cluster.schema import PartitionState, ReplicaAssignment, TopicAssignment
from kalda.common.errors import ErrorCode
from kalda.common.turns import STEPS_AT_ONCE
from kalda.common.types import TopicPartition
from kalda.controller import channel_manager
from kalda.controller.effects import LeaderAndIsr, PartitionLeadership, StopReplica, UpdateMetadata
from kalda.controller.request_batch import RequestBatch
from tests.unit.controller.stage import Stage, registration, topic, until, until_empty

P0 = TopicPartition("t", 0)


async def test_one_broker_elects_itself_and_brings_topics_to_life(stage: Stage) -> None:
    node = await stage.start(1)
    assert (True, 1, 1) == (node.driver.is_active, node.driver.controller_id, node.driver.epoch)
    await node.cluster.create_topics([topic("t", (1,), (1,))])
    await until(lambda: stage.brokers.leader(1, TopicPartition("t", 1)) == 1)
    states = await node.cluster.partition_states([P0])
    assert {P0: PartitionState(1, 0, (1,), 1, version=0)} == states
    kinds = [type(request) for request in stage.brokers.heard[1]]
    assert [UpdateMetadata, LeaderAndIsr, UpdateMetadata, LeaderAndIsr, UpdateMetadata] == kinds


async def test_added_partitions_come_to_life(stage: Stage) -> None:
    node = await stage.start(1)
    await node.cluster.create_topics([topic("t", (1,))])
    await until(lambda: stage.brokers.leader(1, P0) == 1)
    for count in (2, 3):
        (found,) = (await node.cluster.topic_assignments(["t"])).values()
        grown = {number: ReplicaAssignment((1,)) for number in range(count)}
        await node.cluster.set_assignment(TopicAssignment("t", found.topic_id, grown, found.version))
        last = TopicPartition("t", count - 1)
        await until(lambda last=last: stage.brokers.leader(1, last) == 1)  # type: ignore[misc]  # binds the loop's value


async def test_deleted_topic_is_forgotten_when_its_replicas_are_gone(stage: Stage) -> None:
    node = await stage.start(1)
    await node.cluster.create_topics([topic("t", (1,)), topic("u", (1,))])
    await until(lambda: stage.brokers.leader(1, P0) == 1)
    await node.cluster.request_topic_deletions(["t", "ghost"])
    await until(lambda: isinstance(stage.brokers.heard[1][-1], StopReplica))
    await until_empty(node.cluster.topics_to_delete)
    assert ["u"] == await node.cluster.topics()
    assert {"u": {}} == await node.cluster.configs("topics")
    await node.cluster.create_topics([topic("t", (1,))])
    await until(lambda: stage.brokers.leader(1, P0) == 1)


async def test_the_name_of_a_deleted_topic_is_free_though_a_broker_is_dead(stage: Stage) -> None:
    """It deletes its replica when it is back, as it knows of no newer topic."""
    first, second = await stage.start(1), await stage.start(2)
    await first.cluster.create_topics([topic("t", (1, 2))])
    await until(lambda: stage.brokers.leader(1, P0) == 1)
    await second.session.expire()
    await first.cluster.request_topic_deletions(["t"])
    await until(lambda: stage.brokers.deleted(1) == [P0])
    assert ["t"] == await first.cluster.topics_to_delete()
    await first.driver.complete_deletions(["t", "ghost"])
    assert [] == await first.cluster.topics_to_delete()
    assert [] == await first.cluster.topics()


async def test_failed_broker_is_replaced_as_leader(stage: Stage) -> None:
    first, second = await stage.start(1), await stage.start(2)
    await first.cluster.create_topics([topic("t", (2, 1))])
    await until(lambda: stage.brokers.leader(1, P0) == 2)
    await second.session.expire()
    await until(lambda: stage.brokers.leader(1, P0) == 1)
    assert {P0: PartitionState(1, 1, (1,), 1, version=1)} == await first.cluster.partition_states([P0])


async def test_unreachable_broker_is_tried_until_it_answers(stage: Stage) -> None:
    first, _ = await stage.start(1), await stage.start(2)
    stage.brokers.unreachable.add(2)
    await first.cluster.create_topics([topic("t", (1, 2))])
    await until(lambda: stage.brokers.leader(1, P0) == 1)
    assert stage.brokers.leader(2, P0) is None
    stage.brokers.unreachable.clear()
    await until(lambda: stage.brokers.leader(2, P0) == 1)


async def test_broker_too_far_behind_is_told_everything_anew(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue is bounded; what was dropped from it must not be missed for ever."""
    monkeypatch.setattr(channel_manager, "_BACKLOG_MAX", 4)
    first, _ = await stage.start(1), await stage.start(2)
    stage.brokers.unreachable.add(2)
    for name in ("t", "u", "v", "w"):
        await first.cluster.create_topics([topic(name, (1, 2))])
        await until(lambda name=name: stage.brokers.leader(1, TopicPartition(name, 0)) == 1)  # type: ignore[misc]  # binds the loop's value
    stage.brokers.unreachable.clear()
    for name in ("t", "u", "v", "w"):
        await until(lambda name=name: stage.brokers.leader(2, TopicPartition(name, 0)) == 1)  # type: ignore[misc]  # binds the loop's value
    roles = [request for request in stage.brokers.heard[2] if isinstance(request, LeaderAndIsr)]
    assert {told.topic for told in roles[-1].partitions} >= {"v", "w"}
    assert any(request.is_full and request.partitions for request in roles)


async def test_controller_that_loses_its_session_is_succeeded_and_follows(stage: Stage) -> None:
    first, second = await stage.start(1), await stage.start(2)
    await first.cluster.create_topics([topic("t", (1, 2))])
    await until(lambda: stage.brokers.leader(2, P0) == 1)
    await first.session.expire()
    await until(lambda: second.driver.is_active)
    assert (False, 2) == (first.driver.is_active, second.driver.epoch)
    await until(lambda: stage.brokers.leader(2, P0) == 2)
    await first.session.reconnect()
    await first.cluster.register_broker(registration(1))
    await first.driver.wait_ready()
    assert (False, 2) == (first.driver.is_active, first.driver.controller_id)
    await second.cluster.create_topics([topic("u", (1, 2))])
    await until(lambda: stage.brokers.leader(1, TopicPartition("u", 0)) == 1)


async def test_stopped_controller_hands_over_at_once(stage: Stage) -> None:
    first, second = await stage.start(1), await stage.start(2)
    await first.stop()
    await until(lambda: second.driver.is_active)
    assert "connected" == first.session.state.value


async def test_controller_whose_znode_is_deleted_stands_again_with_a_new_epoch(stage: Stage) -> None:
    """An operator's way to force an election."""
    node = await stage.start(1)
    await node.session.delete(paths.CONTROLLER)
    await until(lambda: node.driver.epoch == 2)
    await node.driver.wait_ready()
    await node.cluster.create_topics([topic("t", (1,))])
    await until(lambda: stage.brokers.leader(1, P0) == 1)


async def test_nonsense_in_the_controller_znode_leads_to_an_election(stage: Stage) -> None:
    """An operator's slip must not end the broker: the controller clears it away and stands again."""
    node = await stage.start(1)
    await node.session.set(paths.CONTROLLER, b"nonsense")
    await until(lambda: node.driver.epoch == 2 and node.driver.is_active)
    assert 1 == await node.cluster.controller_id()


async def test_disk_that_fills_up_delays_topics_but_loses_none(stage: Stage) -> None:
    """The controller starts over until its writes succeed; the topic was acknowledged, so it must come."""
    node = await stage.start(1)
    creating = asyncio.create_task(node.cluster.create_topics([topic("t", (1,))]))
    await until(creating.done)
    stage.zookeeper.files.failures["sync"] = OSError(28, "no space left on device")
    for _ in range(100):
        await asyncio.sleep(0)
    assert stage.brokers.leader(1, P0) is None
    stage.zookeeper.files.failures.clear()
    await until(lambda: stage.brokers.leader(1, P0) == 1)
    assert node.driver.is_active


async def test_refused_deletion_waits_for_the_broker_to_come_back(stage: Stage) -> None:
    first, second = await stage.start(1), await stage.start(2)
    await first.cluster.create_topics([topic("t", (2,))])
    await until(lambda: stage.brokers.leader(1, P0) == 2)
    stage.brokers.refusals.append(ErrorCode.KAFKA_STORAGE_ERROR)
    await first.cluster.request_topic_deletions(["t"])
    await until(lambda: isinstance(stage.brokers.heard[2][-1], StopReplica))
    assert ["t"] == await first.cluster.topics_to_delete()
    await second.session.expire()
    await second.session.reconnect()
    await second.cluster.register_broker(registration(2))
    await until_empty(first.cluster.topics)


async def test_unclean_election_follows_the_topics_config(stage: Stage) -> None:
    first = await stage.start(1)
    config = {"unclean.leader.election.enable": "true"}
    await first.cluster.create_topics([topic("t", (2, 1), config=config), topic("u", (2, 1))])
    await until(lambda: stage.brokers.leader(1, TopicPartition("u", 0)) == 1)
    for name in "tu":
        partition = TopicPartition(name, 0)
        await first.session.set(
            paths.partition_state(partition),
            b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":5,"isr":[2]}',
        )
    await first.session.delete(paths.CONTROLLER)
    await until(lambda: stage.brokers.leader(1, TopicPartition("u", 0)) == -1)
    states = await first.cluster.partition_states([P0, TopicPartition("u", 0)])
    assert ((1,), True) == (states[P0].isr, states[P0].leader_recovering)
    assert (-1, (2,)) == (states[TopicPartition("u", 0)].leader, states[TopicPartition("u", 0)].isr)


async def test_a_topic_of_many_partitions_leaves_turns_to_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may create 10,000 partitions with one request, and delete them with another."""
    built = most = 0
    leadership = RequestBatch._leadership

    def count(batch: RequestBatch, partition: TopicPartition, is_new: bool) -> PartitionLeadership:
        nonlocal built
        built += 1
        return leadership(batch, partition, is_new)

    async def other() -> None:
        nonlocal built, most
        while True:
            built = 0
            await asyncio.sleep(0)
            most = max(most, built)

    monkeypatch.setattr(RequestBatch, "_leadership", count)
    node = await stage.start(1)
    beside = asyncio.ensure_future(other())
    await node.cluster.create_topics([topic("t", *[(1,)] * 1000)])
    await until(lambda: stage.brokers.leader(1, TopicPartition("t", 999)) == 1)
    beside.cancel()
    assert 0 < most <= STEPS_AT_ONCE
