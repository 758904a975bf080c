"""Assigns the replicas of new partitions to brokers, and to racks if the brokers have racks.

The rule is Kafka's, so that a cluster with existing topics stays balanced. Leaders are assigned round-robin
from a random start; followers are placed at a distance that grows by one with each round. With 5 brokers, 10
partitions and 3 replicas, from start 0 and distance 0: p0 on 0,1,2; p1 on 1,2,3; ...; p5 on 0,2,3.

With racks, the brokers are first ordered so that racks alternate (broker 0 of rack a, 0 of rack b, 1 of rack
a, ...), and a follower goes to a rack without a replica of the partition while there is one.
"""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from kalda.common.errors import ApiError, ErrorCode
from kalda.runtime.random import Random


def assign_replicas(
    racks: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    *,
    chance: Random,
    start: tuple[int, int] | None = None,
) -> dict[int, tuple[int, ...]]:
    """Choose replicas for new partitions.

    Args:
        racks: the live brokers and their racks; used only if every broker has a rack.
        partition_count: how many partitions to place.
        replication_factor: replicas of each partition.
        chance: chooses the start.
        start: for a topic that grows: the index of the broker to start from, and the first new partition.

    Raises:
        ApiError: INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR.
    """
    _validate_counts(partition_count, replication_factor, len(racks))
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    if known and len(known) == len(racks):
        brokers = _alternate_racks(known)
    else:
        known = {}
        brokers = sorted(racks)
    first_index = start[0] if start is not None else chance.randrange(len(brokers))
    distance = start[0] if start is not None else chance.randrange(len(brokers))
    first_partition = start[1] if start is not None else 0
    assignment = {}
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % len(brokers) == 0:
            distance += 1
        leader = (partition + first_index) % len(brokers)
        assignment[partition] = (
            _followers_by_rack(brokers, known, leader, distance, replication_factor)
            if known
            else tuple(_walk(brokers, leader, distance)[:replication_factor])
        )
    return assignment


def _validate_counts(partition_count: int, replication_factor: int, broker_count: int) -> None:
    if partition_count <= 0:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The number of partitions must be at least 1, not {partition_count}.",
        )
    if replication_factor <= 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor must be at least 1, not {replication_factor}.",
        )
    if replication_factor > broker_count:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor {replication_factor} is larger than the number of live brokers, "
            f"{broker_count}.",
        )


def _walk(brokers: Sequence[int], leader: int, distance: int) -> list[int]:
    """Return all brokers in the order in which replicas of a partition are assigned, the leader first."""
    count = len(brokers)
    if count == 1:
        return [brokers[0]]
    followers = [brokers[(leader + 1 + (distance + step) % (count - 1)) % count] for step in range(count - 1)]
    return [brokers[leader], *followers]


def _followers_by_rack(
    brokers: Sequence[int], racks: Mapping[int, str], leader: int, distance: int, replication_factor: int
) -> tuple[int, ...]:
    rack_count = len(set(racks.values()))
    replicas: list[int] = []
    used_racks: set[str] = set()
    walk = _walk(brokers, leader, distance * rack_count)
    # The first round reaches every rack; later rounds add brokers of racks that already have a replica.
    while len(replicas) < replication_factor:
        for broker in walk:
            if len(replicas) == replication_factor or broker in replicas:
                continue
            if racks[broker] not in used_racks or len(used_racks) == rack_count:
                replicas.append(broker)
                used_racks.add(racks[broker])
    return tuple(replicas)


def _alternate_racks(racks: Mapping[int, str]) -> list[int]:
    """Order brokers so that neighbours are on different racks, racks and brokers ascending."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for round_ in rounds for broker in round_ if broker is not None]
