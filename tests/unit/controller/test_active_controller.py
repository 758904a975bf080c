"""The driver in office: what operators, brokers and older tools ask of it, and how it outlives faults."""

import asyncio
import uuid
from dataclasses import replace

import pytest

from kalda.cluster import paths, schema
from kalda.cluster.schema import ListenerEndpoint, PartitionState, ReplicaAssignment
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller import driver as driver_module
from kalda.controller import request_queue
from kalda.controller.effects import LeaderAndIsr, UpdateMetadata
from kalda.controller.events import ElectionType
from kalda.controller.isr_requests import IsrRequest
from kalda.controller.statistics import ControllerStatistics
from kalda.zookeeper.port import Delete, SetData
from tests.unit.controller.stage import Node, Stage, registration, topic, until, until_empty

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)


async def write_isr(node: Node, partition: TopicPartition, *isr: int) -> None:
    """The leader changes its ISR, as a replica manager does."""
    state = (await node.cluster.partition_states([partition]))[partition]
    data = schema.encode_partition_state(replace(state, isr=isr))
    await node.session.set(paths.partition_state(partition), data, state.version)


async def notify_isr_change(node: Node, *partitions: TopicPartition) -> None:
    path = f"{paths.ISR_CHANGES}/{paths.ISR_CHANGE_PREFIX}"
    await node.session.create(path, schema.encode_isr_change(partitions), sequential=True)


async def until_holds(node: Node, path: str, data: bytes | None) -> None:
    """Read a znode over and over until it holds what it should; None: until it is gone."""
    for _ in range(2000):
        (found,) = await node.session.get_many([path])
        if (found and found[0]) == data:
            return
    raise AssertionError(f"{path} never held {data!r}")


async def until_gone(node: Node, path: str) -> None:
    await until_holds(node, path, None)


async def state_of(node: Node, partition: TopicPartition) -> PartitionState:
    return (await node.cluster.partition_states([partition]))[partition]


def isr(stage: Stage, listener: int, partition: TopicPartition) -> tuple[int, ...]:
    """The in-sync replicas by what one broker last heard in its metadata."""
    told = [r for r in stage.brokers.heard[listener] if isinstance(r, UpdateMetadata)]
    return [each.isr for r in told for each in r.partitions if each.topic_partition == partition][-1]


async def assignment_of(node: Node, partition: TopicPartition) -> ReplicaAssignment:
    found = await node.cluster.topic_assignments([partition.topic])
    return found[partition.topic].partitions[partition.partition]


async def start(stage: Stage, count: int, *replicas: tuple[int, ...]) -> Node:
    """Start brokers, the first of which is controller, and a topic ``t``."""
    nodes = [await stage.start(broker_id) for broker_id in range(1, count + 1)]
    await nodes[0].cluster.create_topics([topic("t", *replicas)])
    last = TopicPartition("t", len(replicas) - 1)
    await until(lambda: stage.brokers.leader(1, last) == replicas[-1][0])
    return nodes[0]


