"""A partition as a client on one listener sees it: the leader, if it can be reached, and the replicas.

Metadata and DescribeTopicPartitions return it. The rules are Kafka's: a partition without a reachable leader
has leader -1 and an error. From Metadata v6 on, a live leader without the client's listener has an error of
its own.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kalda.common.errors import ErrorCode
from kalda.common.types import NO_PARTITION_LEADER
from kalda.controller.effects import PartitionLeadership
from kalda.zk.client.schema import BrokerInfo


class PartitionView(NamedTuple):
    """One partition as a client sees it."""

    error: ErrorCode
    partition: int
    leader: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline_replicas: list[int]


def view_partition(
    partition: PartitionLeadership,
    brokers: Mapping[int, BrokerInfo],
    listener: str,
    *,
    tells_missing_listener: bool = True,
    hides_unreachable: bool = False,
) -> PartitionView:
    """Return a partition as a client sees it.

    Args:
        partition: the leadership that the controller sent.
        brokers: the live brokers.
        listener: the listener of the client's connection.
        tells_missing_listener: whether the client knows LISTENER_NOT_FOUND (Metadata v6 and up).
        hides_unreachable: whether replicas on unreachable brokers are left out, with an error (Metadata v0).
    """
    leader = brokers.get(partition.leader)
    replicas, isr = list(partition.replicas), list(partition.isr)
    offline = [broker for broker in replicas if broker not in brokers or broker in partition.offline_replicas]
    error = ErrorCode.NONE
    if hides_unreachable:
        replicas = [broker for broker in replicas if _is_reachable(broker, brokers, listener)]
        isr = [broker for broker in isr if _is_reachable(broker, brokers, listener)]
        if len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    leader_id = partition.leader
    if leader is None or leader.endpoint(listener) is None:
        leader_id = NO_PARTITION_LEADER
        missing_listener = leader is not None and tells_missing_listener
        error = ErrorCode.LISTENER_NOT_FOUND if missing_listener else ErrorCode.LEADER_NOT_AVAILABLE
    return PartitionView(
        error, partition.partition, leader_id, partition.leader_epoch, replicas, isr, offline
    )


def _is_reachable(broker_id: int, brokers: Mapping[int, BrokerInfo], listener: str) -> bool:
    info = brokers.get(broker_id)
    return info is not None and info.endpoint(listener) is not None
