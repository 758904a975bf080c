"""Decides which partition states must be rewritten, records the outcomes, and announces them to brokers.

Every change of a leader or an ISR takes the same path. The event is recorded in the context; `decide_states`
returns the writes that the affected partitions need; the outcome, ours or that of another writer, is
recorded, decided once more, and announced in LeaderAndIsr and UpdateMetadata requests.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from typing import TypeAlias

from kalda.cluster.schema import PartitionState, ReplicaAssignment
from kalda.common.steps import Steps
from kalda.common.types import TopicPartition
from kalda.controller.context import ControllerContext, Replica
from kalda.controller.effects import CreatePartitionStates, UpdatePartitionStates, WriteAssignments
from kalda.controller.partition_state_machine import (
    ElectionStrategy,
    PartitionStatus,
    first_state,
    next_state,
    preferred_state,
    reassigned_state,
    renewed_state,
)
from kalda.controller.replica_state_machine import ReplicaStatus
from kalda.controller.request_batch import RequestBatch

Write: TypeAlias = CreatePartitionStates | UpdatePartitionStates | WriteAssignments


def decide_states(
    context: ControllerContext,
    partitions: Iterable[TopicPartition],
    strategy: ElectionStrategy = ElectionStrategy.OFFLINE,
) -> Steps[list[Write]]:
    """Return the writes of those partitions that need a first or another state."""
    created: dict[TopicPartition, PartitionState] = {}
    updated: dict[ElectionStrategy, dict[TopicPartition, PartitionState]] = {}
    for partition in partitions:
        yield
        if partition.topic in context.topics_to_delete:
            continue
        if partition not in context.states:
            replicas = context.replicas_of(partition)
            online = [replica for replica in replicas if context.is_online(partition, replica)]
            first = first_state(replicas, online, context.epoch)
            if first is not None:
                created[partition] = first
            continue
        decided = _decide_state(context, partition, strategy)
        if decided is not None:
            why, state = decided
            updated.setdefault(why, {})[partition] = state
    effects: list[Write] = [CreatePartitionStates(created)] if created else []
    effects.extend(UpdatePartitionStates(states, why) for why, states in updated.items())
    return effects


def _decide_state(
    context: ControllerContext, partition: TopicPartition, strategy: ElectionStrategy
) -> tuple[ElectionStrategy, PartitionState] | None:
    """Return the strategy and the state that a partition needs, or None if its state may stay."""
    state = context.states[partition]
    assignment = context.assignment_of(partition)
    replicas = assignment.replicas
    serving = [replica for replica in replicas if context.is_serving(partition, replica)]
    if partition in context.returned:
        returned = context.returned[partition]
        serving = [replica for replica in serving if replica not in returned]
    online = [replica for replica in serving if context.is_online(partition, replica)]
    # Completing a reassignment comes first: its state also settles the leader among the target replicas.
    if assignment.is_being_reassigned:
        complete = reassigned_state(state, assignment.target, online, context.epoch)
        if complete is not None:
            return ElectionStrategy.REASSIGNMENT, complete
    if strategy is ElectionStrategy.PREFERRED:
        preferred = preferred_state(state, replicas, online, context.epoch)
        if preferred is not None:
            return strategy, preferred
    is_unclean_allowed = strategy is ElectionStrategy.UNCLEAN or partition.topic in context.unclean_topics
    electable = online
    if not any(replica in state.isr for replica in online):
        # No in-sync replica can be written: one in a full log directory stays leader, for its readers.
        electable = [r for r in serving if r in online or (r in state.isr and r not in context.shutting_down)]
    changed = next_state(
        state, replicas, electable, serving, context.epoch, is_unclean_allowed=is_unclean_allowed
    )
    if changed is not None:
        return strategy, changed
    if strategy is ElectionStrategy.NEW_EPOCH:
        return strategy, renewed_state(state, context.epoch)
    return None


def record_and_announce(
    context: ControllerContext,
    states: Mapping[TopicPartition, PartitionState],
    batch: RequestBatch,
    new: Set[TopicPartition] = frozenset(),
) -> Steps[list[Write]]:
    """Record states that ZooKeeper holds, and announce those that need no further write.

    Each state is decided again: brokers may have started or failed since the write was decided.
    """
    recorded = yield from record_states(context, states)
    writes = yield from decide_states(context, recorded)
    for partition in without_pending_write(context, recorded, writes):
        yield
        announce(context, partition, batch, is_new=partition in new)
    return writes


def on_states_updated(
    context: ControllerContext,
    updated: Mapping[TopicPartition, PartitionState],
    conflicts: Mapping[TopicPartition, PartitionState | None],
    strategy: ElectionStrategy,
    batch: RequestBatch,
) -> Steps[list[Write]]:
    """Record the outcome of conditional writes, and decide refused writes again with the same strategy.

    A write is refused if the leader changed its ISR first, or if the response to our own write was lost.
    """
    written = yield from record_states(context, updated)
    completed: dict[TopicPartition, ReplicaAssignment] = {}
    if strategy is ElectionStrategy.REASSIGNMENT:
        completed = yield from _complete_reassignments(context, written)
    stored = {p: state for p, state in conflicts.items() if state is not None}
    refused = yield from record_states(context, stored)
    writes = yield from decide_states(context, written)
    writes += yield from decide_states(context, refused, strategy)
    for partition in without_pending_write(context, [*written, *refused], writes):
        yield
        announce(context, partition, batch)
    if completed:
        # Last: until this write succeeds, a new controller finds the reassignment and completes it again.
        writes.append(WriteAssignments(completed))
    return writes


def record_states(
    context: ControllerContext, states: Mapping[TopicPartition, PartitionState]
) -> Steps[list[TopicPartition]]:
    """Record partition states in the context; return the partitions that exist in it."""
    known = [partition for partition in states if partition in context.partition_status]
    for partition in known:
        yield
        state = context.states[partition] = states[partition]
        note_returned(context, partition, state)
        update_status(context, partition)
    return known


def note_returned(context: ControllerContext, partition: TopicPartition, state: PartitionState) -> None:
    """Record which in-sync replicas are not known to have what the ISR says; see `returned`."""
    live = context.live_brokers
    returned = (
        frozenset(b for b in state.isr if b in live and live[b].epoch > state.written_at)
        if state.written_at >= 0
        else frozenset[int]()
    )
    if returned and any(context.is_online(partition, b) for b in state.isr if b not in returned):
        context.returned[partition] = returned
    else:
        context.returned.pop(partition, None)


def _complete_reassignments(
    context: ControllerContext, partitions: Collection[TopicPartition]
) -> Steps[dict[TopicPartition, ReplicaAssignment]]:
    """Reduce the assignments of completed reassignments to their targets, and return those assignments."""
    completed: dict[TopicPartition, ReplicaAssignment] = {}
    for partition in partitions:
        yield
        assignment = context.assignment_of(partition)
        if assignment.is_being_reassigned and partition.topic not in context.topics_to_delete:
            completed[partition] = ReplicaAssignment(assignment.target)
    yield from record_assignments(context, completed)
    return completed


def record_assignments(
    context: ControllerContext, changes: Mapping[TopicPartition, ReplicaAssignment]
) -> Steps[None]:
    """Record new assignments of known partitions in the context.

    Added replicas are new; removed replicas are deleted when the partition's next state is announced.
    """
    by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
    for partition, assignment in changes.items():
        yield
        by_topic.setdefault(partition.topic, {})[partition.partition] = assignment
        before = context.replicas_of(partition)
        removed = [
            *context.removed_replicas.pop(partition, ()),
            *(r for r in before if r not in assignment.replicas),
        ]
        if removed := [replica for replica in removed if replica not in assignment.replicas]:
            context.removed_replicas[partition] = tuple(removed)
        for broker_id in assignment.replicas:
            replica = Replica(partition, broker_id)
            if replica not in context.replica_status:
                context.move_replica(replica, ReplicaStatus.NEW)
    for topic, assignments in by_topic.items():
        context.assign(context.assignments[topic], assignments)


def update_status(context: ControllerContext, partition: TopicPartition) -> None:
    """Set a partition's status from its state and the live brokers."""
    leads = context.is_serving(partition, context.states[partition].leader)
    context.move_partition(partition, PartitionStatus.ONLINE if leads else PartitionStatus.OFFLINE)


