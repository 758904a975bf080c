"""Places messages in partitions and sends them to the leaders, again where that fails.

What failed is sent again in the order of the first time, messages without a key to another partition. As in
0.8, messages that a broker appended without a response are there twice.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from kalda.clients.errors import ClientError, error_for
from kalda.clients.legacy.message_set import Message
from kalda.clients.legacy.producer.discovery import Discovery
from kalda.clients.legacy.producer.partitioner import (
    BrokerPartition,
    PartitionFunction,
    choose,
    partition_list,
)
from kalda.clients.legacy.producer.producer_config import ProducerConfig
from kalda.clients.legacy.producer.producer_errors import FailedToSendMessageError, NoBrokersForPartitionError
from kalda.clients.metadata import ClusterMetadata
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.runtime.runtime import Runtime
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

BACKOFF_MS_MAX: Final = 1_000
"""The longest wait between attempts, unless `retry.backoff.ms` is longer; 0.8 always waits that long."""


@dataclass(frozen=True, slots=True)
class PlacedMessage:
    """A message with its partition."""

    partition: TopicPartition
    message: Message
    is_movable: bool = False
    """Whether another partition does as well: no key chose this one."""


class BrokerPort(Protocol):
    """One broker, as `SyncProducer` is."""

    async def produce(
        self, sets: Mapping[TopicPartition, Sequence[Message]]
    ) -> dict[TopicPartition, ErrorCode]:
        """Send messages; return each partition's error code, or raise `ClientError`."""
        ...


