"""Elects leaders on request: of an operator, of a legacy tool's znode, or of the imbalance check.

Elections that a failed or restarted broker makes necessary are decided in `partition_leadership`.
"""

from collections.abc import Iterable

from kalda.common.errors import ErrorCode
from kalda.common.steps import Steps
from kalda.common.types import TopicPartition
from kalda.controller.context import ControllerContext
from kalda.controller.events import ElectionType
from kalda.controller.partition_leadership import Write, decide_states
from kalda.controller.partition_state_machine import ElectionStrategy


def validate_elections(
    context: ControllerContext, election: ElectionType, partitions: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, ErrorCode], list[TopicPartition]]:
    """Return the error of each partition that needs or gets no election, and the electable partitions."""
    refused: dict[TopicPartition, ErrorCode] = {}
    electable: list[TopicPartition] = []
    for partition in partitions:
        if partition not in context.partition_status:
            refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif partition.topic in context.topics_to_delete:
            refused[partition] = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif _is_led(context, election, partition):
            refused[partition] = ErrorCode.ELECTION_NOT_NEEDED
        else:
            electable.append(partition)
    return refused, electable


def outcome(context: ControllerContext, election: ElectionType, partition: TopicPartition) -> ErrorCode:
    """Return the error code of a partition whose election has been held."""
    if partition not in context.partition_status:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if _is_led(context, election, partition):
        return ErrorCode.NONE
    if election is ElectionType.PREFERRED:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def elect(
    context: ControllerContext, election: ElectionType, partitions: Iterable[TopicPartition]
) -> Steps[list[Write]]:
    """Elect leaders; a requested unclean election ignores ``unclean.leader.election.enable``."""
    strategy = ElectionStrategy.PREFERRED if election is ElectionType.PREFERRED else ElectionStrategy.UNCLEAN
    return (yield from decide_states(context, [p for p in partitions if p in context.states], strategy))


def on_leader_imbalance_check(context: ControllerContext) -> Steps[list[Write]]:
    """Elect the preferred replicas of brokers that lead too few of their preferred partitions.

    A broker's imbalance is the percentage of its preferred partitions that it does not lead. Above
    ``leader.imbalance.per.broker.percentage`` the broker gets back those that it can lead.
    """
    preferred: dict[int, int] = {}
    missed: dict[int, list[TopicPartition]] = {}
    for partition in context.all_partitions():
        yield
        if partition.topic in context.topics_to_delete:
            continue
        broker_id = context.replicas_of(partition)[0]
        preferred[broker_id] = preferred.get(broker_id, 0) + 1
        state = context.states.get(partition)
        if state is not None and state.leader != broker_id:
            missed.setdefault(broker_id, []).append(partition)
    candidates: list[TopicPartition] = []
    for broker_id, partitions in sorted(missed.items()):
        if len(partitions) * 100 > context.leader_imbalance_percentage * preferred[broker_id]:
            candidates += [p for p in partitions if context.is_online(p, broker_id)]
    return (yield from decide_states(context, candidates, ElectionStrategy.PREFERRED))


def imbalance_count(context: ControllerContext) -> int:
    """Return the number of partitions that are not led by their preferred replica."""
    return sum(
        context.states[partition].leader != context.replicas_of(partition)[0]
        for partition in context.all_partitions()
        if partition in context.states and partition.topic not in context.topics_to_delete
    )


def _is_led(context: ControllerContext, election: ElectionType, partition: TopicPartition) -> bool:
    state = context.states.get(partition)
    if state is None:
        return False
    if election is ElectionType.PREFERRED:
        return state.leader == context.replicas_of(partition)[0]
    return context.is_serving(partition, state.leader)
