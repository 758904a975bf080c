"""Validates the numbers of partitions and the replica assignments that clients choose."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.protocol.messages.create_topics import CreatableReplicaAssignment

PARTITIONS_PER_TOPIC_MAX: Final = 10_000
"""The most partitions that a request may give a topic: the bound of Kafka's KRaft controller for one batch.

A partition costs files and memory on its brokers, so a mistyped count must not be written.
"""


def validate_partition_count(count: int) -> None:
    """Raise an error for a count above the bound; `assign_replicas` checks that it is at least 1.

    Raises:
        ApiError: POLICY_VIOLATION.
    """
    if count > PARTITIONS_PER_TOPIC_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{count} partitions are more than a request may ask for, {PARTITIONS_PER_TOPIC_MAX}.",
        )


def manual_assignment(assignments: Sequence[CreatableReplicaAssignment]) -> dict[int, tuple[int, ...]]:
    """Return the assignment of a request. Dead brokers are accepted; their replicas start with them."""
    return {entry.partition_index: tuple(entry.broker_ids) for entry in assignments}


def validate_assignment(assignment: Mapping[int, tuple[int, ...]]) -> None:
    """Validate a replica assignment; one from `assign_replicas` is always valid.

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


def refuse_cordoned(assignment: Iterable[tuple[int, ...]], cordoned: Collection[int]) -> None:
    """Refuse a replica assignment with brokers whose log directories are all cordoned (KIP-1066).

    Raises:
        ApiError: INVALID_REPLICA_ASSIGNMENT.
    """
    found = sorted({broker for replicas in assignment for broker in replicas}.intersection(cordoned))
    if found:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Brokers {found} of the replica assignment have cordoned all their log directories.",
        )


def validate_added_replicas(
    added: Sequence[tuple[int, ...]], increment: int, replication_factor: int, brokers: Collection[int]
) -> None:
    """Validate the replicas that a request assigns to added partitions; their brokers must be alive.

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
