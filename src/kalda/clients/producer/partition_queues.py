"""Holds the batches of one topic that are not sent, by partition; see `record_accumulator`."""

from collections import deque
from typing import Final

from kalda.clients.producer.compression_ratio import CompressionRatio
from kalda.clients.producer.partitioner import BuiltInPartitioner
from kalda.clients.producer.producer_batch import ProducerBatch
from kalda.common.types import ZERO_UUID, TopicPartition


class PartitionQueue:
    """The batches of one partition that are not sent, the oldest first."""

    __slots__ = ("batches", "is_muted", "topic_partition")

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition: Final = topic_partition
        self.batches: Final[deque[ProducerBatch]] = deque()
        self.is_muted = False
        """Whether the one request that may be in flight is (`max.in.flight.requests.per.connection` 1)."""


class TopicQueues:
    """The queues of one topic, and where its records without a key go."""

    __slots__ = ("by_partition", "name", "partitioner", "ratio", "sticky", "topic_id")

    def __init__(self, name: str, partitioner: BuiltInPartitioner) -> None:
        self.name: Final = name
        self.partitioner: Final = partitioner
        self.by_partition: Final[dict[int, PartitionQueue]] = {}
        self.sticky: PartitionQueue | None = None
        """The queue of `partitioner.partition`."""
        self.ratio: Final = CompressionRatio()
        self.topic_id = ZERO_UUID
        """The id of the topic as the metadata had it last; zero while it is not known."""

    def queue(self, partition: int) -> PartitionQueue:
        """Return the queue of a partition, which may be new."""
        queue = self.by_partition.get(partition)
        if queue is None:
            queue = self.by_partition[partition] = PartitionQueue(TopicPartition(self.name, partition))
        return queue
