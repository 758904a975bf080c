"""The table of the replicas that a broker hosts, by name and by id, and of those that it cannot serve.

The data path's tables are keyed by the bytes of a topic's name and id as they come from the wire: a
partition is found without decoding a string.
"""

from collections.abc import Callable
from typing import Final

from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.topic_stats import BrokerTopicStats
from kalda.common.errors import ErrorCode
from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.controller.effects import PartitionLeadership

NO_PARTITIONS: Final[dict[int, Partition]] = {}


class HostedReplicas:
    """What one broker hosts.

    `partition_is_known` asks the metadata cache about a partition that is not here: an unknown partition and
    one that lives elsewhere get different errors.
    """

    def __init__(self, partition_is_known: Callable[[TopicPartition], bool]) -> None:
        self._partition_is_known: Final = partition_is_known
        self.partitions: Final[dict[TopicPartition, Partition]] = {}
        self.by_name: Final[dict[bytes, dict[int, Partition]]] = {}
        self.by_id: Final[dict[bytes, dict[int, Partition]]] = {}
        self.refused: Final[dict[TopicPartition, PartitionLeadership]] = {}
        """Roles that the disk kept us from for now. The controller does not send them again."""
        self.offline: Final[dict[TopicPartition, str]] = {}
        """Replicas in a log directory that failed, and which: out of service until a restart."""
        self.topic_stats: Final = BrokerTopicStats()
        """What was done for the topics of the hosted partitions."""

    def host(self, partition: Partition) -> None:
        """Have a partition found from now on."""
        topic_partition = partition.topic_partition
        self.partitions[topic_partition] = partition
        partition.topic_metrics = self.topic_stats.of(topic_partition.topic)
        self.by_name.setdefault(partition.name_bytes, {})[topic_partition.partition] = partition
        if partition.topic_id != ZERO_UUID:
            self.by_id.setdefault(partition.topic_id.bytes, {})[topic_partition.partition] = partition

    def forget(self, partition: Partition) -> None:
        """Have a partition found no longer."""
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
        """Return the newest leader epoch that the controller told us, -1 without one."""
        known = self.refused.get(topic_partition) or self.partitions.get(topic_partition)
        return -1 if known is None else known.leader_epoch

    def absence_error(self, topic_partition: TopicPartition) -> ErrorCode:
        """Tell why a partition is not hosted here.

        KAFKA_STORAGE_ERROR where its log cannot be opened at present, NOT_LEADER_OR_FOLLOWER where another
        broker has it, else UNKNOWN_TOPIC_OR_PARTITION. Clients try again after all three.
        """
        if topic_partition in self.refused or topic_partition in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._partition_is_known(topic_partition):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
