"""Says why a partition has no leader to send to. Pure."""

from kalda.clients.errors import BrokerResponseError, error_for
from kalda.clients.metadata import ClusterMetadata
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition


def missing_leader(snapshot: ClusterMetadata, topic_partition: TopicPartition) -> BrokerResponseError:
    """Return the error of a partition whose leader is not in the metadata."""
    topic = snapshot.topics.get(topic_partition.topic)
    if topic is not None and topic.error != ErrorCode.NONE:
        return error_for(topic.error, f"topic {topic_partition.topic}")
    is_known = snapshot.partition(topic_partition) is not None
    code = ErrorCode.LEADER_NOT_AVAILABLE if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return error_for(code, f"partition {topic_partition}")
