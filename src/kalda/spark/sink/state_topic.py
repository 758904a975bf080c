"""Reads and creates the compacted topics in which the sink keeps what it has committed.

``__kalda_markers`` has the last batch of each task's transactional id, ``__kalda_commits`` the last decision
of each query's sink. All keys of one sink are in one partition, which a process reads once and then follows.

`read` returns what was committed before the call. It asks for the end of the partition each time, and waits
until it has replayed up to there.
"""

import os
from collections.abc import Mapping
from typing import Final

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.admin_config import AdminConfig
from kalda.clients.admin.topics import NewTopic
from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.clients.shared_properties import known_settings
from kalda.common.errors import ErrorCode
from kalda.common.murmur2 import partition_for_key
from kalda.common.types import TopicPartition
from kalda.spark.sink.state_replay import StateReplay
from kalda.spark.worker import pooled_reader

MARKERS: Final = "__kalda_markers"
COMMITS: Final = "__kalda_commits"
PARTITIONS: Final = 16
"""Sinks share partitions; a process reads only those of its sinks."""
REPLICAS_MAX: Final = 3

_partitions: Final[dict[tuple[str, str, str], TopicPartition]] = {}
"""By servers, topic and scope. The number of partitions of these topics is never changed."""
_replays: Final[dict[tuple[int, str, TopicPartition], StateReplay]] = {}
"""By process, servers and partition. A process writes for few sinks, so few partitions are here."""


class StateTopic:
    """One of the two topics, as one sink uses it.

    Args:
        name: `MARKERS` or `COMMITS`.
        scope: The sink, whose keys are all in one partition.
        properties: Settings of a client by Kafka's names.
    """

    def __init__(self, name: str, scope: str, properties: Mapping[str, str]) -> None:
        self._name: Final = name
        self._scope: Final = scope
        self._properties: Final = properties
        self._config: Final = LogReaderConfig.from_properties(
            known_settings(LogReaderConfig, properties) | {"isolation.level": "read_uncommitted"}
        )

    def read(self, key: str) -> bytes | None:
        """Return the last committed value of a key, None if there is none.

        Raises:
            ClientError: the topic could not be read or created.
        """
        with pooled_reader(self._config) as reader:
            replay = self._replay(reader)
        return replay.values.get(key.encode())

    def partition(self) -> TopicPartition:
        """Return the partition of the sink's keys; the topic is created where it does not exist.

        Raises:
            ClientError: the topic could not be described or created.
        """
        with pooled_reader(self._config) as reader:
            return self._partition(reader)

    def _partition(self, reader: LogReader) -> TopicPartition:
        known = _partitions.get((self._servers, self._name, self._scope))
        if known is not None:
            return known
        described = reader.metadata([self._name])
        topic = described.topics.get(self._name)
        if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._create(len(described.brokers))
        count = len(reader.topic_partitions([self._name]))
        found = TopicPartition(self._name, partition_for_key(self._scope.encode(), count))
        _partitions[(self._servers, self._name, self._scope)] = found
        return found

    def _replay(self, reader: LogReader) -> StateReplay:
        partition = self._partition(reader)
        identity = (os.getpid(), self._servers, partition)
        replay = _replays.setdefault(identity, StateReplay())
        beginning = reader.beginning_offsets([partition])[partition]
        end = reader.end_offsets([partition])[partition]
        if end < replay.position:
            # The topic was created again: nothing that was read before counts.
            replay = _replays[identity] = StateReplay()
        replay.position = max(replay.position, beginning)
        with reader.fetcher(partition, start=replay.position, end=end) as fetcher:
            while fetcher.position < end:
                replay.replay(fetcher.next().records)
                # Compaction may have removed the batches at the end of what was fetched.
                replay.position = max(replay.position, fetcher.position)
        assert replay.position >= end, f"replayed to {replay.position} of {end}"
        return replay

    def _create(self, broker_count: int) -> None:
        replicas = max(1, min(REPLICAS_MAX, broker_count))
        config = {"cleanup.policy": "compact", "compression.type": "producer"}
        if replicas == REPLICAS_MAX:
            config["min.insync.replicas"] = "2"
        topic = NewTopic(self._name, partitions=PARTITIONS, replication_factor=replicas, config=config)
        with Admin.from_config(known_settings(AdminConfig, self._properties)) as admin:
            for error in admin.create_topics([topic], outcomes=True).errors.values():
                # Tasks create it at the same time.
                if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise error

    @property
    def _servers(self) -> str:
        return self._properties["bootstrap.servers"]
