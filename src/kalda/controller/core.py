"""The controller's core: `step` takes an event, updates the context, and returns what is to be done.

No I/O, clock, task or randomness: the same events give the same effects. The contract with the driver:

1. It performs the effects of a step in order, and feeds the outcome of a write back as an event *before* any
   other event.
2. A `Send` is queued for its broker behind all earlier ones; its answer, if it is a `StopReplica`'s, comes
   back as an event at any later time.
3. When a write is refused because another controller was elected, the context is thrown away.

States in the context change when their write has succeeded, never before: what brokers are told is durable.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import TypeAlias, assert_never

from kalda.common.types import TopicPartition
from kalda.controller import deletion
from kalda.controller.batch import RequestBatch
from kalda.controller.context import ControllerContext, Replica
from kalda.controller.effects import CreatePartitionStates, Effect, RevisitBrokers, UpdatePartitionStates
from kalda.controller.events import (
    AssignmentsChanged,
    BrokerFellBehind,
    BrokersChanged,
    ControllerElected,
    Event,
    PartitionStatesCreated,
    PartitionStatesUpdated,
    ReplicasStopped,
    TopicDeletionsRequested,
    TopicsChanged,
    TopicsDeleted,
)
from kalda.controller.partitions import PartitionStatus, first_state, next_state
from kalda.controller.replicas import ReplicaStatus
from kalda.coordination.schema import BrokerInfo, PartitionState, TopicAssignment

_Write: TypeAlias = CreatePartitionStates | UpdatePartitionStates


def step(context: ControllerContext, event: Event) -> list[Effect]:
    """Advance the controller by one event."""
    batch = RequestBatch(context)
    match event:
        case ControllerElected():
            writes: list[Effect] = _on_elected(context, event, batch)
        case BrokersChanged():
            writes = _on_brokers_changed(context, event.brokers, batch)
        case TopicsChanged():
            writes = [*_on_topics_changed(context, event)]
        case AssignmentsChanged():
            writes = [*_on_assignments_changed(context, event.assignments)]
        case TopicDeletionsRequested():
            writes = deletion.request_deletions(context, event.topics, batch)
        case PartitionStatesCreated():
            writes = [*_on_states_created(context, event.states, batch)]
        case PartitionStatesUpdated():
            writes = [*_on_states_updated(context, event, batch)]
        case ReplicasStopped():
            writes = deletion.on_replicas_stopped(context, event, batch)
        case TopicsDeleted():
            deletion.on_topics_deleted(context, event.topics)
            writes = []
        case BrokerFellBehind():
            writes = _on_fell_behind(context, event.broker_id, batch)
        case _:
            assert_never(event)
    return batch.effects() + writes


def _on_elected(context: ControllerContext, event: ControllerElected, batch: RequestBatch) -> list[Effect]:
    assert not context.assignments, "a controller is elected with an empty context"
    context.epoch = event.epoch
    context.live_brokers = dict(event.brokers)
    context.unclean_topics = set(event.unclean_topics)
    for assignment in event.assignments.values():
        _learn_partitions(context, assignment, assignment.partitions)
    for partition, state in event.states.items():
        if partition in context.partition_status:
            context.states[partition] = state
            _settle_status(context, partition)
    rejected_or_doomed = deletion.request_deletions(context, event.topics_to_delete, batch)
    for broker_id in context.live_brokers:
        _introduce(context, broker_id, batch)
    return [*rejected_or_doomed, *_repair(context, context.all_partitions())]


def _on_brokers_changed(
    context: ControllerContext, brokers: Mapping[int, BrokerInfo], batch: RequestBatch
) -> list[Effect]:
    before = context.live_brokers
    restarted = {b for b in brokers.keys() & before.keys() if brokers[b].epoch != before[b].epoch}
    context.live_brokers = {b: info for b, info in brokers.items() if b not in restarted}
    dead = before.keys() - context.live_brokers.keys()
    arrived = context.live_brokers.keys() - before.keys()
    concerned = [
        p for p in context.all_partitions() if any(b in dead or b in arrived for b in context.replicas_of(p))
    ]
    for partition in concerned:
        for broker_id in context.replicas_of(partition):
            if broker_id in dead:
                _lose_replica(context, Replica(partition, broker_id))
        if partition in context.states:
            _settle_status(context, partition)
    for broker_id in sorted(arrived):
        _introduce(context, broker_id, batch)
    writes = _repair(context, concerned)
    if context.live_brokers != before:
        batch.add_metadata(_not_rewritten(context, concerned, writes))
    deletions = deletion.resume_deletions(context, context.topics_to_delete, batch)
    revisit = [RevisitBrokers(brokers)] if restarted else []
    return [*writes, *deletions, *revisit]


def _on_topics_changed(context: ControllerContext, event: TopicsChanged) -> list[_Write]:
    for topic in sorted(context.assignments.keys() - event.topics):
        context.forget_topic(topic)
    created: list[TopicPartition] = []
    for assignment in event.added.values():
        if assignment.topic not in context.assignments:
            created += _learn_partitions(context, assignment, assignment.partitions)
    return _repair(context, created)


def _on_assignments_changed(
    context: ControllerContext, assignments: Mapping[str, TopicAssignment]
) -> list[_Write]:
    created: list[TopicPartition] = []
    for topic, assignment in assignments.items():
        known = context.assignments.get(topic)
        # A topic under deletion does not grow: its partitions would outlive it.
        if known is None or topic in context.topics_to_delete:
            continue
        if known.topic_id != assignment.topic_id:
            # Somebody deleted the topic's znodes by hand and created it again.
            context.forget_topic(topic)
            known = TopicAssignment(topic, assignment.topic_id)
        added = [number for number in assignment.partitions if number not in known.partitions]
        created += _learn_partitions(context, assignment, added)
    return _repair(context, created)


def _on_states_created(
    context: ControllerContext, states: Mapping[TopicPartition, PartitionState], batch: RequestBatch
) -> list[_Write]:
    ours = {p for p, s in states.items() if s.controller_epoch == context.epoch and s.leader_epoch == 0}
    return _adopt(context, states, batch, new=ours)


def _on_states_updated(
    context: ControllerContext, event: PartitionStatesUpdated, batch: RequestBatch
) -> list[_Write]:
    # Where a write was refused the leader changed its ISR first: judge again by what it wrote.
    found = {partition: state for partition, state in event.conflicts.items() if state is not None}
    return _adopt(context, {**event.updated, **found}, batch)


def _adopt(
    context: ControllerContext,
    states: Mapping[TopicPartition, PartitionState],
    batch: RequestBatch,
    new: Set[TopicPartition] = frozenset(),
) -> list[_Write]:
    """Take over what ZooKeeper holds, and announce it unless it has to be rewritten at once.

    Each outcome is judged anew: brokers may have come or gone since the write was decided.
    """
    adopted = [partition for partition in states if partition in context.partition_status]
    for partition in adopted:
        context.states[partition] = states[partition]
        _settle_status(context, partition)
    writes = _repair(context, adopted)
    for partition in _not_rewritten(context, adopted, writes):
        _announce(context, partition, batch, is_new=partition in new)
    return writes


def _on_fell_behind(context: ControllerContext, broker_id: int, batch: RequestBatch) -> list[Effect]:
    if broker_id not in context.live_brokers:
        return []
    for replica, status in context.replica_status.items():
        if replica.broker_id == broker_id and status is ReplicaStatus.DELETION_STARTED:
            context.move_replica(replica, ReplicaStatus.DELETION_INELIGIBLE)
    _introduce(context, broker_id, batch)
    return deletion.resume_deletions(context, context.topics_to_delete, batch)


def _learn_partitions(
    context: ControllerContext, assignment: TopicAssignment, numbers: Iterable[int]
) -> list[TopicPartition]:
    """Add partitions to the context as new ones, and keep what is known of the topic's others."""
    known = context.assignments.get(assignment.topic)
    learned = {number: assignment.partitions[number] for number in numbers}
    partitions = {**(known.partitions if known else {}), **learned}
    context.assignments[assignment.topic] = replace(assignment, partitions=partitions)
    created = [TopicPartition(assignment.topic, number) for number in learned]
    for partition in created:
        context.move_partition(partition, PartitionStatus.NEW)
        for broker_id in context.replicas_of(partition):
            replica = Replica(partition, broker_id)
            context.move_replica(replica, ReplicaStatus.NEW)
            if broker_id not in context.live_brokers:
                context.move_replica(replica, ReplicaStatus.OFFLINE)
    return created


