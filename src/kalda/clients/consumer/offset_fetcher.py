"""Looks offsets up by time, resets positions and validates them with the leaders (KIP-320).

What is asked and what responses mean is decided in `offset_lookup` and `subscription_state`.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from kalda.clients.config.isolation_level import IsolationLevel
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.consumer.consumer_errors import LogTruncationError
from kalda.clients.consumer.fetch_planner import leader_of
from kalda.clients.consumer.subscription_state import LogTruncation, SubscriptionState
from kalda.clients.errors import (
    ClientError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
    UnsupportedApiError,
    error_for,
)
from kalda.clients.fetch_position import NO_LEADER_EPOCH, FetchPosition
from kalda.clients.missing_topics import CREATION_SECONDS, absent_partition
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
from kalda.clients.values import OffsetAndTimestamp
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.list_offsets import ListOffsetsResponse
from kalda.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)


class OffsetFetcher:
    """The look-ups of one consumer, on its loop."""

    def __init__(
        self, config: ConsumerConfig, network: NetworkClient, subscription: SubscriptionState
    ) -> None:
        self._config: Final = config
        self._network: Final = network
        self._subscription: Final = subscription
        self._isolation: Final = config.isolation
        self._failures = 0
        """Look-ups and validations in a row that did not succeed for all partitions."""

    async def offsets(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after each timestamp; special timestamps mean an end of the log.

        None where the log has no such record. Leaders that move meanwhile are asked again.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition does not exist.
            UnsupportedApiError: a broker is too old for a special timestamp.
            RequestTimedOutError: the time is up; chained to the last failure.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        deadline = began + timeout_ms / 1000
        wanted = dict(timestamps)
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        failures = 0
        last: ClientError | None = None
        while wanted:
            try:
                async with asyncio.timeout_at(deadline):
                    result, error = await self._ask(wanted)
            except TimeoutError:
                raise RequestTimedOutError(
                    f"no offsets of {_names(wanted)} within {timeout_ms} ms"
                    + (f"; last: {last}" if last else "")
                ) from last
            last = error or last
            found.update(result.found)
            for partition, code in result.failed.items():
                raise self._refused(code, f"offset of {partition}", partition)
            for partition in result.found:
                wanted.pop(partition, None)
            if not wanted:
                break
            if loop.time() - began >= CREATION_SECONDS:
                for partition in wanted:
                    absent = absent_partition(self._network.metadata.snapshot, partition)
                    if absent is not None:
                        raise UnknownTopicOrPartitionError(f"offset of {partition}", absent)
            failures += 1
            self._network.metadata.request_update()
            delay = self._network.retry_backoff.seconds(failures)
            if loop.time() + delay >= deadline:
                raise RequestTimedOutError(
                    f"no offsets of {_names(wanted)} within {timeout_ms} ms"
                    + (f"; last: {last}" if last else "")
                ) from last
            await asyncio.sleep(delay)
        return {partition: found[partition] for partition in timestamps}

    async def reset_positions(self, now_ms: int) -> None:
        """Look up the offsets of partitions that await a reset; those that fail are retried later.

        Raises:
            BrokerResponseError: a partition cannot be read, such as one this client may not read.
        """
        subscription = self._subscription
        loop = asyncio.get_running_loop()
        resets = subscription.needing_reset(loop.time())
        if not resets:
            return
        subscription.retry_later(resets, loop.time() + self._config.request_timeout_ms / 1000)
        result, _ = await self._ask({key: reset.timestamp(now_ms) for key, reset in resets.items()})
        snapshot = self._network.metadata.snapshot
        after_end = [
            partition
            for partition, offset in result.found.items()
            if offset is None and resets[partition].timestamp(now_ms) >= 0
        ]
        if after_end:
            # No record is as young as by_duration or a seek asks for: the end, as Java does for by_duration.
            ends, _ = await self._ask(dict.fromkeys(after_end, -1))
            result.found.update(ends.found)
        for partition, found in result.found.items():
            if found is None:
                continue
            epoch = NO_LEADER_EPOCH if found.leader_epoch is None else found.leader_epoch
            position = FetchPosition(found.offset, epoch, leader_of(snapshot, partition))
            if subscription.complete_reset(partition, resets[partition], position):
                logger.info("Position of %s is reset to %s: %s.", partition, resets[partition], position)
        rest = [key for key in resets if result.found.get(key) is None]
        if not rest:
            self._failures = 0
        else:
            subscription.retry_later(rest, loop.time() + self._back_off())
            self._network.metadata.request_update()
        for partition, code in result.failed.items():
            raise self._refused(code, f"reset of the position in {partition}", partition)

    async def validate_positions(self) -> None:
        """Ask the leaders whether they hold the log up to the positions; failures are retried later.

        Raises:
            LogTruncationError: a log was truncated, and `auto.offset.reset` is none.
            BrokerResponseError: a partition cannot be read.
        """
        subscription = self._subscription
        loop = asyncio.get_running_loop()
        positions = subscription.needing_validation(loop.time())
        if not positions:
            return
        subscription.retry_later(positions, loop.time() + self._config.request_timeout_ms / 1000)
        groups: dict[int, dict[TopicPartition, FetchPosition]] = {}
        for partition, position in positions.items():
            groups.setdefault(position.leader.leader_id, {})[partition] = position
        outcomes = await asyncio.gather(
            *(self._validate(leader, group) for leader, group in groups.items()), return_exceptions=True
        )
        truncations: list[LogTruncation] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            truncations += outcome
        if truncations:
            raise LogTruncationError(
                {each.topic_partition: each.position.offset for each in truncations},
                {
                    each.topic_partition: each.divergent_offset
                    for each in truncations
                    if each.divergent_offset is not None
                },
            )

    async def _validate(
        self, leader: int, positions: Mapping[TopicPartition, FetchPosition]
    ) -> list[LogTruncation]:
        subscription = self._subscription
        loop = asyncio.get_running_loop()
        try:
            response = await self._network.send(
                leader,
                VersionedRequest(
                    ApiKey.OFFSET_FOR_LEADER_EPOCH,
                    lambda _: epochs_request(positions),
                    version_min=EPOCHS_VERSION_MIN,
                ),
                OffsetForLeaderEpochResponse,
            )
        except UnsupportedApiError:
            # A broker before 2.3: there is nothing to compare with.
            for partition, position in positions.items():
                subscription.complete_validation(partition, position, position.offset_epoch, position.offset)
            return []
        except ClientError as error:
            logger.debug("Positions were not validated by broker %d: %s", leader, error)
            subscription.retry_later(positions, loop.time() + self._back_off())
            self._network.metadata.request_update()
            return []
        result = read_epochs(response, positions)
        truncations = []
        for partition, (epoch, end_offset) in result.ends.items():
            asked = positions[partition]
            truncation = subscription.complete_validation(partition, asked, epoch, end_offset)
            if truncation is not None:
                truncations.append(truncation)
            elif end_offset < asked.offset:
                logger.warning("The log of %s was truncated before %s.", partition, asked)
        rest = [partition for partition in positions if partition not in result.ends]
        if not rest:
            self._failures = 0
        else:
            subscription.retry_later(rest, loop.time() + self._back_off())
            self._network.metadata.request_update()
        for partition, code in result.failed.items():
            raise self._refused(code, f"validation of the position in {partition}", partition)
        return truncations

    def _back_off(self) -> float:
        """Count a failure; return the seconds before the next attempt."""
        self._failures += 1
        return self._network.retry_backoff.seconds(self._failures)

    def _refused(self, code: ErrorCode, what: str, partition: TopicPartition) -> ClientError:
        """Return the error of a partition's leader, which it names where it is known."""
        snapshot = self._network.metadata.snapshot
        leader = snapshot.leader(partition)
        return error_for(code, what if leader is None else f"{what} at {snapshot.broker_text(leader.id)}")

    async def _ask(self, timestamps: Mapping[TopicPartition, int]) -> tuple[Offsets, ClientError | None]:
        """Ask the leaders once; return their offsets, and a retriable failure if there was one."""
        snapshot = self._network.metadata.snapshot
        groups = by_leader(snapshot, timestamps)
        result = Offsets(stale=groups.unknown)
        answers = await asyncio.gather(
            *(
                self._ask_leader(leader, {key: timestamps[key] for key in partitions})
                for leader, partitions in groups.known.items()
            ),
            return_exceptions=True,
        )
        failure: ClientError | None = None
        for answer in answers:
            if isinstance(answer, ClientError) and answer.is_retriable:
                failure = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                read_list_offsets(answer, result, timestamps)
        return result, failure

    async def _ask_leader(self, leader: int, timestamps: Mapping[TopicPartition, int]) -> ListOffsetsResponse:
        snapshot = self._network.metadata.snapshot
        read_committed = self._isolation is IsolationLevel.READ_COMMITTED
        request = VersionedRequest(
            ApiKey.LIST_OFFSETS,
            lambda version: list_offsets_request(
                timestamps, snapshot, int(self._isolation) if version >= 2 else 0
            ),
            version_min=list_offsets_version_min(timestamps.values(), read_committed=read_committed),
        )
        return await self._network.send(leader, request, ListOffsetsResponse)


def _names(partitions: Collection[TopicPartition]) -> str:
    return ", ".join(str(each) for each in sorted(partitions))