async def test_reassignment_ends_as_soon_as_the_targets_are_in_sync(stage: Stage) -> None:
    """By a watch on the state: the notification of a changed ISR would come seconds later."""
    node = await start(stage, 3, (1, 2), (2, 1))
    outcome = await node.driver.alter_reassignments({P0: (3, 1), P1: None, TopicPartition("ghost", 0): (1,)})
    codes = {partition: error and error.code for partition, error in outcome.items()}
    assert {
        P0: None,
        P1: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        TopicPartition("ghost", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    } == codes
    moving = ReplicaAssignment((3, 1, 2), (3,), (2,))
    assert {P0: moving} == node.driver.list_reassignments(None)
    assert {} == node.driver.list_reassignments([P1])
    assert 1 == node.driver.statistics().reassigning_partitions_count
    assert moving == await assignment_of(node, P0)
    await write_isr(node, P0, 1, 2, 3)
    await until(lambda: stage.brokers.deleted(2) == [P0])
    await until(lambda: not node.driver.list_reassignments(None))
    assert (1, 3) == (await state_of(node, P0)).isr
    assert ReplicaAssignment((3, 1)) == await assignment_of(node, P0)


async def test_change_of_the_replication_factor_is_refused_on_request(stage: Stage) -> None:
    """KIP-860: the factor is that of the target while a reassignment is in progress."""
    node = await start(stage, 3, (1, 2), (2, 1))
    outcome = await node.driver.alter_reassignments(
        {P0: (3, 1), P1: (1, 2, 3), TopicPartition("ghost", 0): (1, 2)}, may_change_factor=False
    )
    codes = {partition: error and error.code for partition, error in outcome.items()}
    assert {
        P0: None,
        P1: ErrorCode.INVALID_REPLICATION_FACTOR,
        TopicPartition("ghost", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    } == codes
    outcome = await node.driver.alter_reassignments({P0: (1, 2, 3)}, may_change_factor=False)
    refused = outcome[P0]
    assert refused is not None
    assert "The replication factor is changed from 2 to 3" == refused.message
    assert {P0: None} == await node.driver.alter_reassignments({P0: None}, may_change_factor=False)


async def test_partitions_added_meanwhile_survive_a_reassignment(stage: Stage) -> None:
    node = await start(stage, 2, (1,))
    (found,) = (await node.cluster.topic_assignments(["t"])).values()
    grown = replace(found, partitions={**found.partitions, 1: ReplicaAssignment((1,))})
    await asyncio.gather(
        node.driver.alter_reassignments({P0: (2,)}),
        node.cluster.set_assignment(grown),
    )
    await until(lambda: stage.brokers.leader(1, P1) == 1)
    await write_isr(node, P0, 1, 2)
    await until(lambda: stage.brokers.leader(1, P0) == 2)
    await until(lambda: not node.driver.list_reassignments(None))
    assert ReplicaAssignment((1,)) == await assignment_of(node, P1)


async def test_next_controller_ends_a_reassignment(stage: Stage) -> None:
    first = await start(stage, 2, (1,))
    second = stage.nodes[1]
    await first.driver.alter_reassignments({P0: (2,)})
    await first.stop()
    await until(lambda: second.driver.is_active)
    await write_isr(second, P0, 1, 2)
    await until(lambda: stage.brokers.deleted(1) == [P0])


async def test_legacy_reassignment_is_carried_out_and_its_znode_removed(stage: Stage) -> None:
    node = await start(stage, 2, (1,), (1,))
    for _ in range(2):
        wanted = {P0: (2,), P1: (1, 1), TopicPartition("ghost", 0): (1,)}
        await node.session.create(paths.REASSIGN_PARTITIONS, schema.encode_reassignment(wanted))
        await until(lambda: P0 in node.driver.list_reassignments(None))
        await until_holds(node, paths.REASSIGN_PARTITIONS, schema.encode_reassignment({P0: (2,)}))
        await write_isr(node, P0, 1, 2)
        await until(lambda: stage.brokers.leader(1, P0) == 2)
        await until_gone(node, paths.REASSIGN_PARTITIONS)
        await node.driver.alter_reassignments({P0: (1,)})
        await write_isr(node, P0, 2, 1)
        await until(lambda: stage.brokers.leader(1, P0) == 1)


@pytest.mark.parametrize("path", [paths.REASSIGN_PARTITIONS, paths.PREFERRED_REPLICA_ELECTION])
async def test_nonsense_of_older_tools_is_removed(stage: Stage, path: str) -> None:
    """Else it would keep later requests out for ever."""
    node = await start(stage, 1, (1,))
    await node.session.create(path, b"nonsense")
    await until_gone(node, path)
    assert node.driver.is_active


async def test_legacy_election_gives_leadership_back(stage: Stage) -> None:
    node = await start(stage, 2, (1, 2))
    for epoch in (3, 5):
        await node.session.set(
            paths.partition_state(P0), schema.encode_partition_state(PartitionState(2, epoch, (2, 1), 1))
        )
        wanted = schema.encode_preferred_election([P0, TopicPartition("ghost", 0)])
        await node.session.create(paths.PREFERRED_REPLICA_ELECTION, wanted)
        await until_gone(node, paths.PREFERRED_REPLICA_ELECTION)
        assert 1 == (await state_of(node, P0)).leader


def last_brokers(stage: Stage) -> list[schema.BrokerInfo]:
    told = [request for request in stage.brokers.heard[1] if isinstance(request, UpdateMetadata)]
    return told[-1].brokers


async def test_election_is_by_what_leaders_wrote_last(stage: Stage) -> None:
    """A replica that has just got in sync may be elected, though its notification has not come yet."""
    node = await start(stage, 2, (1, 2), (2, 1))
    await node.session.set(
        paths.partition_state(P0),
        schema.encode_partition_state(PartitionState(2, 3, (2, 1), 1)),
    )
    assert {P0: ErrorCode.NONE} == await node.driver.elect_leaders(ElectionType.PREFERRED, None)
    assert 1 == (await state_of(node, P0)).leader
    assert {
        P0: ErrorCode.ELECTION_NOT_NEEDED,
        P1: ErrorCode.ELECTION_NOT_NEEDED,
    } == await node.driver.elect_leaders(ElectionType.PREFERRED, [P0, P1])
    assert {} == await node.driver.elect_leaders(ElectionType.UNCLEAN, None)


async def test_controlled_shutdown_checks_who_asks(stage: Stage) -> None:
    node = await start(stage, 2, (2, 1), (2,))
    second = stage.nodes[1]
    epoch = (await node.cluster.brokers())[2].epoch
    with pytest.raises(ApiError, match="STALE_BROKER_EPOCH"):
        await node.driver.controlled_shutdown(2, epoch - 1)
    with pytest.raises(ApiError, match="BROKER_NOT_AVAILABLE"):
        await node.driver.controlled_shutdown(7, 1)
    assert 2 == (await state_of(node, P0)).leader
    assert [] == await node.driver.controlled_shutdown(2, epoch)
    assert PartitionState(1, 1, (1,), 1, version=1) == (await state_of(node, P0))
    assert [] == await node.driver.controlled_shutdown(2, epoch)
    with pytest.raises(ApiError, match="NOT_CONTROLLER"):
        await second.driver.controlled_shutdown(2, epoch)


async def test_shutdown_of_a_broker_whose_return_was_not_noticed(stage: Stage) -> None:
    """Its request is quicker than the watch: the brokers are read before it is judged."""
    node = await start(stage, 2, (2, 1))
    second = stage.nodes[1]
    await second.session.expire()
    await second.session.reconnect()
    epoch = await second.cluster.register_broker(registration(2))
    assert [] == await node.driver.controlled_shutdown(2, epoch)
    assert 1 == (await state_of(node, P0)).leader


async def test_a_leader_that_asks_gets_its_isr_stored(stage: Stage) -> None:
    """Leaders of Apache Kafka ask the controller (KIP-497), and send nothing to ZooKeeper."""
    node = await start(stage, 3, (1, 2), (2, 3))
    epoch = (await node.cluster.brokers())[2].epoch
    shrunk = PartitionState(2, 0, (2,), 1, version=1)
    ghost = TopicPartition("ghost", 0)
    found = await node.driver.alter_in_sync_replicas(
        2, epoch, {P1: IsrRequest(0, 0, (2,)), P0: IsrRequest(0, 0, (2,)), ghost: IsrRequest(0, 0, (2,))}
    )
    assert {
        P1: shrunk,
        P0: ErrorCode.INVALID_REQUEST,
        ghost: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    } == found
    assert shrunk == await state_of(node, P1)
    await until(lambda: isr(stage, 3, P1) == (2,))
    # The response was lost: the leader repeats the request under the version that it knows.
    assert {P1: shrunk} == await node.driver.alter_in_sync_replicas(2, epoch, {P1: IsrRequest(0, 0, (2,))})
    with pytest.raises(ApiError, match="STALE_BROKER_EPOCH"):
        await node.driver.alter_in_sync_replicas(2, epoch - 1, {})
    with pytest.raises(ApiError, match="NOT_CONTROLLER"):
        await stage.nodes[1].driver.alter_in_sync_replicas(2, epoch, {})


async def test_a_follower_that_came_back_enters_the_isr_at_once(stage: Stage) -> None:
    """Its broker registered after the state was written, but before the leader asks."""
    node = await start(stage, 2, (1, 2))
    second = stage.nodes[1]
    await second.session.expire()
    await until(lambda: isr(stage, 1, P0) == (1,))
    await second.session.reconnect()
    await second.cluster.register_broker(registration(2))
    stored = await state_of(node, P0)
    epoch = (await node.cluster.brokers())[1].epoch
    request = IsrRequest(stored.leader_epoch, stored.version, (1, 2))
    grown = replace(stored, isr=(1, 2), version=stored.version + 1)
    assert {P0: grown} == await node.driver.alter_in_sync_replicas(1, epoch, {P0: request})
    assert grown == await state_of(node, P0)


async def test_a_leader_is_fenced_by_its_registration(stage: Stage) -> None:
    node = await start(stage, 2, (1, 2))
    epoch = (await node.cluster.brokers())[2].epoch
    for broker_id, named, code in (
        (2, epoch - 1, "STALE_BROKER_EPOCH"),
        (2, -1, "STALE_BROKER_EPOCH"),
        (9, epoch, "BROKER_ID_NOT_REGISTERED"),
    ):
        with pytest.raises(ApiError, match=code):
            await node.driver.check_registration(broker_id, named)
    await node.driver.check_registration(2, epoch)
    with pytest.raises(ApiError, match="STALE_BROKER_EPOCH"):
        await node.driver.alter_in_sync_replicas(9, epoch, {})


async def test_notified_isr_reaches_every_metadata_cache(stage: Stage) -> None:
    node = await start(stage, 2, (1, 2))
    await write_isr(node, P0, 1)
    await notify_isr_change(node, P0, TopicPartition("ghost", 0))
    await node.session.create(f"{paths.ISR_CHANGES}/{paths.ISR_CHANGE_PREFIX}", b"junk", sequential=True)
    await until_empty(lambda: node.session.children(paths.ISR_CHANGES))

    await until(lambda: isr(stage, 1, P0) == isr(stage, 2, P0) == (1,))


async def test_failed_log_directory_moves_leaders(stage: Stage) -> None:
    node = await start(stage, 2, (2, 1), (2, 1))
    stage.brokers.failed_replicas[2] = {P0}
    path = f"{paths.LOG_DIR_EVENTS}/{paths.LOG_DIR_EVENT_PREFIX}"
    await node.session.create(path, schema.encode_log_dir_event(schema.LogDirEvent(2)), sequential=True)
    await until_empty(lambda: node.session.children(paths.LOG_DIR_EVENTS))
    await until(lambda: stage.brokers.leader(1, P0) == 1)
    assert 2 == stage.brokers.leader(1, P1)


async def test_changed_endpoint_is_told_without_a_restart(stage: Stage) -> None:
    node = await start(stage, 2, (1, 2))
    for port in (1, 2):
        moved = replace(registration(2), endpoints=(ListenerEndpoint("PLAINTEXT", "elsewhere", port),))
        await node.session.set(paths.broker(2), schema.encode_broker(moved))
        await until(lambda moved=moved: moved.endpoints in [b.endpoints for b in last_brokers(stage)])  # type: ignore[misc]  # binds the loop's value


async def test_balance_is_restored_by_itself(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "_FIRST_BALANCE_CHECK_SECONDS", 0)
    node = await start(stage, 2, (1, 2))
    await node.session.set(
        paths.partition_state(P0), schema.encode_partition_state(PartitionState(2, 3, (2, 1), 1))
    )
    await node.session.delete(paths.CONTROLLER)
    await until(lambda: stage.brokers.leader(1, P0) == 2)
    await until(lambda: stage.brokers.leader(1, P0) == 1)


async def test_unclean_election_may_be_allowed_while_a_partition_is_offline(stage: Stage) -> None:
    node = await start(stage, 2, (2, 1))
    await write_isr(node, P0, 2)
    await stage.nodes[1].session.expire()
    await until(lambda: stage.brokers.leader(1, P0) == -1)
    assert 1 == node.driver.statistics().offline_partitions_count
    await node.cluster.set_config("topics", "t", {"unclean.leader.election.enable": "true"})
    node.driver.on_topic_config_changed("t")
    await until(lambda: stage.brokers.leader(1, P0) == 1)
    assert (await state_of(node, P0)).leader_recovering
    counts = node.driver.election_counts
    assert (1, 1) == (counts.elections, counts.unclean)


async def test_new_topics_bring_their_settings(stage: Stage) -> None:
    """A topic created while the controller is in office may allow unclean elections from the start."""
    node = await stage.start(1)
    second = await stage.start(2)
    config = {"unclean.leader.election.enable": "true"}
    await node.cluster.create_topics([topic("t", (2, 1), config=config)])
    await until(lambda: stage.brokers.leader(1, P0) == 2)
    await write_isr(node, P0, 2)
    await second.session.expire()
    await until(lambda: stage.brokers.leader(1, P0) == 1)


async def test_statistics_are_those_of_the_cluster_or_nothing(stage: Stage) -> None:
    node = await start(stage, 2, (1, 2), (2, 1))
    assert (
        ControllerStatistics(
            active_controller_count=1, global_topic_count=1, global_partition_count=2, active_broker_count=2
        )
        == node.driver.statistics()
    )
    assert ControllerStatistics() == stage.nodes[1].driver.statistics()


async def test_short_loss_of_the_connection_costs_no_election(stage: Stage) -> None:
    """What happened meanwhile is read when the connection is back, whether watches reported it or not."""
    node = await start(stage, 2, (2, 1))
    second = stage.nodes[1]
    for fails_after in (False, True):
        node.link.cut(fails_after=fails_after)
        name = f"during-{fails_after}".lower()
        await second.cluster.create_topics([topic(name, (2, 1))])
        await second.cluster.set_config("topics", name, {})
        for _ in range(50):
            await asyncio.sleep(0)
        assert stage.brokers.leader(1, TopicPartition(name, 0)) is None
        node.link.mend()
        await until(lambda name=name: stage.brokers.leader(1, TopicPartition(name, 0)) == 2)  # type: ignore[misc]  # binds the loop's value
    assert (True, 1) == (node.driver.is_active, node.driver.epoch)


async def test_connection_lost_again_as_soon_as_it_is_back(stage: Stage) -> None:
    """What is read anew after a loss may fail like everything else."""
    node = await start(stage, 2, (2, 1))
    for turns in range(12):
        node.link.cut(fails_after=turns % 2 == 0)
        for _ in range(5):
            await asyncio.sleep(0)
        node.link.mend()
        for _ in range(turns):
            await asyncio.sleep(0)
    await node.cluster.create_topics([topic("late", (2, 1))])
    await until(lambda: stage.brokers.leader(1, TopicPartition("late", 0)) == 2)
    assert (True, 1) == (node.driver.is_active, node.driver.epoch)


async def test_broker_that_cannot_reach_coordination_stands_when_it_can(stage: Stage) -> None:
    node = await start(stage, 2, (2, 1))
    second = stage.nodes[1]
    second.link.cut(fails_after=True)
    await node.session.expire()
    for _ in range(30):
        await asyncio.sleep(0)
    assert not second.driver.is_active
    second.link.mend()
    await until(lambda: second.driver.is_active)
    await until(lambda: stage.brokers.leader(2, P0) == 2)


async def test_write_whose_answer_was_lost_is_not_done_twice(stage: Stage) -> None:
    node = await start(stage, 2, (2, 1))
    asking = asyncio.create_task(node.driver.controlled_shutdown(2, -1))
    await asyncio.sleep(0)
    node.link.cut(fails_after=True)
    for _ in range(50):
        await asyncio.sleep(0)
    node.link.mend()
    assert [] == await asking
    state = await state_of(node, P0)
    assert (1, (1,)) == (state.leader, state.isr)
    assert 1 == node.driver.epoch


async def test_requests_are_refused_when_office_is_lost(stage: Stage) -> None:
    """The one under way and those that wait: whoever asks finds the new controller."""
    node = await start(stage, 2, (1, 2))
    node.link.cut()
    asking = [asyncio.create_task(node.driver.elect_leaders(ElectionType.PREFERRED, None)) for _ in range(3)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(task.done() for task in asking)
    await node.session.expire()
    node.link.mend()
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    assert [ErrorCode.NOT_CONTROLLER] * 3 == [getattr(outcome, "code", None) for outcome in outcomes]
    await until(lambda: stage.nodes[1].driver.is_active)


async def test_requests_that_wait_are_bounded(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_queue, "_WAITING_MAX", 2)
    node = await start(stage, 1, (1,))
    asking = [asyncio.create_task(node.driver.elect_leaders(ElectionType.PREFERRED, None)) for _ in range(4)]
    outcomes = await asyncio.gather(*asking, return_exceptions=True)
    codes = [getattr(outcome, "code", None) for outcome in outcomes]
    assert [None, None, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT] == codes


async def test_whoever_stops_waiting_is_skipped(stage: Stage) -> None:
    node = await start(stage, 1, (1,))
    asking = asyncio.create_task(node.driver.alter_reassignments({P0: (2,)}))
    await asyncio.sleep(0)
    asking.cancel()
    assert {P0: ErrorCode.ELECTION_NOT_NEEDED} == await node.driver.elect_leaders(
        ElectionType.PREFERRED, [P0]
    )
    assert {} == node.driver.list_reassignments(None)


async def test_watches_do_not_pile_up_over_terms(stage: Stage) -> None:
    node = await start(stage, 2, (1, 2))
    await node.driver.alter_reassignments({P0: (2,)})
    counts = []
    for term in range(2, 12):
        await node.session.delete(paths.CONTROLLER)
        await until(lambda term=term: any(n.driver.is_active and n.driver.epoch == term for n in stage.nodes))  # type: ignore[misc]  # binds the loop's value
        for each in stage.nodes:
            await each.driver.wait_ready()
        counts.append(stage.watch_count)
    assert max(counts[4:]) <= max(counts[:4])


async def test_state_written_by_a_later_controller_ends_the_term(stage: Stage) -> None:
    """The sign that this one was paused: it must not announce what another decided."""
    node = await start(stage, 1, (1,))
    heard = len(stage.brokers.heard[1])
    await node.session.set(
        paths.partition_state(P0), schema.encode_partition_state(PartitionState(1, 9, (1,), 2))
    )
    await notify_isr_change(node, P0)
    await until(lambda: node.driver.epoch == 2)
    epochs = [request.controller_epoch for request in stage.brokers.heard[1][heard:]]
    assert set(epochs) <= {2}


@pytest.mark.parametrize("turns", range(0, 60, 3))
async def test_cancelled_driver_leaves_office_wherever_it_is(stage: Stage, turns: int) -> None:
    session = await stage.zookeeper.connect()
    other = await stage.start(2)
    await other.session.delete(paths.CONTROLLER)
    node = Node(1, stage.nodes[0].cluster, session, stage.brokers)
    for _ in range(turns):
        await asyncio.sleep(0)
    await node.stop()
    assert node.task.cancelled()
    await until(lambda: other.driver.is_active or other.driver.controller_id == 2)


async def test_paused_controller_wakes_and_finds_itself_fenced(stage: Stage) -> None:
    """It may still send what it decided before, in its own epoch, but it writes nothing any more."""
    first = await start(stage, 2, (1, 2))
    second = stage.nodes[1]
    first.link.cut()
    await second.session.delete(paths.CONTROLLER)
    await until(lambda: second.driver.is_active)
    asking = asyncio.create_task(first.driver.controlled_shutdown(2, -1))
    await asyncio.sleep(0)
    first.link.mend()
    with pytest.raises(ApiError, match="NOT_CONTROLLER"):
        await asking
    assert 1 == (await state_of(second, P0)).leader
    await first.driver.wait_ready()
    assert 2 == first.driver.controller_id
    told = [r for r in stage.brokers.heard[1] if isinstance(r, LeaderAndIsr) and r.controller_id == 1]
    assert {1} == {request.controller_epoch for request in told}


@pytest.mark.parametrize("code", [ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH])
async def test_refusal_as_stale_makes_the_controller_look(stage: Stage, code: ErrorCode) -> None:
    """It finds that nothing has changed, and goes on; the refused request is not sent again."""
    node = await start(stage, 1, (1,))
    stage.brokers.stale.append(code)
    for name in ("u", "v"):
        await node.cluster.create_topics([topic(name, (1,))])
        await until(lambda name=name: stage.brokers.leader(1, TopicPartition(name, 0)) == 1)  # type: ignore[misc]  # binds the loop's value
    assert (True, 1, []) == (node.driver.is_active, node.driver.epoch, stage.brokers.stale)


async def test_topic_made_anew_by_hand_brings_its_settings(stage: Stage) -> None:
    """Between two reads a topic became another of the same name, which allows unclean elections."""
    node = await start(stage, 2, (2, 1))
    (old,) = (await node.cluster.topic_assignments(["t"])).values()
    new = replace(old, topic_id=uuid.uuid4())
    path = paths.partition_state(P0)
    allowed = schema.encode_config({"unclean.leader.election.enable": "true"})
    await node.session.multi(
        [
            Delete(path),
            SetData(paths.config("topics", "t"), allowed),
            SetData(paths.topic("t"), schema.encode_topic(new)),
        ]
    )
    await until(lambda: stage.brokers.leader(1, P0) == 2)
    await write_isr(node, P0, 2)
    await stage.nodes[1].session.expire()
    await until(lambda: stage.brokers.leader(1, P0) == 1)