def take_replica_offline(context: ControllerContext, replica: Replica) -> None:
    """Record that a replica's broker or log directory is gone."""
    status = context.replica_status[replica]
    if status is ReplicaStatus.DELETION_STARTED:
        context.move_replica(replica, ReplicaStatus.DELETION_INELIGIBLE)
    elif status not in (ReplicaStatus.DELETION_SUCCESSFUL, ReplicaStatus.DELETION_INELIGIBLE):
        context.move_replica(replica, ReplicaStatus.OFFLINE)


def announce(
    context: ControllerContext, partition: TopicPartition, batch: RequestBatch, *, is_new: bool = False
) -> None:
    """Send a partition's new state to its replicas, and deletions to its removed replicas."""
    if partition.topic in context.topics_to_delete:
        return
    batch.add_metadata([partition])
    for broker_id in context.replicas_of(partition):
        replica = Replica(partition, broker_id)
        if broker_id not in context.live_brokers:
            continue
        if broker_id in context.shutting_down:
            _announce_to_shutting_down(context, replica, batch)
            continue
        # An in-sync replica may have a log in a directory that failed: it must not start an empty one.
        is_added = broker_id not in context.states[partition].isr and (
            context.replica_status[replica] is ReplicaStatus.NEW
            or broker_id in context.assignment_of(partition).adding
        )
        batch.add_leader_and_isr([broker_id], partition, is_new=is_new or is_added)
        if context.is_serving(partition, broker_id):
            context.move_replica(replica, ReplicaStatus.ONLINE)
    _delete_removed_replicas(context, partition, batch)


