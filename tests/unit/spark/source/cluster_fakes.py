"""A cluster that answers from memory, for tests of what the driver asks."""

from collections.abc import Iterable, Mapping
from uuid import UUID

from kalda.clients.errors import ClientError, UnknownTopicOrPartitionError
from kalda.clients.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.clients.values import OffsetAndTimestamp
from kalda.common.errors import ErrorCode
from kalda.common.types import ZERO_UUID, BrokerEndpoint, TopicPartition
from kalda.spark.source.group_offsets import Committed

BROKER = BrokerEndpoint(0, "broker", 9092)


class FakeCluster(LogReader):
    """Partitions as lists of timestamps: the offset of a record is `first` plus its index."""

    def __init__(self) -> None:
        super().__init__(LogReaderConfig.from_options({"bootstrap_servers": "broker:9092"}))
        self.logs: dict[TopicPartition, list[int]] = {}
        self.first: dict[TopicPartition, int] = {}
        self.internal: set[str] = set()
        self.unknown_lookups = 0
        self.topic_ids: dict[str, UUID] = {}
        self.leader_epoch = 0
        self.epoch_ends_now: dict[TopicPartition, int] = {}
        self.asked_epochs: list[Mapping[TopicPartition, int]] = []

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

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        self.asked_epochs.append(epochs)
        return {each: self.epoch_ends_now.get(each) for each in epochs}

    def _topic(self, name: str) -> TopicMetadata:
        partitions = {
            each.partition: PartitionMetadata(each, 0, 0, ErrorCode.NONE)
            for each in self.logs
            if each.topic == name
        }
        error = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return TopicMetadata(
            name, self.topic_ids.get(name, ZERO_UUID), name in self.internal, error, partitions
        )

    def _find(self, each: TopicPartition, timestamp: int) -> OffsetAndTimestamp | None:
        log, first = self.logs[each], self.first[each]
        if timestamp == -1:
            return OffsetAndTimestamp(first + len(log), -1, self.leader_epoch)
        if timestamp == -2:
            return OffsetAndTimestamp(first, -1, 0)
        for index, found in enumerate(log):
            if found >= timestamp:
                return OffsetAndTimestamp(first + index, found, 0)
        return None


class FakeGroup:
    """The offsets of one group, in memory; `failure` makes it fail."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, Committed] = {}
        self.writes = 0
        self.failure: ClientError | None = None
        self.refused: dict[TopicPartition, ClientError] = {}
        self.is_closed = False

    def read(self) -> dict[TopicPartition, Committed]:
        """Return the offsets."""
        if self.failure is not None:
            raise self.failure
        return dict(self.offsets)

    def write(self, offsets: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, ClientError]:
        """Take the offsets."""
        self.writes += 1
        if self.failure is not None:
            raise self.failure
        self.offsets |= {each: commit for each, commit in offsets.items() if each not in self.refused}
        return self.refused

    def close(self) -> None:
        """Remember it."""
        self.is_closed = True