def _settle_status(context: ControllerContext, partition: TopicPartition) -> None:
    """Set the partition's status to what its state and the live brokers say."""
    leads = context.states[partition].leader in context.live_brokers
    context.move_partition(partition, PartitionStatus.ONLINE if leads else PartitionStatus.OFFLINE)


def _introduce(context: ControllerContext, broker_id: int, batch: RequestBatch) -> None:
    """Tell a broker that just came everything: its roles, and how every partition stands."""
    roles: list[TopicPartition] = []
    for partition in context.partitions_on(broker_id):
        if partition.topic in context.topics_to_delete or partition not in context.states:
            continue
        context.move_replica(Replica(partition, broker_id), ReplicaStatus.ONLINE)
        roles.append(partition)
    batch.add_all_roles(broker_id, roles)
    batch.add_all_metadata(broker_id)


def _announce(
    context: ControllerContext, partition: TopicPartition, batch: RequestBatch, *, is_new: bool = False
) -> None:
    """Tell a partition's replicas its new state."""
    if partition.topic in context.topics_to_delete:
        return
    replicas = context.replicas_of(partition)
    batch.add_leader_and_isr(replicas, partition, is_new=is_new)
    for broker_id in replicas:
        if broker_id in context.live_brokers:
            context.move_replica(Replica(partition, broker_id), ReplicaStatus.ONLINE)


