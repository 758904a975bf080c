"""Keeps the table of the replicas that a broker hosts, and of those that it fails to host.

The data path looks a partition up by the bytes of the topic's name or id as they are on the wire, so that it
decodes no string.
"""

from collections.abc import Callable
from typing import Final

from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.topic_stats import BrokerTopicStats
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, ZERO_UUID, TopicPartition
from kalda.controller.effects import PartitionLeadership

NO_PARTITIONS: Final[dict[int, Partition]] = {}


class HostedReplicas:
    """The replicas of one broker.

    `partition_is_known` returns whether the metadata cache has a partition that this broker does not host: an
    unknown partition and one on other brokers get different errors.
    """

    def __init__(self, partition_is_known: Callable[[TopicPartition], bool]) -> None:
        self._partition_is_known: Final = partition_is_known
        self.partitions: Final[dict[TopicPartition, Partition]] = {}
        self.by_name: Final[dict[bytes, dict[int, Partition]]] = {}
        self.by_id: Final[dict[bytes, dict[int, Partition]]] = {}
        self.refused: Final[dict[TopicPartition, PartitionLeadership]] = {}
        """Roles that the disk refused; they are retried here, as the controller does not send them again."""
        self.offline: Final[dict[TopicPartition, str]] = {}
        """Replicas in a failed log directory, by partition; they stay out of service until a restart."""
        self.topic_stats: Final = BrokerTopicStats()
        """The counters of the topics of the hosted partitions."""

    def host(self, partition: Partition) -> None:
        """Add a partition."""
        topic_partition = partition.topic_partition
        assert topic_partition not in self.partitions, f"{partition} is hosted twice"
        assert topic_partition not in self.offline, f"{partition} is offline"
        self.partitions[topic_partition] = partition
        self.by_name.setdefault(partition.name_bytes, {})[topic_partition.partition] = partition
        self._index_by_id(partition)

    def adopt_topic_id(self, partition: Partition, topic_id: UUID) -> None:
        """Give a hosted partition without a topic id the one that a controller sends now."""
        assert partition.topic_id == ZERO_UUID, f"{partition} has topic id {partition.topic_id}"
        partition.topic_id = topic_id
        self._index_by_id(partition)

    def forget(self, partition: Partition) -> None:
        """Remove a partition."""
        topic_partition = partition.topic_partition
        del self.partitions[topic_partition]
        for table, key in ((self.by_name, partition.name_bytes), (self.by_id, partition.topic_id.bytes)):
            siblings = table.get(key)
            if siblings is not None:
                siblings.pop(topic_partition.partition, None)
                if not siblings:
                    del table[key]
        if partition.name_bytes not in self.by_name:
            self.topic_stats.remove(topic_partition.topic)

    def known_leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the newest leader epoch that the controller sent for a partition, -1 without one."""
        known = self.refused.get(topic_partition) or self.partitions.get(topic_partition)
        return -1 if known is None else known.leader_epoch

    def absence_error(self, topic_partition: TopicPartition) -> ErrorCode:
        """Return the error for a partition that this broker does not host.

        KAFKA_STORAGE_ERROR if its log cannot be opened at present, NOT_LEADER_OR_FOLLOWER if other brokers
        have it, else UNKNOWN_TOPIC_OR_PARTITION. Clients retry after all three.
        """
        if topic_partition in self.refused or topic_partition in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._partition_is_known(topic_partition):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _index_by_id(self, partition: Partition) -> None:
        if partition.topic_id != ZERO_UUID:
            siblings = self.by_id.setdefault(partition.topic_id.bytes, {})
            siblings[partition.topic_partition.partition] = partition

    def check_invariants(self) -> None:
        """Assert that the tables have the same partitions, of which none is gone or offline."""
        by_name = {(key, index): each for key, parts in self.by_name.items() for index, each in parts.items()}
        by_id = {(key, index): each for key, parts in self.by_id.items() for index, each in parts.items()}
        hosted = [(each, each.topic_partition.partition) for each in self.partitions.values()]
        assert by_name == {(each.name_bytes, index): each for each, index in hosted}, f"by name: {by_name}"
        with_id = {(each.topic_id.bytes, index): each for each, index in hosted if each.topic_id != ZERO_UUID}
        assert by_id == with_id, f"by id: {by_id}, of {with_id}"
        for name, partition in self.partitions.items():
            assert name == partition.topic_partition, f"{partition} is hosted as {name}"
            assert not partition.is_gone, f"{partition} is hosted after it has left"
        unserved = self.offline.keys() & (self.partitions.keys() | self.refused.keys())
        assert not unserved, f"{unserved} are offline, and hosted or refused"
