"""Validates and starts partition reassignments (KIP-455).

The topic's znode holds a reassignment: its replicas are the target replicas followed by the original ones,
with the sets being added and removed. So a new controller continues where the last one failed. A reassignment
has three steps, each durable before the next:

1. The controller writes the assignment with the replicas to add, and sends it to their brokers and the
   leader.
2. When all targets are in sync, it writes the partition state with an ISR and a leader of the targets alone
   (`partition_state_machine.reassigned_state`), and deletes the removed replicas.
3. It writes the assignment with the targets alone.

A cancellation is a reassignment back to the originals, and a new request replaces one in progress. Topic
deletion does not wait for reassignments: it deletes replicas that are being added or removed like all others.
"""

from collections.abc import Mapping

from kalda.cluster.schema import ReplicaAssignment
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.steps import Steps
from kalda.common.types import TopicPartition
from kalda.controller.context import ControllerContext
from kalda.controller.effects import WriteAssignments
from kalda.controller.partition_leadership import Write, decide_states, record_assignments
from kalda.controller.partition_state_machine import ElectionStrategy


def validate_reassignments(
    context: ControllerContext,
    targets: Mapping[TopicPartition, tuple[int, ...] | None],
    *,
    must_live: bool = True,
    may_change_factor: bool = True,
) -> tuple[dict[TopicPartition, ApiError], dict[TopicPartition, ReplicaAssignment]]:
    """Return the errors of refused requests, and the assignments to write for the accepted ones.

    None as target cancels a reassignment. A request that changes nothing is in neither result. The legacy
    znode never required the brokers to add to be live (`must_live`): the reassignment waits for them. Without
    `may_change_factor`, a target has as many replicas as the partition, or as the target before (KIP-860).
    """
    errors: dict[TopicPartition, ApiError] = {}
    changes: dict[TopicPartition, ReplicaAssignment] = {}
    for partition, target in targets.items():
        current = context.assignment_of(partition)
        error = None if target is None else _replicas_error(context, current, target, must_live)
        if error is None and target is None and not current.is_being_reassigned:
            error = ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        if error is None and (not current.replicas or partition.topic in context.topics_to_delete):
            error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        if error is None and target is not None and not may_change_factor:
            error = _factor_error(current.target, target)
        if error is None:
            wanted = current.reassigned_to(current.original if target is None else target)
            error = _loss_error(context, partition, wanted)
        if error is not None:
            errors[partition] = error
        elif wanted != current:
            changes[partition] = wanted
    return errors, changes


def _replicas_error(
    context: ControllerContext, current: ReplicaAssignment, target: tuple[int, ...], must_live: bool
) -> ApiError | None:
    message = None
    if not target:
        message = "The replica list is empty; name at least one broker."
    elif len(set(target)) != len(target):
        message = f"The replica list {list(target)} names a broker twice."
    elif min(target) < 0:
        message = f"The replica list {list(target)} holds a broker id below 0."
    elif must_live:
        live = context.live_brokers.keys() - context.shutting_down
        known = live.union(current.original)
        dead = [replica for replica in target if replica not in known]
        brokers = context.live_brokers
        cordoned = [
            each
            for each in target
            if each not in current.original and each in brokers and brokers[each].is_cordoned
        ]
        if dead:
            message = f"Brokers {dead}, which are to be added, are not live; live brokers are {sorted(live)}."
        elif cordoned:
            message = f"Brokers {cordoned}, which are to be added, have cordoned all their log directories."
    return None if message is None else ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _factor_error(before: tuple[int, ...], target: tuple[int, ...]) -> ApiError | None:
    if len(before) == len(target):
        return None
    return ApiError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"The replication factor is changed from {len(before)} to {len(target)}",
    )


def _loss_error(
    context: ControllerContext, partition: TopicPartition, wanted: ReplicaAssignment
) -> ApiError | None:
    # A replica that is being added may be the only in-sync one by now. KRaft refuses to drop it, too.
    state = context.states.get(partition)
    if state is None or any(replica in wanted.replicas for replica in state.isr):
        return None
    return ApiError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"None of the replicas {list(wanted.replicas)} is in sync, the ISR is {list(state.isr)}: committed "
        "records would be lost. Include an in-sync replica.",
    )


def on_reassignments_requested(changes: Mapping[TopicPartition, ReplicaAssignment]) -> list[Write]:
    """Start or cancel reassignments."""
    return [WriteAssignments(changes)] if changes else []


def on_assignments_written(
    context: ControllerContext, changes: Mapping[TopicPartition, ReplicaAssignment]
) -> Steps[list[Write]]:
    """Record assignments that are durable, and announce them to their brokers under a new leader epoch.

    The assignments of reassignments that were just completed are recorded already.
    """
    changed = {
        partition: assignment
        for partition, assignment in changes.items()
        if context.assignment_of(partition).replicas and context.assignment_of(partition) != assignment
    }
    yield from record_assignments(context, changed)
    return (yield from decide_states(context, changed, ElectionStrategy.NEW_EPOCH))
