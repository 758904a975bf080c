"""Implements the admin client's operations on the brokers' log directories.

It holds the methods, the values that they take and return, and the requests and responses.
Names of values are those of Java's client.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import BROKER_WITH_ID, Broker
from kalda.clients.errors import ClientError, error_for
from kalda.clients.reprs import fields_html
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.common.types import TopicPartition, by_topic
from kalda.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from kalda.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)


@public
@dataclass(frozen=True, slots=True, order=True)
class TopicPartitionReplica:
    """The replica of a partition on one broker."""

    topic: str
    partition: int
    broker_id: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker_id}"


@public
@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A replica in a directory."""

    size: int
    """Bytes of its segments."""
    offset_lag: int
    """How many records the replica is behind the high watermark; a future one, behind the present one."""
    is_future: bool
    """Whether the replica is being copied to this directory and will replace the present one."""


@public
@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A directory of a broker."""

    replica_infos: Mapping[TopicPartition, ReplicaInfo]
    error: ClientError | None = None
    """Why the directory is offline; None if it is not."""
    total_bytes: int | None = None
    """The size of the volume; None from brokers before 3.3 (KIP-827)."""
    usable_bytes: int | None = None
    """What is left of the volume; None from brokers before 3.3."""
    is_cordoned: bool = False
    """Whether the directory gets no new replicas (brokers 4.3 and newer, KIP-1066)."""

    _repr_html_ = fields_html


@public
@dataclass(frozen=True, slots=True)
class ReplicaLogDirInfo:
    """The log directory of a replica, and the directory that it moves to."""

    current_replica_log_dir: str | None = None
    """None if the broker has no such replica."""
    current_replica_offset_lag: int | None = None
    future_replica_log_dir: str | None = None
    """None unless the replica moves to another directory."""
    future_replica_offset_lag: int | None = None


class LogDirMethods(AdminMethods):
    """Describes the brokers' log directories and moves replicas between them."""

    async def describe_log_dirs(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[int, dict[str, LogDirDescription]]:
        """Describe the directories in which brokers keep their logs, and the size of each log.

        Args:
            broker_ids: The brokers; None for all.
            partitions: Only the logs of these partitions; None for all.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By broker id, its directories by path, or the error. An offline directory has an error of its own.

        Raises:
            ClientError: one of them failed and `outcomes` is not set, or
                `broker_ids` is None and no broker can be reached.
        """
        brokers = await self._brokers(broker_ids, timeout_ms)
        return await self._run(DescribeLogDirs(partitions), brokers, timeout_ms, outcomes=outcomes)

    async def describe_replica_log_dirs(
        self,
        replicas: Iterable[TopicPartitionReplica],
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartitionReplica, ReplicaLogDirInfo]:
        """Find the directories of single replicas, and those that they move to.

        Args:
            replicas: The replicas.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By replica, where it is, or the error. A broker without the replica returns no directory.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        return await self._run(DescribeReplicaLogDirs(), replicas, timeout_ms, outcomes=outcomes)

    async def alter_replica_log_dirs(
        self,
        directories: Mapping[TopicPartitionReplica, str],
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartitionReplica, None]:
        """Move replicas to other directories of their brokers (KIP-113).

        The call ends when the brokers have taken the moves; `describe_replica_log_dirs` shows their progress.
        A move to where a replica is cancels its move to another directory.

        Args:
            directories: By replica, the absolute path of one of the broker's `log.dirs`.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By replica, None or the error: LOG_DIR_NOT_FOUND, REPLICA_NOT_AVAILABLE and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        return await self._run(AlterReplicaLogDirs(directories), directories, timeout_ms, outcomes=outcomes)


_BROKER_OF_REPLICA: Final[Broker[TopicPartitionReplica]] = Broker(lambda replica: replica.broker_id)
_ERROR_CODE_FROM: Final = 3
_UNKNOWN_SIZE: Final = -1
_INVALID_LAG: Final = -1


class DescribeLogDirs(AdminOperation[int, dict[str, LogDirDescription]]):
    """Describes the directories of brokers; the keys are broker ids."""

    title = "describe log dirs of broker"
    route = BROKER_WITH_ID

    def __init__(self, partitions: Iterable[TopicPartition] | None) -> None:
        self._partitions: Final = None if partitions is None else list(partitions)

    @override
    def requests(
        self, keys: Sequence[int], context: RequestContext
    ) -> Iterable[AdminRequest[int, dict[str, LogDirDescription]]]:
        def read(
            response: DescribeLogDirsResponse, answers: Answers[int, dict[str, LogDirDescription]]
        ) -> None:
            (broker_id,) = keys
            code = _error_code(response, context)
            if code:
                answers.fail(broker_id, code)
                return
            described = {each.log_dir: self._described(each, broker_id) for each in response.results}
            answers.succeed(broker_id, described)

        message = DescribeLogDirsRequest(topics=_topics(self._partitions))
        yield AdminRequest.of(message, DescribeLogDirsResponse, keys, read)

    @staticmethod
    def _described(result: DescribeLogDirsResult, broker_id: int) -> LogDirDescription:
        code = ErrorCode.of(result.error_code)
        what = f"log directory {result.log_dir} of broker {broker_id}"
        return LogDirDescription(
            {
                TopicPartition(topic.name, each.partition_index): ReplicaInfo(
                    each.partition_size, each.offset_lag, each.is_future_key
                )
                for topic in result.topics
                for each in topic.partitions
            },
            error_for(code, what) if code is not ErrorCode.NONE else None,
            None if result.total_bytes == _UNKNOWN_SIZE else result.total_bytes,
            None if result.usable_bytes == _UNKNOWN_SIZE else result.usable_bytes,
            result.is_cordoned,
        )


class DescribeReplicaLogDirs(AdminOperation[TopicPartitionReplica, ReplicaLogDirInfo]):
    """Finds the directories of single replicas."""

    title = "describe log dir of"
    route = _BROKER_OF_REPLICA

    def requests(
        self, keys: Sequence[TopicPartitionReplica], context: RequestContext
    ) -> Iterable[AdminRequest[TopicPartitionReplica, ReplicaLogDirInfo]]:
        """Ask one broker for all its replicas."""

        def read(
            response: DescribeLogDirsResponse, answers: Answers[TopicPartitionReplica, ReplicaLogDirInfo]
        ) -> None:
            code = _error_code(response, context)
            found = _replicas(response)
            for key in keys:
                if code:
                    answers.fail(key, code)
                else:
                    answers.succeed(key, found.get(key.topic_partition, ReplicaLogDirInfo()))

        message = DescribeLogDirsRequest(topics=_topics([key.topic_partition for key in keys]))
        yield AdminRequest.of(message, DescribeLogDirsResponse, keys, read)


class AlterReplicaLogDirs(AdminOperation[TopicPartitionReplica, None]):
    """Moves replicas to other directories of their brokers (KIP-113)."""

    title = "move"
    route = _BROKER_OF_REPLICA

    def __init__(self, directories: Mapping[TopicPartitionReplica, str]) -> None:
        self._directories: Final = directories

    def requests(
        self, keys: Sequence[TopicPartitionReplica], context: RequestContext
    ) -> Iterable[AdminRequest[TopicPartitionReplica, None]]:
        """Ask one broker for all its replicas."""
        by_directory: dict[str, list[TopicPartition]] = {}
        for key in keys:
            by_directory.setdefault(self._directories[key], []).append(key.topic_partition)

        def read(
            response: AlterReplicaLogDirsResponse, answers: Answers[TopicPartitionReplica, None]
        ) -> None:
            replicas = {key.topic_partition: key for key in keys}
            for topic in response.results:
                for each in topic.partitions:
                    key = replicas[TopicPartition(topic.topic_name, each.partition_index)]
                    if each.error_code:
                        answers.fail(key, each.error_code)
                    else:
                        answers.succeed(key, None)

        dirs = [
            AlterReplicaLogDir(
                path=directory,
                topics=[
                    AlterReplicaLogDirTopic(name=topic, partitions=[each.partition for each in moved])
                    for topic, moved in by_topic(partitions).items()
                ],
            )
            for directory, partitions in by_directory.items()
        ]
        yield AdminRequest.of(AlterReplicaLogDirsRequest(dirs=dirs), AlterReplicaLogDirsResponse, keys, read)


def _topics(partitions: Iterable[TopicPartition] | None) -> list[DescribableLogDirTopic] | None:
    if partitions is None:
        return None
    return [
        DescribableLogDirTopic(topic=topic, partitions=[each.partition for each in of_topic])
        for topic, of_topic in by_topic(partitions).items()
    ]


def _error_code(response: DescribeLogDirsResponse, context: RequestContext) -> int:
    """Return the error of the whole response; brokers before 3.2 leave out everything instead."""
    version = context.versions.latest(ApiKey.DESCRIBE_LOG_DIRS)
    if version < _ERROR_CODE_FROM and not response.results:
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return response.error_code


def _replicas(response: DescribeLogDirsResponse) -> dict[TopicPartition, ReplicaLogDirInfo]:
    found: dict[TopicPartition, ReplicaLogDirInfo] = {}
    for directory in response.results:
        for topic in directory.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                info = found.get(partition, ReplicaLogDirInfo())
                lag = None if each.offset_lag == _INVALID_LAG else each.offset_lag
                if each.is_future_key:
                    info = replace(
                        info, future_replica_log_dir=directory.log_dir, future_replica_offset_lag=lag
                    )
                else:
                    info = replace(
                        info, current_replica_log_dir=directory.log_dir, current_replica_offset_lag=lag
                    )
                found[partition] = info
    return found