class Dispatcher:
    """Sends messages to the brokers that lead their partitions.

    `place_now` and `by_leader` may be called in any thread; the rest runs on the loop.

    Args:
        config: The producer's settings.
        discovery: The brokers and leaders.
        partitioner: The function of `partitioner.class`.
        broker: Returns the connection to a broker.
        runtime: The clock of look-ups of leaders, and randomness for back-off.
        random_below: Returns a random number from 0 to its argument - 1.
    """

    def __init__(
        self,
        config: ProducerConfig,
        discovery: Discovery,
        partitioner: PartitionFunction,
        broker: Callable[[BrokerEndpoint], BrokerPort],
        runtime: Runtime,
        random_below: Callable[[int], int] | None = None,
    ) -> None:
        self._config: Final = config
        self._discovery: Final = discovery
        self._partitioner: Final = partitioner
        self._broker: Final = broker
        self._clock: Final = runtime.clock
        self._random_below: Final = runtime.random.randrange if random_below is None else random_below
        self._backoff: Final = ExponentialBackoff(
            config.retry_backoff_ms, max(config.retry_backoff_ms, BACKOFF_MS_MAX), runtime.random.uniform
        )
        self._refreshed_at: float | None = None
        # The sorted lists of one snapshot, by topic.
        self._lists: tuple[int, dict[str, list[BrokerPartition]]] = (0, {})

    def place_now(self, topic: str, key: object) -> TopicPartition:
        """Return the partition of messages by what is known now.

        Raises:
            NoBrokersForPartitionError: there is none with a live leader; `place` looks again.
            InvalidPartitionError: as `partitioner.choose`.
        """
        if self._discovery.is_stale:
            raise NoBrokersForPartitionError(f"the leaders of topic {topic} are to be looked up")
        return self._place_in(self._discovery.snapshot, topic, key)

    async def place(self, topic: str, key: object) -> TopicPartition:
        """Return the partition of messages; look leaders up again where it has none.

        `zk.read.num.retries` bounds this with `zk.connect`, else `message.send.max.retries` does.

        Raises:
            ClientError: as `place_now`, after the last look-up.
        """
        config = self._config
        retries = config.zk_read_num_retries if config.zk_connect else config.message_send_max_retries
        failure: ClientError | None = None
        # The first look-up may create the topic; the second finds it.
        for attempt in range(retries + 2):
            if attempt > 1:
                await asyncio.sleep(self._backoff.seconds(attempt - 1))
            try:
                await self.refresh([topic])
            except ClientError as error:
                failure = error
                if not self._discovery.snapshot.topics:
                    continue
            try:
                return self._place_in(self._discovery.snapshot, topic, key)
            except NoBrokersForPartitionError as error:
                failure = error
        assert failure is not None, "the loop ran"
        raise failure

    async def refresh(self, topics: Collection[str]) -> None:
        """Look leaders up again; raises as `Discovery.refresh`."""
        await self._discovery.refresh(topics)
        self._refreshed_at = self._clock.monotonic()

    async def send(self, messages: Sequence[PlacedMessage]) -> None:
        """Send messages until brokers acknowledged all, or the last attempt failed.

        Raises:
            FailedToSendMessageError: some failed; chained to the last failure.
        """
        config = self._config
        pending = list(messages)
        refused: list[PlacedMessage] = []
        failure: ClientError | None = None
        for attempt in range(config.message_send_max_retries + 1):
            topics = {each.partition.topic for each in pending}
            if attempt:
                wait_s = self._backoff.seconds(attempt)
                logger.info(
                    "Sending %d messages again in %d ms, attempt %d of %d: %s",
                    len(pending),
                    wait_s * 1000,
                    attempt,
                    config.message_send_max_retries,
                    failure,
                )
                await asyncio.sleep(wait_s)
            if attempt or self._is_refresh_due():
                await self._refresh_quietly(topics)
            if attempt:
                pending = self._moved(pending)
            failures = await self._send_once(pending)
            refused += [each for each in pending if _is_final(failures.get(each.partition))]
            failure = next(iter(failures.values()), failure)
            pending = [
                each
                for each in pending
                if each.partition in failures and not _is_final(failures[each.partition])
            ]
            if not pending:
                break
        count = len(pending) + len(refused)
        if count:
            raise FailedToSendMessageError(
                f"{count} of {len(messages)} messages were not sent after "
                f"{config.message_send_max_retries} retries; last: {failure}",
                count,
            ) from failure

    def by_leader(
        self, partitions: Collection[TopicPartition]
    ) -> dict[BrokerEndpoint | None, list[TopicPartition]]:
        """Group partitions by the broker that leads them, None for those without a live leader."""
        snapshot = self._discovery.snapshot
        grouped: dict[BrokerEndpoint | None, list[TopicPartition]] = {}
        for each in partitions:
            grouped.setdefault(snapshot.leader(each), []).append(each)
        return grouped

    def _moved(self, messages: Sequence[PlacedMessage]) -> list[PlacedMessage]:
        """Choose another partition for the movable messages of each partition, as a whole."""
        snapshot = self._discovery.snapshot
        moved: dict[TopicPartition, TopicPartition] = {}
        for each in messages:
            if each.is_movable and each.partition not in moved:
                try:
                    moved[each.partition] = self._place_in(snapshot, each.partition.topic, None)
                except NoBrokersForPartitionError:
                    moved[each.partition] = each.partition
        return [
            replace(each, partition=moved[each.partition]) if each.is_movable else each for each in messages
        ]

    async def _send_once(self, messages: Sequence[PlacedMessage]) -> dict[TopicPartition, ClientError]:
        """Send messages to the leaders, at once to all; return the partitions that failed."""
        sets: dict[TopicPartition, list[Message]] = {}
        for each in messages:
            sets.setdefault(each.partition, []).append(each.message)
        groups = self.by_leader(sets)
        leaderless = groups.pop(None, [])
        failures: dict[TopicPartition, ClientError] = {
            each: NoBrokersForPartitionError(f"partition {each} has no live leader") for each in leaderless
        }
        answers = await asyncio.gather(
            *(
                self._send_to(leader, {each: sets[each] for each in partitions})
                for leader, partitions in groups.items()
                if leader is not None
            )
        )
        for answer in answers:
            failures |= answer
        if failures:
            self._discovery.mark_stale()
        return failures

    async def _send_to(
        self, leader: BrokerEndpoint, sets: Mapping[TopicPartition, Sequence[Message]]
    ) -> dict[TopicPartition, ClientError]:
        try:
            codes = await self._broker(leader).produce(sets)
        except ClientError as error:
            return dict.fromkeys(sets, error)
        return {
            each: error_for(code, f"produce to {each}")
            for each, code in codes.items()
            if code is not ErrorCode.NONE
        }

    def _place_in(self, snapshot: ClusterMetadata, topic: str, key: object) -> TopicPartition:
        if self._config.broker_list:
            key = None
        partitions = self._partitions(snapshot, topic)
        found = choose(topic, key, partitions, snapshot.brokers, self._partitioner, self._random_below)
        return TopicPartition(topic, found.partition)

    def _partitions(self, snapshot: ClusterMetadata, topic: str) -> list[BrokerPartition]:
        version, lists = self._lists
        if version != snapshot.version:
            lists = {}
            self._lists = (snapshot.version, lists)
        if topic not in lists:
            by_broker = bool(self._config.zk_connect)
            lists[topic] = partition_list(snapshot.topics.get(topic), by_broker=by_broker)
        return lists[topic]

    def _is_refresh_due(self) -> bool:
        if self._discovery.is_stale:
            return True
        interval_ms = self._config.topic_metadata_refresh_interval_ms
        if interval_ms < 0 or self._refreshed_at is None:
            return False
        return (self._clock.monotonic() - self._refreshed_at) * 1000 > interval_ms

    async def _refresh_quietly(self, topics: Collection[str]) -> None:
        """Look leaders up; without an answer, what is known has to do."""
        try:
            await self.refresh(topics)
        except ClientError as error:
            logger.warning("The leaders of %s cannot be looked up: %s", ", ".join(sorted(topics)), error)


def _is_final(failure: ClientError | None) -> bool:
    return failure is not None and not failure.is_retriable
