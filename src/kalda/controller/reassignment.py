"""Reassignment (KIP-455): which requests are fit to begin, and how one begins.

A move is kept in the topic's znode: the replicas are the targets and then the originals, and which of them
are being added or removed. So the next controller goes on where one failed. It has three steps, each durable
before the next:

1. The assignment is written with the replicas to add; their brokers, and the leader, are told.
2. When all targets are in sync, the state is written with the targets alone in the ISR, and a leader of them
   (`partitions.reassigned_state`); the replicas to remove are deleted.
3. The assignment is written with the targets alone.

A cancellation is a move back to the originals, and a new request replaces one under way. Topic deletion does
not wait for moves: it deletes the replicas being added and removed like all others.
"""

from collections.abc import Mapping

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.context import ControllerContext
from kalda.controller.effects import WriteAssignments
from kalda.controller.partition_leadership import Write, decide_states, record_assignments
from kalda.controller.partition_state_machine import ElectionStrategy
from kalda.zk.client.schema import ReplicaAssignment


def validate_reassignments(
    context: ControllerContext,
    targets: Mapping[TopicPartition, tuple[int, ...] | None],
    *,
    must_live: bool = True,
) -> tuple[dict[TopicPartition, ApiError], dict[TopicPartition, ReplicaAssignment]]:
    """Return why some of the requests are refused, and what is to be written for the others.

    None as target cancels a move. A request for what is there already, or under way already, has neither.
    The legacy znode never asked that brokers to add live (`must_live`): the move waits for them.
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
        dead = [replica for replica in current.reassigned_to(target).adding if replica not in live]
        if dead:
            message = f"Brokers {dead}, which are to be added, do not live; those that do are {sorted(live)}."
    return None if message is None else ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def _loss_error(
    context: ControllerContext, partition: TopicPartition, wanted: ReplicaAssignment
) -> ApiError | None:
    # A replica that is being added may be the only one in sync by now. KRaft refuses to drop it, too.
    state = context.states.get(partition)
    if state is None or any(replica in wanted.replicas for replica in state.isr):
        return None
    return ApiError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"None of the replicas {list(wanted.replicas)} is in sync, the ISR is {list(state.isr)}: committed "
        "records would be lost. Include an in-sync replica.",
    )


def on_reassignments_requested(changes: Mapping[TopicPartition, ReplicaAssignment]) -> list[Write]:
    """Begin moves, or turn them back."""
    return [WriteAssignments(changes)] if changes else []


def on_assignments_written(
    context: ControllerContext, changes: Mapping[TopicPartition, ReplicaAssignment]
) -> list[Write]:
    """Take over assignments that are durable; their brokers are told under a new leader epoch.

    Those of moves just completed are known already.
    """
    changed = {
        partition: assignment
        for partition, assignment in changes.items()
        if context.assignment_of(partition).replicas and context.assignment_of(partition) != assignment
    }
    record_assignments(context, changed)
    return decide_states(context, changed, ElectionStrategy.NEW_EPOCH)
