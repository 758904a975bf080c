"""Looks up topics, partitions and offsets on the event loop, with retries. It caches only leaders."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from kalda.clients.config.isolation_level import IsolationLevel
from kalda.clients.errors import (
    BrokerResponseError,
    ClientError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kalda.clients.fetch_position import FetchPosition, LeaderAndEpoch
from kalda.clients.metadata import ClusterMetadata
from kalda.clients.network_client import NetworkClient
from kalda.clients.offset_lookup import (
    EPOCHS_VERSION_MIN,
    Offsets,
    by_leader,
    epochs_request,
    list_offsets_request,
    list_offsets_version_min,
    read_epochs,
    read_list_offsets,
)
from kalda.clients.range_reader.leaders import missing_leader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.clients.values import OffsetAndTimestamp
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.list_offsets import ListOffsetsResponse
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kalda.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

T = TypeVar("T")

UNKNOWN_TOPIC_WAIT_SECONDS: Final = 3.0
"""A topic that was just created may be unknown to some brokers for a moment; one that is still unknown
after this long does not exist."""


class ClusterLookup:
    """Look-ups over the connections of a network client that runs."""

    def __init__(self, client: NetworkClient, config: LogReaderConfig) -> None:
        self._client: Final = client
        self._config: Final = config

    async def describe(self, topics: Iterable[str] | None) -> ClusterMetadata:
        """Ask a broker for the named topics, or for all of them; see `LogReader.metadata`."""
        names = None if topics is None else sorted(set(topics))
        return await self.retry("metadata", lambda: self._describe_once(names))

    async def topic_partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return all partitions of the topics; see `LogReader.topic_partitions`."""
        names = sorted(set(topics))

        async def attempt() -> list[TopicPartition]:
            described = await self._describe_once(names)
            for name in names:
                topic = described.topics.get(name)
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
                if code != ErrorCode.NONE:
                    raise error_for(code, f"topic {name}")
            return [each for name in names for each in described.topics[name].topic_partitions]

        return await self.retry(f"partitions of {', '.join(names)}", attempt)

    async def list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Find offsets by timestamp; see `LogReader.list_offsets`."""
        offsets = Offsets()

        async def attempt() -> None:
            # What an earlier attempt found is kept; only the rest is asked again.
            await self._list_offsets_once(
                {each: time for each, time in timestamps.items() if each not in offsets.found}, offsets
            )

        if timestamps:
            await self.retry("offsets", attempt)
        return offsets.found

    async def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Ask where leader epochs ended; see `LogReader.epoch_ends`."""
        found: dict[TopicPartition, int | None] = {}

        async def attempt() -> None:
            missing = {each: epoch for each, epoch in epochs.items() if each not in found}
            await self._ask_epochs_once(missing, found)

        if epochs:
            await self.retry("leader epochs", attempt)
        return found

    async def require_topics(self, topics: Iterable[str]) -> None:
        """Wait until the client's metadata has been asked for the topics; a topic may still be unknown.

        Raises:
            RequestTimedOutError: no broker answered.
        """
        metadata = self._client.metadata
        now = self._client.clock.monotonic()
        for topic in topics:
            metadata.add_topic(topic, now)
        if any(topic not in metadata.snapshot.topics for topic in topics):
            await self._refresh()

    async def retry(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Run `attempt` as `NetworkClient.retry` does, for `default.api.timeout.ms` at most.

        The metadata is refreshed before another attempt. A topic that stays unknown for
        `UNKNOWN_TOPIC_WAIT_SECONDS` does not exist.

        Raises:
            RequestTimedOutError: the time is up; chained to the last failure.
            ClientError: what `attempt` raised that another attempt would not change.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        has_failed = False

        async def limited() -> T | UnknownTopicOrPartitionError:
            nonlocal has_failed
            if has_failed:
                await self._refresh()
            try:
                return await attempt()
            except UnknownTopicOrPartitionError as error:
                has_failed = True
                if loop.time() - began >= UNKNOWN_TOPIC_WAIT_SECONDS:
                    return error
                raise
            except ClientError:
                has_failed = True
                raise

        result = await self._client.retry(what, limited, timeout_ms=self._config.default_api_timeout_ms)
        if isinstance(result, UnknownTopicOrPartitionError):
            raise result
        return result

    async def _refresh(self) -> None:
        await self._client.refresh_metadata(timeout_ms=self._config.request_timeout_ms)

    async def _describe_once(self, names: list[str] | None) -> ClusterMetadata:
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        return ClusterMetadata.from_response(await self._client.send_to_any(request, MetadataResponse))

    async def _list_offsets_once(self, timestamps: Mapping[TopicPartition, int], offsets: Offsets) -> None:
        """Ask every leader; add what they answer to `offsets`, and raise the first failure at the end."""
        await self.require_topics({each.topic for each in timestamps})
        snapshot = self._client.metadata.snapshot
        leaders = by_leader(snapshot, timestamps)
        if leaders.unknown:
            raise missing_leader(snapshot, leaders.unknown[0])
        offsets.stale.clear()
        answers = await asyncio.gather(
            *(
                self._ask_leader(leader_id, {each: timestamps[each] for each in partitions})
                for leader_id, partitions in leaders.known.items()
            ),
            return_exceptions=True,
        )
        failures = []
        for answer in answers:
            if isinstance(answer, BaseException):
                failures.append(answer)
            else:
                read_list_offsets(answer, offsets, timestamps)
        for each, code in offsets.failed.items():
            raise error_for(code, f"offsets of {each}")
        if failures:
            raise failures[0]
        missing = timestamps.keys() - offsets.found.keys()
        if missing:
            raise BrokerResponseError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"offsets of {min(missing)}")

    async def _ask_epochs_once(
        self, epochs: Mapping[TopicPartition, int], found: dict[TopicPartition, int | None]
    ) -> None:
        """Ask one leader after the other, and add what they answer to `found`."""
        await self.require_topics({each.topic for each in epochs})
        snapshot = self._client.metadata.snapshot
        leaders = by_leader(snapshot, epochs)
        if leaders.unknown:
            raise missing_leader(snapshot, leaders.unknown[0])
        for leader_id, partitions in leaders.known.items():
            request = epochs_request(
                {each: FetchPosition(0, epochs[each], _leader_of(snapshot, each)) for each in partitions}
            )
            ends = read_epochs(
                await self._client.send(
                    leader_id,
                    VersionedRequest(
                        ApiKey.OFFSET_FOR_LEADER_EPOCH,
                        functools.partial(_same, request),
                        version_min=EPOCHS_VERSION_MIN,
                    ),
                    OffsetForLeaderEpochResponse,
                ),
                epochs,
            )
            for each, code in ends.failed.items():
                raise error_for(code, f"leader epochs of {each}")
            found |= {each: end if end >= 0 else None for each, (_, end) in ends.ends.items()}
            if ends.stale:
                raise BrokerResponseError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"leader epochs of {min(ends.stale)}"
                )

    async def _ask_leader(
        self, leader_id: int, timestamps: Mapping[TopicPartition, int]
    ) -> ListOffsetsResponse:
        isolation = self._config.isolation
        request = list_offsets_request(timestamps, self._client.metadata.snapshot, int(isolation))
        version_min = list_offsets_version_min(
            timestamps.values(), read_committed=isolation is IsolationLevel.READ_COMMITTED
        )
        return await self._client.send(
            leader_id,
            VersionedRequest(ApiKey.LIST_OFFSETS, lambda _: request, version_min=version_min),
            ListOffsetsResponse,
        )


def _leader_of(snapshot: ClusterMetadata, partition: TopicPartition) -> LeaderAndEpoch:
    known = snapshot.partition(partition)
    assert known is not None, f"{partition} has a leader"
    return LeaderAndEpoch(known.leader_id, known.leader_epoch)


def _same(request: OffsetForLeaderEpochRequest, version: int) -> OffsetForLeaderEpochRequest:
    return request
