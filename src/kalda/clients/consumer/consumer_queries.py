"""Looks up positions, offsets and topics for a consumer. Nothing here changes the records it reads next."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import overload

from kalda.clients.argument_checks import (
    check_offset,
    check_timeout,
    check_topic_name,
    checked_partition,
    checked_partitions,
)
from kalda.clients.config.isolation_level import IsolationLevel
from kalda.clients.consumer.consumer_core import ConsumerCore
from kalda.clients.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from kalda.clients.metrics.registry import MetricValues
from kalda.clients.values import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
)
from kalda.common.types import UUID, TopicPartition
from kalda.protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from kalda.protocol.messages.metadata import MetadataRequest, MetadataResponse


class ConsumerQueries(ABC):
    """The part of `AsyncConsumer` that reads."""

    @abstractmethod
    def _usable_core(self) -> ConsumerCore:
        """Return the core, with positions that count what was handed out.

        Raises:
            IllegalStateError: the consumer is not started, or closed.
        """

    async def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this consumer reads now."""
        return set(self._usable_core().subscription.assigned())

    async def subscription(self) -> set[str]:
        """Return the topics subscribed to; for a pattern, those that match now."""
        return set(self._usable_core().subscription.topics)

    async def paused(self) -> set[TopicPartition]:
        """Return the partitions that `pause` named."""
        return set(self._usable_core().subscription.paused())

    async def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """Return the offset of the next record, waiting until it is known.

        Raises:
            IllegalStateError: the partition is not assigned.
            RequestTimedOutError: the position is not known within `timeout_s` (`default.api.timeout.ms`).
            NoOffsetForPartitionError: there is no committed offset, and `auto.offset.reset` is none.
        """
        core = self._usable_core()
        return await core.position(checked_partition(partition), timeout_ms=self._timeout_ms(timeout_s))

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group; None for a partition without one.

        Raises:
            IllegalStateError: there is no `group.id`.
            RequestTimedOutError: the coordinator did not answer in time.
        """
        core = self._usable_core()
        with core.poll_metrics.timing("committed"):
            wanted = checked_partitions(partitions)
            return await core.committed(wanted, timeout_ms=self._timeout_ms(timeout_s))

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset whose timestamp is at or after the one given; None where there is none.

        Besides milliseconds since the epoch, the special timestamps of ListOffsets are accepted: -1 for the
        end, -2 for the beginning, -3 for the record with the largest timestamp (KIP-734), -4 for the first
        offset on local disk (KIP-405), -5 for the last one in tiered storage (KIP-1005).

        Raises:
            UnsupportedApiError: a broker is too old for a special timestamp.
            RequestTimedOutError: the offsets are not known in time, e.g. as a partition does not exist.
        """
        if not isinstance(timestamps_ms, Mapping):
            raise ValueError(
                f"timestamps_ms={timestamps_ms!r} is not allowed: it takes a dict of partitions and times"
            )
        wanted = {checked_partition(partition): timestamp for partition, timestamp in timestamps_ms.items()}
        for partition, timestamp in wanted.items():
            check_offset(f"timestamps_ms of {partition}", timestamp)
        return await self._usable_core().offsets(wanted, timeout_ms=self._timeout_ms(timeout_s))

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition.

        Raises:
            RequestTimedOutError: the offsets are not known in time, e.g. as a partition does not exist.
        """
        return await self._ends(partitions, EARLIEST_TIMESTAMP, timeout_s)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset behind the last record of each partition that `isolation.level` allows to read.

        Raises:
            RequestTimedOutError: the offsets are not known in time, e.g. as a partition does not exist.
        """
        return await self._ends(partitions, LATEST_TIMESTAMP, timeout_s)

    @overload
    async def lag(self) -> dict[TopicPartition, int]: ...
    @overload
    async def lag(self, partition: TopicPartition) -> int: ...
    async def lag(self, partition: TopicPartition | None = None) -> dict[TopicPartition, int] | int:
        """Return how many offsets lie between position and end: of one partition, or of all assigned ones.

        The end is that of the last fetch; it is looked up only where nothing was fetched yet.

        Raises:
            IllegalStateError: the partition is not assigned.
            RequestTimedOutError: a position or an end is not known within `default.api.timeout.ms`.
        """
        core = self._usable_core()
        partitions = core.subscription.assigned() if partition is None else [checked_partition(partition)]
        read_committed = core.config.isolation is IsolationLevel.READ_COMMITTED
        known = {each: core.subscription.lag(each, read_committed=read_committed) for each in partitions}
        unknown = [each for each, lag in known.items() if lag is None]
        ends = await self.end_offsets(unknown) if unknown else {}
        lags: dict[TopicPartition, int] = {}
        for each, lag in known.items():
            lags[each] = max(ends[each] - await self.position(each), 0) if lag is None else lag
        return lags if partition is None else lags[checked_partition(partition)]

    async def partitions_for(self, topic: str, timeout_s: float | None = None) -> list[PartitionMetadata]:
        """Return a topic's partitions with leaders and replicas; an empty list if it does not exist.

        Raises:
            RequestTimedOutError: no broker answered in time.
        """
        check_topic_name(topic)
        core = self._usable_core()
        known = core.metadata.snapshot.topics.get(topic)
        if known is None or not known.partitions:
            known = (await self._all_topics(timeout_s)).topics.get(topic)
        return [] if known is None else [known.partitions[number] for number in sorted(known.partitions)]

    async def topics(self, timeout_s: float | None = None) -> dict[str, TopicMetadata]:
        """Return all topics that this client may see.

        Raises:
            RequestTimedOutError: no broker answered in time.
        """
        return dict((await self._all_topics(timeout_s)).topics)

    def metrics(self) -> MetricValues:
        """Return the present values of all metrics, by Kafka's groups and names.

        For example ``consumer.metrics().value("consumer-fetch-manager-metrics", "records-lag-max")``.
        """
        return self._usable_core().metrics.values()

    async def client_instance_id(self, timeout_s: float) -> UUID:
        """Return the id by which the cluster's metrics of clients name this consumer (KIP-714).

        Raises:
            IllegalStateError: `enable.metrics.push` is false, or the consumer is closed.
            RequestTimedOutError: the cluster gave none in time; it may not collect metrics of clients.
        """
        return await self._usable_core().client_instance_id(timeout_s)

    async def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the member's identity, for `Producer.send_offsets_to_transaction` (KIP-447).

        Raises:
            IllegalStateError: there is no `group.id`.
        """
        return self._usable_core().needed_group("group metadata").metadata()

    async def _ends(
        self, partitions: Iterable[TopicPartition], timestamp: int, timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        wanted: Collection[TopicPartition] = checked_partitions(partitions)
        found = await self._usable_core().offsets(
            dict.fromkeys(wanted, timestamp), timeout_ms=self._timeout_ms(timeout_s)
        )
        return {partition: 0 if offset is None else offset.offset for partition, offset in found.items()}

    async def _all_topics(self, timeout_s: float | None) -> ClusterMetadata:
        network = self._usable_core().network

        async def ask() -> MetadataResponse:
            request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            return await network.send_to_any(request, MetadataResponse)

        response = await network.retry("topics", ask, timeout_ms=self._timeout_ms(timeout_s))
        return ClusterMetadata.from_response(response)

    def _timeout_ms(self, timeout_s: float | None) -> int:
        core = self._usable_core()
        timeout_ms = core.config.default_api_timeout_ms
        if timeout_s is not None:
            check_timeout(timeout_s)
            timeout_ms = max(round(timeout_s * 1000), 0)
        left_ms = None if core.group is None else core.group.listener_time_left_ms
        return timeout_ms if left_ms is None else min(timeout_ms, left_ms)
