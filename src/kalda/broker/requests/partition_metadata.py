"""Builds a partition's leader and replicas for Metadata and DescribeTopicPartitions responses.

The rules are Kafka's. A partition whose leader the client cannot reach has leader -1 and an error: from
Metadata v6, LISTENER_NOT_FOUND if the leader is alive without the client's listener.
"""

from collections.abc import Mapping
from typing import TypeVar

from kalda.cluster.schema import BrokerInfo
from kalda.common.errors import ErrorCode
from kalda.common.types import NO_PARTITION_LEADER
from kalda.controller.effects import PartitionLeadership
from kalda.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsResponsePartition
from kalda.protocol.messages.metadata import MetadataResponsePartition

Response = TypeVar("Response", MetadataResponsePartition, DescribeTopicPartitionsResponsePartition)


def partition_metadata(
    response_class: type[Response],
    partition: PartitionLeadership,
    brokers: Mapping[int, BrokerInfo],
    listener: str,
    *,
    has_listener_error: bool = True,
    hides_unreachable: bool = False,
) -> Response:
    """Return the metadata of one partition.

    Args:
        response_class: the partition's class in the response.
        partition: the partition as the controller sent it.
        brokers: the live brokers.
        listener: the listener that the client is connected to.
        has_listener_error: whether the version has LISTENER_NOT_FOUND (Metadata v6 and up).
        hides_unreachable: whether to leave out replicas on unreachable brokers, with an error (Metadata v0).
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
        lacks_listener = leader is not None and has_listener_error
        error = ErrorCode.LISTENER_NOT_FOUND if lacks_listener else ErrorCode.LEADER_NOT_AVAILABLE
    return response_class(
        error_code=error,
        partition_index=partition.partition,
        leader_id=leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline,
    )


def _is_reachable(broker_id: int, brokers: Mapping[int, BrokerInfo], listener: str) -> bool:
    info = brokers.get(broker_id)
    return info is not None and info.endpoint(listener) is not None
