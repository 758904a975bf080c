"""The controller's core: `step` takes one event, updates the context and returns the effects to perform.

The core uses no I/O, clock, task or randomness: the same events give the same effects. The driver must follow
three rules:

1. It performs the effects of a step in order, and feeds the outcome of a write back as an event *before* any
   other event.
2. It queues a `Send` behind all earlier requests to the same broker. The response to a `LeaderAndIsr` or a
   `StopReplica` comes back as an event at any later time.
3. It discards the context when a write is refused because another controller was elected.

A partition state in the context changes only after its write has succeeded, so brokers are never sent a state
that is not durable.
"""

from collections.abc import Iterable, Mapping
from typing import assert_never

from kalda.cluster.schema import PartitionState, TopicAssignment
from kalda.common import invariants
from kalda.common.steps import Steps, result_of
from kalda.common.types import TopicPartition, is_other_topic
from kalda.controller import brokers, elections, reassignment, topic_deletion
from kalda.controller.context import ControllerContext, Replica
from kalda.controller.effects import Effect
from kalda.controller.events import (
    AssignmentsChanged,
    AssignmentsWritten,
    BrokerFellBehind,
    BrokersChanged,
    ControlledShutdownRequested,
    ControllerElected,
    DeletionCompletionRequested,
    Event,
    LeaderAndIsrResponseReceived,
    LeaderElectionRequested,
    LeaderImbalanceCheckDue,
    LogDirFailuresNotified,
    PartitionStatesCreated,
    PartitionStatesRead,
    PartitionStatesUpdated,
    ReassignmentsRequested,
    StopReplicaResponseReceived,
    TopicDeletionsRequested,
    TopicsChanged,
    TopicsDeleted,
    UncleanElectionChanged,
)
from kalda.controller.partition_leadership import (
    Write,
    decide_states,
    on_states_updated,
    record_and_announce,
    record_states,
    without_pending_write,
)
from kalda.controller.partition_state_machine import ElectionStrategy, PartitionStatus
from kalda.controller.replica_state_machine import ReplicaStatus
from kalda.controller.request_batch import RequestBatch
from kalda.controller.step_invariants import check_step


def step(context: ControllerContext, event: Event) -> list[Effect]:
    """Advance the controller by one event."""
    return result_of(steps(context, event))


def steps(context: ControllerContext, event: Event) -> Steps[list[Effect]]:
    """Advance the controller by one event, in steps; the context is sound again after the last one."""
    batch = RequestBatch(context)
    writes = yield from _writes(context, event, batch)
    effects = yield from batch.effects()
    effects += writes
    if invariants.enabled:
        check_step(context, effects)
    return effects


def _writes(context: ControllerContext, event: Event, batch: RequestBatch) -> Steps[list[Effect]]:
    match event:
        case ControllerElected():
            return (yield from _on_elected(context, event, batch))
        case BrokersChanged():
            return (yield from brokers.on_brokers_changed(context, event.brokers, batch))
        case TopicsChanged():
            return [*(yield from _on_topics_changed(context, event))]
        case AssignmentsChanged():
            return [*(yield from _on_assignments_changed(context, event.assignments))]
        case TopicDeletionsRequested():
            return (yield from topic_deletion.request_deletions(context, event.topics, batch))
        case DeletionCompletionRequested():
            return (yield from topic_deletion.complete_deletions(context, event.topics, batch))
        case PartitionStatesCreated():
            return [*(yield from _on_states_created(context, event.states, batch))]
        case PartitionStatesUpdated():
            return [
                *(
                    yield from on_states_updated(
                        context, event.updated, event.conflicts, event.strategy, batch
                    )
                )
            ]
        case PartitionStatesRead():
            return [*(yield from _on_states_read(context, event.states, batch))]
        case ReassignmentsRequested():
            return [*reassignment.on_reassignments_requested(event.changes)]
        case AssignmentsWritten():
            return [*(yield from reassignment.on_assignments_written(context, event.changes))]
        case LeaderElectionRequested():
            return [*(yield from elections.elect(context, event.election, event.partitions))]
        case LeaderImbalanceCheckDue():
            return [*(yield from elections.on_leader_imbalance_check(context))]
        case UncleanElectionChanged():
            return [*(yield from _on_unclean_election_changed(context, event.topics))]
        case ControlledShutdownRequested():
            return [*(yield from brokers.on_controlled_shutdown(context, event.broker_id, batch))]
        case LogDirFailuresNotified():
            return [*brokers.on_log_dir_failures(context, event.broker_ids, batch)]
        case LeaderAndIsrResponseReceived():
            return [*(yield from brokers.on_leader_and_isr_response(context, event, batch))]
        case StopReplicaResponseReceived():
            return (yield from topic_deletion.on_stop_replica_response(context, event, batch))
        case TopicsDeleted():
            yield from topic_deletion.on_topics_deleted(context, event.topics)
            return []
        case BrokerFellBehind():
            return (yield from brokers.on_fell_behind(context, event.broker_id, batch))
        case _:
            assert_never(event)


