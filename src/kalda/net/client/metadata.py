"""Holds a client's snapshot of cluster metadata: brokers, topics, partition leaders. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.protocol.messages.metadata import MetadataResponse


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition; `leader_id` is -1 while it has none."""

    topic_partition: TopicPartition
    leader_id: int
    leader_epoch: int
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic, or the error that stands in its place."""

    name: str
    topic_id: UUID
    is_internal: bool
    error: ErrorCode
    partitions: Mapping[int, PartitionMetadata]

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        """The partitions in order of number."""
        return [TopicPartition(self.name, number) for number in sorted(self.partitions)]


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """A snapshot of a cluster, from one broker's Metadata response."""

    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, BrokerEndpoint]
    topics: Mapping[str, TopicMetadata]

    @classmethod
    def from_response(cls, response: MetadataResponse) -> "ClusterMetadata":
        """Read an answer to a Metadata request."""
        topics = {}
        for topic in response.topics:
            name = topic.name or ""
            partitions = {
                each.partition_index: PartitionMetadata(
                    TopicPartition(name, each.partition_index),
                    each.leader_id,
                    each.leader_epoch,
                    ErrorCode.of(each.error_code),
                )
                for each in topic.partitions
            }
            topics[name] = TopicMetadata(
                name, topic.topic_id, topic.is_internal, ErrorCode.of(topic.error_code), partitions
            )
        brokers = {
            each.node_id: BrokerEndpoint(each.node_id, each.host, each.port, each.rack)
            for each in response.brokers
        }
        return cls(response.cluster_id, response.controller_id, brokers, topics)

    def partition(self, topic_partition: TopicPartition) -> PartitionMetadata | None:
        """Return the metadata of a partition, or None."""
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)

    def leader(self, topic_partition: TopicPartition) -> BrokerEndpoint | None:
        """Return where the partition's leader can be reached, or None while that is not known."""
        partition = self.partition(topic_partition)
        return None if partition is None else self.brokers.get(partition.leader_id)
