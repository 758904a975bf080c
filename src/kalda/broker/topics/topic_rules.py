"""The rules that a topic's partitions and replicas obey when a client chooses them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.protocol.messages.create_topics import CreatableReplicaAssignment

PARTITIONS_PER_TOPIC_MAX: Final = 10_000
"""The most partitions that one request may give one topic: Kafka's bound for a whole batch (KRaft).

Each costs files and memory on its brokers, so a mistyped count must not reach coordination.
"""


def validate_partition_count(count: int) -> None:
    """Refuse a count that is surely a mistake; that it is at least 1 is checked where replicas are chosen.

    Raises:
        ApiError: POLICY_VIOLATION.
    """
    if count > PARTITIONS_PER_TOPIC_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{count} partitions are more than a request may ask for, {PARTITIONS_PER_TOPIC_MAX}.",
        )


def manual_assignment(assignments: Sequence[CreatableReplicaAssignment]) -> dict[int, tuple[int, ...]]:
    """Read replicas chosen by hand. Brokers that do not live are taken: their partitions come up with
    them."""
    return {entry.partition_index: tuple(entry.broker_ids) for entry in assignments}


def validate_assignment(assignment: Mapping[int, tuple[int, ...]]) -> None:
    """Check replicas chosen by hand (those that were computed always pass).

    Raises:
        ApiError: INVALID_REPLICA_ASSIGNMENT.
    """
    factors = {len(replicas) for replicas in assignment.values()}
    if len(factors) != 1 or 0 in factors:
        problem = "All partitions must have the same number of replicas, at least one."
    elif any(len(set(replicas)) != len(replicas) for replicas in assignment.values()):
        problem = f"A broker is named twice for one partition: {dict(assignment)}"
    elif sorted(assignment) != list(range(len(assignment))):
        problem = f"Partitions must be numbered from 0 without gaps: {sorted(assignment)}"
    else:
        return
    raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def validate_added_replicas(
    added: Sequence[tuple[int, ...]], increment: int, replication_factor: int, brokers: Collection[int]
) -> None:
    """Check replicas chosen by hand for new partitions; unlike at creation, their brokers must live.

    Raises:
        ApiError: INVALID_REPLICA_ASSIGNMENT.
    """
    unknown = sorted({broker for replicas in added for broker in replicas} - set(brokers))
    if unknown:
        problem = f"Unknown brokers in the replica assignment: {', '.join(map(str, unknown))}."
    elif len(added) != increment:
        problem = f"The topic grows by {increment} partitions, but {len(added)} assignments are given."
    elif any(not replicas for replicas in added):
        problem = "A partition must have at least one replica."
    elif any(len(set(replicas)) != len(replicas) for replicas in added):
        problem = "A broker is named twice for one partition."
    elif any(len(replicas) != replication_factor for replicas in added):
        problem = f"The topic's partitions have {replication_factor} replicas; so must the new ones."
    else:
        return
    raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