def _on_elected(
    context: ControllerContext, event: ControllerElected, batch: RequestBatch
) -> Steps[list[Effect]]:
    assert not context.assignments, "a controller is elected with an empty context"
    context.epoch = event.epoch
    context.live_brokers = dict(event.brokers)
    context.unclean_topics = set(event.unclean_topics)
    for assignment in event.assignments.values():
        yield from _add_partitions(context, assignment, assignment.partitions)
    yield from record_states(context, event.states)
    deletions = yield from topic_deletion.request_deletions(context, event.topics_to_delete, batch)
    for broker_id in context.live_brokers:
        yield from brokers.send_full_state(context, broker_id, batch)
    settled = [p for p in context.all_partitions() if p not in context.reassigning]
    # The last controller may have written an assignment and failed before it informed the leader.
    moving = yield from decide_states(context, context.reassigning, ElectionStrategy.NEW_EPOCH)
    return [*deletions, *(yield from decide_states(context, settled)), *moving]


def _on_topics_changed(context: ControllerContext, event: TopicsChanged) -> Steps[list[Write]]:
    for topic in sorted(context.assignments.keys() - event.topics):
        yield
        context.forget_topic(topic)
    created: list[TopicPartition] = []
    for assignment in event.added.values():
        if assignment.topic not in context.assignments:
            created += yield from _add_partitions(context, assignment, assignment.partitions)
    context.unclean_topics |= event.unclean_topics & event.added.keys()
    return (yield from decide_states(context, created))


def _on_assignments_changed(
    context: ControllerContext, assignments: Mapping[str, TopicAssignment]
) -> Steps[list[Write]]:
    created: list[TopicPartition] = []
    for topic, assignment in assignments.items():
        known = context.assignments.get(topic)
        # A topic under deletion does not grow: its partitions would outlive it.
        if known is None or topic in context.topics_to_delete:
            continue
        known_partitions = known.partitions
        if is_other_topic(known.topic_id, assignment.topic_id):
            # The topic's znodes were deleted by hand and created again.
            context.forget_topic(topic)
            known_partitions = {}
        added = [number for number in assignment.partitions if number not in known_partitions]
        created += yield from _add_partitions(context, assignment, added)
    return (yield from decide_states(context, created))


def _on_states_created(
    context: ControllerContext, states: Mapping[TopicPartition, PartitionState], batch: RequestBatch
) -> Steps[list[Write]]:
    ours = {p for p, s in states.items() if s.controller_epoch == context.epoch and s.leader_epoch == 0}
    return (yield from record_and_announce(context, states, batch, new=ours))


def _on_states_read(
    context: ControllerContext, states: Mapping[TopicPartition, PartitionState], batch: RequestBatch
) -> Steps[list[Write]]:
    """Record ISRs that leaders changed, complete reassignments that waited for them, announce the rest."""
    changed = {
        partition: state for partition, state in states.items() if context.states.get(partition) != state
    }
    taken = yield from record_states(context, changed)
    writes = yield from decide_states(context, taken)
    if announced := without_pending_write(context, taken, writes):
        batch.add_metadata(announced)
    return writes


def _on_unclean_election_changed(
    context: ControllerContext, topics: Mapping[str, bool]
) -> Steps[list[Write]]:
    known = {topic: is_allowed for topic, is_allowed in topics.items() if topic in context.assignments}
    context.unclean_topics = {
        *(topic for topic in context.unclean_topics if known.get(topic, True)),
        *(topic for topic, is_allowed in known.items() if is_allowed),
    }
    partitions = [p for topic in known for p in context.partitions_of(topic)]
    return (yield from decide_states(context, partitions))


def _add_partitions(
    context: ControllerContext, assignment: TopicAssignment, numbers: Iterable[int]
) -> Steps[list[TopicPartition]]:
    """Add new partitions of a topic to the context; the topic's other partitions stay as they are."""
    added = {number: assignment.partitions[number] for number in numbers}
    context.assign(assignment, added)
    created = [TopicPartition(assignment.topic, number) for number in added]
    for partition in created:
        yield
        context.move_partition(partition, PartitionStatus.NEW)
        for broker_id in context.replicas_of(partition):
            replica = Replica(partition, broker_id)
            context.move_replica(replica, ReplicaStatus.NEW)
            if broker_id not in context.live_brokers:
                context.move_replica(replica, ReplicaStatus.OFFLINE)
    return created
