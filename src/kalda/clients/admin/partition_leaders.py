"""Finds the leaders of partitions in a Metadata response that was asked for by an admin call. Sans-IO.

It is not `kalda.clients.metadata`, which holds the topics that a producer or a consumer uses all the time.
"""

from collections.abc import Iterable

from kalda.clients.errors import ClientError, error_for
from kalda.clients.metadata import ClusterMetadata
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


def leaders_request(partitions: Iterable[TopicPartition]) -> MetadataRequest:
    """Ask for the topics of the partitions; none is created by that."""
    topics = sorted({partition.topic for partition in partitions})
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=False
    )


def leaders_in(
    response: MetadataResponse, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int | ClientError]:
    """Return the broker id of each partition's leader, or the error that stands in its place."""
    cluster = ClusterMetadata.from_response(response)
    return {partition: _leader(cluster, partition) for partition in partitions}


def _leader(cluster: ClusterMetadata, partition: TopicPartition) -> int | ClientError:
    what = f"find the leader of {partition}"
    topic = cluster.topics.get(partition.topic)
    if topic is not None and topic.error is not ErrorCode.NONE:
        return error_for(topic.error, what)
    found = cluster.partition(partition)
    if found is None:
        return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
    # A partition with a leader may have an error that concerns its other replicas only.
    if found.leader_id not in cluster.brokers:
        return error_for(ErrorCode.LEADER_NOT_AVAILABLE, what)
    return found.leader_id
