"""Holds the admin client's methods on topics; `topic_calls` has their requests and responses."""

from collections.abc import Iterable, Mapping

from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.topics import (
    NewPartitions,
    NewTopic,
    TopicDescription,
    TopicKey,
    TopicListing,
    TopicMetadataAndConfig,
)


class TopicMethods(AdminMethods):
    """Creates, deletes, lists, describes and grows topics."""

    async def create_topics(
        self,
        topics: Iterable[NewTopic],
        *,
        validate_only: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, TopicMetadataAndConfig]:
        """Create topics; the call ends when the brokers know them, or could not in time.

        Args:
            topics: The new topics; of two with the same name, the last one counts.
            validate_only: Check only whether the topics could be created.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By name, the created topic or its error: TOPIC_ALREADY_EXISTS, INVALID_REPLICATION_FACTOR,
            INVALID_CONFIG, POLICY_VIOLATION and others. After REQUEST_TIMED_OUT the topic may appear later.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.topic_calls import CreateTopics

        operation = CreateTopics(topics, validate_only)
        return await self._run(operation, operation.topics, timeout_ms, outcomes=outcomes)

    async def delete_topics(
        self, topics: Iterable[TopicKey], *, outcomes: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[TopicKey, None]:
        """Delete topics with all their records.

        Args:
            topics: Names, or ids as `uuid.UUID` (brokers 2.8 and newer, KIP-516). An id never deletes a topic
                that was created again under the same name.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By name or id, None or the error: UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DELETION_DISABLED and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.topic_calls import DeleteTopics

        return await self._run(DeleteTopics(), topics, timeout_ms, outcomes=outcomes)

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: int | None = None
    ) -> dict[str, TopicListing]:
        """List the topics that this client may see, by name.

        Args:
            include_internal: Whether ``__consumer_offsets`` and other topics of the brokers are listed.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Raises:
            ClientError: no broker answered in time.
        """
        from kalda.clients.admin.topic_calls import ListTopics

        listings = await self._run_one(ListTopics(), timeout_ms)
        return {each.name: each for each in listings if include_internal or not each.is_internal}

    async def describe_topics(
        self,
        topics: Iterable[TopicKey],
        *,
        include_authorized_operations: bool = False,
        partitions_per_page: int = 2000,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicKey, TopicDescription]:
        """Describe topics: ids, partitions, leaders, replicas. Topics that do not exist are not created.

        Args:
            topics: Names, or ids as `uuid.UUID` (brokers 3.1 and newer).
            include_authorized_operations: Whether to return what this client may do (brokers 2.3 and newer).
            partitions_per_page: How many partitions one response holds, where the broker answers in pages
                (3.8 and newer, KIP-966); the broker has a limit of its own.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By name or id, the description or the error, e.g. UNKNOWN_TOPIC_OR_PARTITION.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.topic_calls import DescribeTopics

        operation = DescribeTopics(include_authorized_operations, partitions_per_page)
        return await self._run(operation, topics, timeout_ms, outcomes=outcomes)

    async def create_partitions(
        self,
        new_partitions: Mapping[str, int | NewPartitions],
        *,
        validate_only: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, None]:
        """Raise the number of partitions of topics. Keys then map to other partitions than before.

        Args:
            new_partitions: By topic, the new total, or a `NewPartitions` that also chooses the brokers.
            validate_only: Check only whether the partitions could be added.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By topic, None or the error: INVALID_PARTITIONS where the total is not above the present one,
            UNKNOWN_TOPIC_OR_PARTITION, REASSIGNMENT_IN_PROGRESS and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.topic_calls import CreatePartitions

        wanted = {
            name: each if isinstance(each, NewPartitions) else NewPartitions(each)
            for name, each in new_partitions.items()
        }
        return await self._run(CreatePartitions(wanted, validate_only), wanted, timeout_ms, outcomes=outcomes)
