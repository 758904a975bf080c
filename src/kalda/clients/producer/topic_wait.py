"""Waits until a producer knows a topic or a partition of it."""

import asyncio
from typing import Final

from kalda.clients.errors import (
    ClientError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kalda.clients.metadata import Metadata
from kalda.clients.metrics.producer_metrics import ProducerMetrics
from kalda.clients.missing_topics import absent_partition
from kalda.clients.network_client import NetworkClient
from kalda.clients.producer.producer_config import ProducerConfig
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition

_FIRST_WAIT_MS: Final = 10
"""The first wait for a topic that is being created; brokers take some 20 ms."""
_ABSENT_PARTITION_SECONDS: Final = 0.5
"""The time that a partition may be missing in a topic that exists; brokers learn of a new one within it."""


class TopicWait:
    """Refreshes the metadata of one producer for a caller that has to wait for a topic."""

    def __init__(
        self,
        client: NetworkClient,
        metadata: Metadata,
        metrics: ProducerMetrics,
        config: ProducerConfig,
    ) -> None:
        self._client: Final = client
        self._metadata: Final = metadata
        self._clock: Final = client.runtime.clock
        self._metrics: Final = metrics
        self._backoff: Final = ExponentialBackoff(
            min(_FIRST_WAIT_MS, config.retry_backoff_ms),
            config.retry_backoff_max_ms,
            client.runtime.random.uniform,
        )

    def is_known(self, topic: str, partition: int | None) -> bool:
        """Whether the topic, and the partition if one is given, is known; a topic with an error is not."""
        found = self._metadata.snapshot.topics.get(topic)
        if found is None or found.error is not ErrorCode.NONE or not found.partitions:
            return False
        return partition is None or partition in found.partitions

    async def wait_known(self, topic: str, partition: int | None, timeout_s: float) -> None:
        """Wait until `is_known`.

        Raises:
            RequestTimedOutError: the time is up.
            BrokerResponseError: the topic's name is not allowed, or the client may not see it.
            UnknownTopicOrPartitionError: the topic exists and has no such partition.
        """
        with self._metrics.timing("metadata-wait"):
            await self._wait_known(topic, partition, timeout_s)

    async def _wait_known(self, topic: str, partition: int | None, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        absent_until = loop.time() + min(timeout_s, _ABSENT_PARTITION_SECONDS)
        attempts = 0
        while not self.is_known(topic, partition):
            self._metadata.add_topic(topic, self._clock.monotonic())
            left_ms = round((deadline - loop.time()) * 1000)
            if left_ms <= 0:
                raise self._metadata_timeout(topic, partition, timeout_s)
            try:
                snapshot = await self._client.refresh_metadata(timeout_ms=left_ms)
            except RequestTimedOutError as error:
                raise self._metadata_timeout(topic, partition, timeout_s, error) from error
            found = snapshot.topics.get(topic)
            if found is not None and found.error is not ErrorCode.NONE and not found.error.retriable:
                raise error_for(found.error, f"topic {topic}")
            if self.is_known(topic, partition):
                return
            if partition is not None and self.is_known(topic, None) and loop.time() >= absent_until:
                raise self._absent_partition(topic, partition)
            attempts += 1
            wait = self._backoff.seconds(attempts)
            await asyncio.sleep(min(wait, max(deadline - loop.time(), 0.0)))

    def _absent_partition(self, topic: str, partition: int) -> UnknownTopicOrPartitionError:
        known = absent_partition(self._metadata.snapshot, TopicPartition(topic, partition))
        return UnknownTopicOrPartitionError(
            f"partition {partition} of topic {topic}",
            f"{known}; name one of them, or leave the partition out",
        )

    def _metadata_timeout(
        self, topic: str, partition: int | None, timeout_s: float, cause: ClientError | None = None
    ) -> ClientError:
        if partition is not None and self.is_known(topic, None):
            return self._absent_partition(topic, partition)
        found = self._metadata.snapshot.topics.get(topic)
        if found is None:
            reason = "no broker sent metadata of it" if cause is None else str(cause)
            reason += "; see whether the brokers run, and whether `bootstrap.servers` names them"
        elif found.error is ErrorCode.NONE:
            reason = "it has no partitions"
        else:
            reason = f"{found.error.name}: {found.error.message}{self._client.nearest_topic(topic)}"
        what = f"topic {topic}" if partition is None else f"partition {TopicPartition(topic, partition)}"
        return RequestTimedOutError(
            f"{what} is not in the metadata after {round(timeout_s * 1000)} ms; {reason}"
        )
