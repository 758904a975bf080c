"""Holds fetched records until the user takes them, and turns them into lists of records.

The event loop adds what was fetched; the thread that calls `poll` takes it, without a round trip to the loop.

A partition's fetches are returned in the order of their offsets, each one from the position on, and never
after a seek, a reset or a rebalance (`generation`).
"""

import contextlib
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from kalda.clients.consumer.completed_fetch import CompletedFetch, DecodeBound
from kalda.clients.consumer.record_decoder import Deserializers
from kalda.clients.consumer.subscription_state import SubscriptionState
from kalda.clients.errors import ClientError, IllegalStateError
from kalda.clients.fetch_position import NO_LEADER_EPOCH, FetchPosition
from kalda.clients.metrics.consumer_metrics import FetchMetrics
from kalda.clients.values import ConsumerRecord
from kalda.common.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one partition that iteration hands out one by one."""

    fetch: CompletedFetch
    start: FetchPosition
    """The position before the records."""
    records: list[ConsumerRecord[Any, Any]]


class FetchBuffer:
    """Fetched records that the user has not taken yet. The fetcher's limits bound its size."""

    def __init__(
        self,
        subscription: SubscriptionState,
        metrics: FetchMetrics | None = None,
        *,
        read_committed: bool = False,
    ) -> None:
        self._subscription: Final = subscription
        self._metrics: Final = metrics
        self._read_committed: Final = read_committed
        # Each change is one call of the deque's, so that it needs no lock. The loop would wait for one which
        # the user's thread holds while a signal handler of that thread waits for the loop.
        self._fetches: Final[deque[CompletedFetch]] = deque()
        self.is_cut_short = False
        """Whether the last call took less than there is, because of `DecodeBound`; user's thread only."""

    def add(self, fetch: CompletedFetch) -> None:
        """Add the records that a response returned for one partition."""
        self._fetches.append(fetch)

    def unread_bytes(self) -> dict[TopicPartition, int]:
        """Return the bytes not opened yet, of each partition that has fetched records."""
        unread: dict[TopicPartition, int] = {}
        for fetch in self._fetches.copy():
            unread[fetch.partition] = unread.get(fetch.partition, 0) + fetch.unread_bytes
        return unread

    def drop_stale(self) -> None:
        """Drop records that a seek, a reset or a rebalance has made stale."""
        is_current = self._subscription.is_current
        for fetch in self._fetches.copy():
            if not is_current(fetch.partition, fetch.generation):
                self.remove(fetch)
        if self._metrics is not None:
            self._metrics.assigned(set(self._subscription.assigned()))

    def clear(self) -> None:
        """Drop everything."""
        self._fetches.clear()

    def take(self, count: int, deserializers: Deserializers) -> list[ConsumerRecord[Any, Any]]:
        """Return up to `count` records and move the positions behind them.

        Records of paused partitions stay. Fewer records than there are, even none, are returned at the end
        of `DecodeBound`.

        Raises:
            FetchCorruptionError, RecordDeserializationError: the first record cannot be read.
        """
        taken: list[ConsumerRecord[Any, Any]] = []
        bound = DecodeBound()
        self.is_cut_short = False
        try:
            while len(taken) < count and (fetch := self.next_fetch()) is not None:
                records = self._take_from(fetch, count - len(taken), deserializers, bound)
                if records:
                    taken = taken + records if taken else records
                if bound.is_reached:
                    self.is_cut_short = True
                    break
        except ClientError:
            # What was taken is good; the next call begins with the record that cannot be read.
            if not taken:
                raise
        return taken

    def take_chunk(self, count: int, deserializers: Deserializers) -> Chunk | None:
        """Return up to `count` records of one partition; None if there are none.

        Raises:
            FetchCorruptionError, RecordDeserializationError: the first record cannot be read.
        """
        bound = DecodeBound()
        self.is_cut_short = False
        while (fetch := self.next_fetch()) is not None:
            start = self._subscription.next_position(fetch.partition, fetch.generation)
            if (records := self._take_from(fetch, count, deserializers, bound)) and start is not None:
                return Chunk(fetch, start, records)
            if bound.is_reached:
                self.is_cut_short = True
                break
        return None

    def put_back(self, chunk: Chunk, handed_out: int) -> None:
        """Take back all but the first records of the last `take_chunk`; the position moves before them."""
        fetch, position = chunk.fetch, chunk.start
        if handed_out:
            last = chunk.records[handed_out - 1]
            epoch = NO_LEADER_EPOCH if last.leader_epoch is None else last.leader_epoch
            position = FetchPosition(last.offset + 1, epoch, position.leader)
        if self._subscription.rewind(fetch.partition, fetch.generation, position):
            fetch.put_back(chunk.records[handed_out:], position.offset)
            fetch.consumed_count -= len(chunk.records) - handed_out
            if fetch not in self._fetches:
                self._fetches.appendleft(fetch)

    def next_fetch(self) -> CompletedFetch | None:
        """Return the first fetch with records to return now, and leave it in the buffer."""
        fetches, subscription = self._fetches, self._subscription
        while fetches:
            try:
                first = fetches[0]
            except IndexError:
                break  # the loop has dropped it
            if not subscription.is_current(first.partition, first.generation):
                self.remove(first)
            elif subscription.is_fetchable(first.partition):
                return first
            else:
                # Those of paused partitions stay where they are.
                return next((each for each in fetches.copy() if self._is_returnable(each)), None)
        return None

    def advance(self, fetch: CompletedFetch, position: FetchPosition) -> bool:
        """Move the position to where `fetch` has been read to; drop the fetch when it has no more.

        Returns False if its records must not be returned (any more).
        """
        partition, generation = fetch.partition, fetch.generation
        moved = FetchPosition(fetch.next_offset, fetch.last_epoch, position.leader)
        if moved.offset != position.offset and not self._subscription.advance(partition, generation, moved):
            self.drop(fetch)
            return False
        self.count_lag(partition)
        if fetch.is_consumed:
            self.remove(fetch)
        return True

    def count_lag(self, partition: TopicPartition) -> None:
        """Record how far the position is from both ends of the log, after it has moved."""
        metrics = self._metrics
        if metrics is None:
            return
        try:
            lag = self._subscription.lag(partition, read_committed=self._read_committed)
            lead = self._subscription.lead(partition)
        except IllegalStateError:
            return  # the partition was revoked meanwhile
        metrics.position_moved(partition, lag=lag, lead=lead)

    def _take_from(
        self, fetch: CompletedFetch, count: int, deserializers: Deserializers, bound: DecodeBound
    ) -> list[ConsumerRecord[Any, Any]]:
        position = self._subscription.next_position(fetch.partition, fetch.generation)
        if position is None or position.offset != fetch.next_offset:
            self.drop(fetch)
            return []
        records = fetch.take(count, deserializers, bound)
        fetch.consumed_count += len(records)
        return records if self.advance(fetch, position) else []

    def _is_returnable(self, fetch: CompletedFetch) -> bool:
        subscription = self._subscription
        return subscription.is_current(fetch.partition, fetch.generation) and subscription.is_fetchable(
            fetch.partition
        )

    def drop(self, fetch: CompletedFetch) -> None:
        """Drop a fetch with unread records, and all later fetches of its partition."""
        self.remove(fetch)
        self._subscription.refetch(fetch.partition, fetch.generation)

    def remove(self, fetch: CompletedFetch) -> None:
        """Drop a fetch that has been read."""
        fetch.count_consumed()
        # The other thread may have dropped it meanwhile.
        with contextlib.suppress(ValueError):
            self._fetches.remove(fetch)
