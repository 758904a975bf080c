"""A cluster that answers from memory, for tests of what the driver asks."""

from collections.abc import Iterable, Mapping

from kalda.clients.consumer.consumer_record import OffsetAndTimestamp
from kalda.clients.errors import UnknownTopicOrPartitionError
from kalda.clients.log_reader.log_reader import LogReader
from kalda.clients.log_reader.log_reader_config import LogReaderConfig
from kalda.clients.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from kalda.common.errors import ErrorCode
from kalda.common.types import ZERO_UUID, BrokerEndpoint, TopicPartition

BROKER = BrokerEndpoint(0, "broker", 9092)


class FakeCluster(LogReader):
    """Partitions as lists of timestamps: the offset of a record is `first` plus its index."""

    def __init__(self) -> None:
        super().__init__(LogReaderConfig.from_options({"bootstrap_servers": "broker:9092"}))
        self.logs: dict[TopicPartition, list[int]] = {}
        self.first: dict[TopicPartition, int] = {}
        self.internal: set[str] = set()
        self.unknown_lookups = 0

    def add(
        self, topic: str, partition: int, timestamps: Iterable[int] = (), first: int = 0
    ) -> TopicPartition:
        """Add a partition."""
        topic_partition = TopicPartition(topic, partition)
        self.logs[topic_partition] = list(timestamps)
        self.first[topic_partition] = first
        return topic_partition

    def remove(self, topic: str) -> None:
        """Delete a topic."""
        self.logs = {each: log for each, log in self.logs.items() if each.topic != topic}

    def metadata(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
        names = {each.topic for each in self.logs} if topics is None else set(topics)
        return ClusterMetadata(1, "fake", 0, {0: BROKER}, {name: self._topic(name) for name in names})

    def topic_partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        found = []
        for name in topics:
            partitions = self._topic(name).topic_partitions
            if not partitions:
                self.unknown_lookups += 1
                raise UnknownTopicOrPartitionError(f"topic {name}")
            found += partitions
        return found

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return {each: self._find(each, timestamp) for each, timestamp in timestamps.items()}

    def _topic(self, name: str) -> TopicMetadata:
        partitions = {
            each.partition: PartitionMetadata(each, 0, 0, ErrorCode.NONE)
            for each in self.logs
            if each.topic == name
        }
        error = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return TopicMetadata(name, ZERO_UUID, name in self.internal, error, partitions)

    def _find(self, each: TopicPartition, timestamp: int) -> OffsetAndTimestamp | None:
        log, first = self.logs[each], self.first[each]
        if timestamp == -1:
            return OffsetAndTimestamp(first + len(log), -1, 0)
        if timestamp == -2:
            return OffsetAndTimestamp(first, -1, 0)
        for index, found in enumerate(log):
            if found >= timestamp:
                return OffsetAndTimestamp(first + index, found, 0)
        return None
