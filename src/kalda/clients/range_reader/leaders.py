"""Defines the errors of partitions without a known leader and of topics that were recreated. Pure."""

from kalda.clients.errors import BrokerResponseError, UnknownTopicOrPartitionError, error_for
from kalda.clients.metadata import ClusterMetadata
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, TopicPartition, is_other_topic


def missing_leader(snapshot: ClusterMetadata, topic_partition: TopicPartition) -> BrokerResponseError:
    """Return the error of a partition whose leader is not in the metadata."""
    topic = snapshot.topics.get(topic_partition.topic)
    if topic is not None and topic.error != ErrorCode.NONE:
        return error_for(topic.error, f"topic {topic_partition.topic}")
    is_known = snapshot.partition(topic_partition) is not None
    code = ErrorCode.LEADER_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return error_for(code, f"partition {topic_partition}")


def require_topic_id(snapshot: ClusterMetadata, topic: str, topic_id: UUID) -> None:
    """Check that a topic is still the one with `topic_id`, as far as both ids are known.

    Raises:
        UnknownTopicOrPartitionError: the topic was deleted, and another one has its name.
    """
    known = snapshot.topic_id(topic)
    if is_other_topic(known, topic_id):
        raise UnknownTopicOrPartitionError(
            f"topic {topic}", f"It was deleted and created again: its id was {topic_id} and is {known}."
        )