def _announce_to_shutting_down(context: ControllerContext, replica: Replica, batch: RequestBatch) -> None:
    """Send a broker that shuts down what it must still lead, and stop its followers.

    A follower is stopped so that no leader takes it back into the ISR, which would be undone at once.
    """
    partition, broker_id = replica
    if context.replica_status[replica] is not ReplicaStatus.ONLINE:
        return
    batch.add_leader_and_isr([broker_id], partition)
    if context.states[partition].leader != broker_id:
        batch.add_stop(broker_id, partition, delete=False)
        context.move_replica(replica, ReplicaStatus.OFFLINE)


def _delete_removed_replicas(
    context: ControllerContext, partition: TopicPartition, batch: RequestBatch
) -> None:
    """Delete replicas that are neither assigned nor in sync any more.

    The reassignment does not wait for the responses: a dead broker may never send one. Deletions without a
    response stay in `pending_deletions` and are sent again when the broker is back.
    """
    isr = context.states[partition].isr
    leaving = context.removed_replicas.pop(partition, ())
    if kept := tuple(broker_id for broker_id in leaving if broker_id in isr):
        # No assigned replica is in sync, or it would have left the ISR: it may be the only complete copy.
        context.removed_replicas[partition] = kept
    for broker_id in leaving:
        if broker_id in isr:
            continue
        batch.add_stop(broker_id, partition, delete=True)
        context.pending_deletions.setdefault(broker_id, {})[partition] = None
        replica = Replica(partition, broker_id)
        for status in (
            ReplicaStatus.OFFLINE,
            ReplicaStatus.DELETION_STARTED,
            ReplicaStatus.DELETION_SUCCESSFUL,
            ReplicaStatus.NON_EXISTENT,
        ):
            context.move_replica(replica, status)


def without_pending_write(
    context: ControllerContext, partitions: Iterable[TopicPartition], writes: Iterable[Write]
) -> list[TopicPartition]:
    """Return the partitions to announce now; a partition with a pending write is announced after it."""
    rewritten = {
        partition for write in writes if not isinstance(write, WriteAssignments) for partition in write.states
    }
    return [p for p in partitions if p not in rewritten and p.topic not in context.topics_to_delete]