def _lose_replica(context: ControllerContext, replica: Replica) -> None:
    """A replica's broker is gone."""
    status = context.replica_status[replica]
    if status is ReplicaStatus.DELETION_STARTED:
        context.move_replica(replica, ReplicaStatus.DELETION_INELIGIBLE)
    elif status not in (ReplicaStatus.DELETION_SUCCESSFUL, ReplicaStatus.DELETION_INELIGIBLE):
        context.move_replica(replica, ReplicaStatus.OFFLINE)


def _not_rewritten(
    context: ControllerContext, partitions: Iterable[TopicPartition], writes: Iterable[_Write]
) -> list[TopicPartition]:
    """Return the partitions to announce now; the others are announced when their write has succeeded."""
    rewritten = {partition for write in writes for partition in write.states}
    return [p for p in partitions if p not in rewritten and p.topic not in context.topics_to_delete]


def _repair(context: ControllerContext, partitions: Iterable[TopicPartition]) -> list[_Write]:
    """Decide which of the partitions need a new state: first ones, and those whose leader or ISR is dead."""
    live = context.live_brokers.keys()
    created: dict[TopicPartition, PartitionState] = {}
    updated: dict[TopicPartition, PartitionState] = {}
    for partition in partitions:
        if partition.topic in context.topics_to_delete:
            continue
        replicas = context.replicas_of(partition)
        state = context.states.get(partition)
        if state is None:
            first = first_state(replicas, live, context.epoch)
            if first is not None:
                created[partition] = first
            continue
        is_unclean_allowed = partition.topic in context.unclean_topics
        changed = next_state(state, replicas, live, context.epoch, is_unclean_allowed=is_unclean_allowed)
        if changed is not None:
            updated[partition] = changed
    effects: list[_Write] = []
    if created:
        effects.append(CreatePartitionStates(created))
    if updated:
        effects.append(UpdatePartitionStates(updated))
    return effects
