"""Reads a topic once for all readers of one principal that have reached its end.

A feed begins some records before the end, so that readers that come back with a recent position find what
they missed. It reads with the connection of one of its readers; the brokers check that principal's right with
every fetch, and each reader's own login is checked again every minute.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.consumer.consumer_errors import NoOffsetForPartitionError
from kalda.clients.errors import (
    AuthenticationError,
    BrokerResponseError,
    ClientError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.http.gateway.streams.event_form import EventForm
from kalda.http.gateway.streams.recent_records import RecentRecords
from kalda.http.gateway.streams.view import Leaving, Membership, View

logger: Final = logging.getLogger(__name__)

POLL_SECONDS: Final = 1.0
METADATA_MAX_AGE_MS: Final = 5_000
"""How soon added partitions and a deleted topic are noticed."""
LINGER_SECONDS: Final = 15.0
"""How long a feed without readers goes on, since the next one may come at once."""
FLUSH_SECONDS_MAX: Final = 0.25
FLUSH_SECONDS_PER_READER: Final = 0.00005
"""Events are collected for 50 us for each reader, at most 250 ms: then writing to 5,000 readers, at some
25 us each, takes less than half a core, and a few readers get events at once."""


_FINAL: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
_DELETED: Final = ("topic_deleted", "the topic was deleted")


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """How much a feed keeps."""

    records: int = 5_000
    bytes: int = 8 * 1024 * 1024
    heartbeat_seconds: float = 15.0


Consumer = AsyncConsumer[bytes, bytes]


class Feed:
    """The shared reader of one topic.

    Args:
        topic: The topic.
        open_consumer: Makes a consumer without a subscription, not started.
        limits: How much is kept.
    """

    def __init__(self, topic: str, open_consumer: Callable[[], Consumer], limits: FeedLimits) -> None:
        self.topic: Final = topic
        self._open_consumer: Final = open_consumer
        self._limits: Final = limits
        self.recent = RecentRecords(limits.records, limits.bytes)
        self.end_position: dict[int, int] = {}
        """The ends of the partitions when the feed began; what lies before was there already."""
        self._views: Final[dict[tuple[EventForm, frozenset[int] | None], View]] = {}
        self._ready: Final = asyncio.Event()
        self.is_deleted = False
        """Whether it ended since the topic exists no more."""
        self.is_over = False
        """Whether it has ended; readers need another one."""
        self.failure: ClientError | None = None
        self._flush_timer: asyncio.TimerHandle | None = None
        self._flushed_at = 0.0
        self._is_pumping = False
        self._idle_since: float | None = None

    @property
    def readers(self) -> int:
        """How many readers there are."""
        return sum(view.readers for view in self._views.values())

    async def wait_ready(self) -> None:
        """Wait until the feed knows its position, or has ended."""
        await self._ready.wait()

    def tail(self, partitions: frozenset[int] | None) -> dict[int, int]:
        """Return the position of a reader that starts with new records."""
        return {
            partition: max(at, self.end_position.get(partition, 0))
            for partition, at in self.recent.next.items()
            if partitions is None or partition in partitions
        }

    def join(
        self, form: EventForm, partitions: frozenset[int] | None, position: Mapping[int, int]
    ) -> Membership:
        """Add a reader whose position the feed covers."""
        view = self._views.get((form, partitions))
        if view is None:
            reads = (lambda _: True) if partitions is None else partitions.__contains__
            view = self._views[form, partitions] = View(form, self.recent, reads)
        member = view.join(position)
        self._pump()
        return member

    def leave(self, form: EventForm, partitions: frozenset[int] | None, member: Membership) -> None:
        """Remove a reader."""
        view = self._views.get((form, partitions))
        if view is not None:
            view.remove(member)
            if not view.readers:
                del self._views[form, partitions]

    async def run(self) -> None:
        """Read until the last reader has left, the topic is deleted, or an error ends the feed."""
        leaving, reason = Leaving.RESET, None
        loop = asyncio.get_running_loop()
        try:
            async with self._open_consumer() as consumer:
                if not await self._begin(consumer):
                    leaving, reason = Leaving.ENDED, _DELETED
                    self.failure = UnknownTopicOrPartitionError(f"read {self.topic}")
                    return
                self._ready.set()
                heartbeat_at = loop.time() + self._limits.heartbeat_seconds
                while not self._is_idle(loop.time()):
                    records = await consumer.poll(POLL_SECONDS)
                    # A view may be made while another one's schemas are.
                    while not all(view.form.is_ready(records) for view in self._views.values()):
                        for view in list(self._views.values()):
                            await view.form.prepare(records)
                    for record in records:
                        self.recent.append(record)
                    for view in self._views.values():
                        view.add(records)
                    await self._sync(consumer, {each.partition for each in records} or None)
                    if records:
                        self._schedule_flush()
                    elif not await self._update_partitions(consumer):
                        leaving, reason = Leaving.ENDED, _DELETED
                        return
                    if loop.time() >= heartbeat_at:
                        heartbeat_at = loop.time() + self._limits.heartbeat_seconds
                        await self._update_partitions(consumer)
                        self._heartbeat()
        except OffsetOutOfRangeError as error:
            logger.info("The feed of %s begins again: %s", self.topic, error)
        except NoOffsetForPartitionError:
            # The topic of this name is another one now, in which no reader has a position.
            leaving, reason = Leaving.ENDED, _DELETED
        except ClientError as error:
            self.failure = error
            if is_final(error):
                leaving, reason = Leaving.ENDED, ("refused", str(error))
            else:
                logger.warning("The feed of %s ends, and its readers begin another: %s", self.topic, error)
        finally:
            self.is_over = True
            self.is_deleted = reason is _DELETED
            self._ready.set()
            if self._flush_timer is not None:
                self._flush_timer.cancel()
            for view in self._views.values():
                view.end(leaving, reason)
            self._views.clear()

    async def _begin(self, consumer: Consumer) -> bool:
        """Seek to some records before the end of each partition; return False if there is no such topic."""
        numbers = [each.topic_partition.partition for each in await consumer.partitions_for(self.topic)]
        if not numbers:
            return False
        partitions = [TopicPartition(self.topic, number) for number in sorted(numbers)]
        await consumer.assign(partitions)
        first, ends = await asyncio.gather(
            consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        )
        share = self._limits.records // max(len(partitions), 1)
        for partition in partitions:
            at = max(first[partition], ends[partition] - share)
            await consumer.seek(partition, at)
            self.recent.add_partition(partition.partition, at)
            self.end_position[partition.partition] = ends[partition]
        return True

    async def _sync(self, consumer: Consumer, changed: set[int] | None) -> None:
        """Take over positions that passed markers of transactions and compacted records."""
        for number in self.recent.next if changed is None else changed:
            # While a leader moves the position is not valid; the next record says it as well.
            with contextlib.suppress(RequestTimedOutError):
                position = await consumer.position(TopicPartition(self.topic, number), 0.0)
                self.recent.advance(number, position)
        for view in self._views.values():
            view.sync_position()

    async def _update_partitions(self, consumer: Consumer) -> bool:
        """Read partitions that were added; return False if the topic exists no more."""
        try:
            found = await consumer.partitions_for(self.topic)
        except RequestTimedOutError as error:
            logger.info("The partitions of %s could not be looked up: %s", self.topic, error)
            return True
        numbers = {each.topic_partition.partition for each in found}
        added = sorted(numbers - self.recent.next.keys())
        if added:
            await consumer.assign([TopicPartition(self.topic, number) for number in sorted(numbers)])
            for number in added:
                await consumer.seek(TopicPartition(self.topic, number), 0)
                self.recent.add_partition(number, 0)
            for view in self._views.values():
                view.sync_position()
        return bool(numbers)

    def _is_idle(self, now: float) -> bool:
        if self.readers:
            self._idle_since = None
            return False
        if self._idle_since is None:
            self._idle_since = now
        return now - self._idle_since > LINGER_SECONDS

    def _heartbeat(self) -> None:
        for view in self._views.values():
            view.heartbeat()
        self._pump()

    def _schedule_flush(self) -> None:
        if self._flush_timer is not None or not any(view.has_rendered for view in self._views.values()):
            return
        loop = asyncio.get_running_loop()
        wait = min(self.readers * FLUSH_SECONDS_PER_READER, FLUSH_SECONDS_MAX)
        self._flush_timer = loop.call_at(max(self._flushed_at + wait, loop.time()), self._flush)

    def _flush(self) -> None:
        self._flush_timer = None
        self._flushed_at = asyncio.get_running_loop().time()
        for view in self._views.values():
            view.flush()
        self._pump()

    def _pump(self) -> None:
        if not self._is_pumping:
            self._is_pumping = True
            self._pump_slice()

    def _pump_slice(self) -> None:
        # The readers that were woken write before the next ones are.
        more = False
        for view in self._views.values():
            more = view.pump() or more
        if more:
            asyncio.get_running_loop().call_soon(self._pump_slice)
        else:
            self._is_pumping = False


def is_final(error: ClientError) -> bool:
    """Return whether a reader would get the same error again."""
    if isinstance(error, BrokerResponseError):
        return error.code in _FINAL
    return isinstance(error, AuthenticationError)
