"""Reads the high watermarks of partitions without a replica on this broker, for the lag of its groups.

Leaders get a ListOffsets request, and only while metrics are scraped: `get` returns the last known value and
marks the partition as wanted; at most every `REFRESH_SECONDS` the leaders of all wanted partitions are asked.
The first scrape after a pause therefore lacks these lags, and later scrapes show values that are at most a
scrape interval and `REFRESH_SECONDS` old.
"""

from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.cluster.schema import NO_LEADER
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition, by_topic
from kalda.net.peer.dialer import Dialer
from kalda.net.peer.peer_batches import PeerBatches
from kalda.net.peer.peer_connection import PeerConnection
from kalda.protocol.messages.list_offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kalda.runtime.clock import Clock
from kalda.runtime.random import Random

REFRESH_SECONDS: Final = 10.0
"""Less than the usual scrape interval of 15 s, so that each scrape has the values of the previous one."""

AGE_SECONDS_MAX: Final = 120.0
"""A value that could not be refreshed for this long, as without a leader, is dropped."""

_CONSUMER: Final = -1


class RemoteEndOffsets:
    """The last known high watermarks of partitions of other brokers; `run` refreshes them."""

    def __init__(
        self,
        broker_id: int,
        cache: MetadataCache,
        clock: Clock,
        dialer: Dialer,
        random: Random,
        *,
        listener: str,
        timeout_ms: int,
    ) -> None:
        self._broker_id: Final = broker_id
        self._cache: Final = cache
        self._clock: Final = clock
        self._timeout_seconds: Final = timeout_ms / 1000
        self._known: dict[TopicPartition, tuple[int, float]] = {}
        """The high watermark and the time at which it was read."""
        self._wanted: dict[TopicPartition, None] = {}
        self._asked_at = -REFRESH_SECONDS
        self._under_way = 0
        self._peers: Final = PeerBatches[TopicPartition](
            "end offsets",
            dialer,
            broker_id,
            cache,
            random,
            listener=listener,
            timeout_ms=timeout_ms,
            request=self._request,
            failed=self._settle,
        )

    async def run(self) -> None:
        """Send requests to leaders, until cancelled."""
        await self._peers.run()

    def get(self, partition: TopicPartition) -> int | None:
        """Return the last known high watermark of a partition and mark it to be refreshed."""
        now = self._clock.monotonic()
        # A partition that is wanted again starts a new pass, after all of the last pass are known.
        is_due = not self._under_way and now - self._asked_at >= REFRESH_SECONDS
        if is_due and partition in self._wanted:
            self._ask(now)
        self._wanted[partition] = None
        found = self._known.get(partition)
        return None if found is None or now - found[1] > AGE_SECONDS_MAX else found[0]

    def _ask(self, now: float) -> None:
        wanted, self._wanted = self._wanted, {}
        self._asked_at = now
        self._known = {each: found for each, found in self._known.items() if each in wanted}
        for partition in wanted:
            leadership = self._cache.partition(partition)
            if leadership is not None and leadership.leader not in (NO_LEADER, self._broker_id):
                self._under_way += 1
                self._peers.submit(leadership.leader, partition)

    def _settle(self, partitions: list[TopicPartition]) -> None:
        self._under_way -= len(partitions)

    async def _request(self, connection: PeerConnection, partitions: list[TopicPartition]) -> None:
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=each.partition, timestamp=LATEST_TIMESTAMP)
                        for each in group
                    ],
                )
                for topic, group in by_topic(partitions).items()
            ],
        )
        response = await connection.request(request, timeout_seconds=self._timeout_seconds)
        if not isinstance(response, ListOffsetsResponse):
            raise ConnectionError(f"a response of class {type(response).__name__}")
        now = self._clock.monotonic()
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code == ErrorCode.NONE:
                    self._known[TopicPartition(topic.name, answer.partition_index)] = (answer.offset, now)
        self._settle(partitions)
