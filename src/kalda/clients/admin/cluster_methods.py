"""Holds the admin client's methods on the cluster, its features and its brokers' log directories."""

from collections.abc import Iterable, Mapping

from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.clusters import (
    BrokerApiVersions,
    ClusterDescription,
    FeatureMetadata,
    FeatureUpdate,
)
from kalda.clients.admin.log_dirs import LogDirDescription, ReplicaLogDirInfo, TopicPartitionReplica
from kalda.clients.admin.outcomes import Outcomes
from kalda.common.types import TopicPartition


class ClusterMethods(AdminMethods):
    """Describes the cluster and its brokers, changes features, moves replicas between directories."""

    async def describe_cluster(
        self, *, include_authorized_operations: bool = False, timeout_ms: int | None = None
    ) -> ClusterDescription:
        """Describe the cluster: id, controller, live brokers.

        Args:
            include_authorized_operations: Whether to return what this client may do (brokers 2.3 and newer).
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Raises:
            ClientError: no broker answered in time.
        """
        from kalda.clients.admin.cluster_calls import DescribeCluster

        return await self._run_one(DescribeCluster(include_authorized_operations), timeout_ms)

    async def describe_api_versions(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[int, BrokerApiVersions]:
        """Describe which APIs and features each broker serves, and in which versions.

        Args:
            broker_ids: The brokers; None for all.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By broker id, the versions or the error.

        Raises:
            ClientError: one of them failed and `outcomes` is not set, or
                `broker_ids` is None and no broker can be reached.
        """
        from kalda.clients.admin.cluster_calls import DescribeApiVersions

        brokers = await self._brokers(broker_ids, timeout_ms)
        return await self._run(DescribeApiVersions(), brokers, timeout_ms, outcomes=outcomes)

    async def describe_features(self, *, timeout_ms: int | None = None) -> FeatureMetadata:
        """Describe the features that the cluster uses, and those that a broker supports (KIP-584).

        Args:
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Raises:
            ClientError: no broker answered in time.
        """
        from kalda.clients.admin.cluster_calls import DescribeFeatures

        return await self._run_one(DescribeFeatures(), timeout_ms)

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate],
        *,
        validate_only: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, None]:
        """Raise or lower the levels of features, all of them or none (brokers 2.7 and newer, KIP-584).

        Args:
            updates: By feature, the new level.
            validate_only: Check only whether the levels are possible (brokers 3.3 and newer).
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By feature, None or the error: INVALID_UPDATE_VERSION, FEATURE_UPDATE_FAILED and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.cluster_calls import UpdateFeatures

        return await self._run(UpdateFeatures(updates, validate_only), updates, timeout_ms, outcomes=outcomes)

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
        from kalda.clients.admin.log_dir_calls import DescribeLogDirs

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
        from kalda.clients.admin.log_dir_calls import DescribeReplicaLogDirs

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
        from kalda.clients.admin.log_dir_calls import AlterReplicaLogDirs

        return await self._run(AlterReplicaLogDirs(directories), directories, timeout_ms, outcomes=outcomes)

    async def _brokers(self, broker_ids: Iterable[int] | None, timeout_ms: int | None) -> Iterable[int]:
        return await self._open_runner().broker_ids(timeout_ms) if broker_ids is None else broker_ids
