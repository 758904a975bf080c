"""Makes, restores and removes the consumers of streams that this broker leads."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from kalda.broker.nats.jetstream.jetstream_parts import JetStreamParts
from kalda.broker.nats.jetstream.led_consumer import LedConsumer, consumer_key, restored_ranges
from kalda.broker.nats.jetstream.led_stream import LedStream
from kalda.broker.nats.jetstream.stream_consumer import StreamConsumer
from kalda.cluster.nats_streams import StoredConsumer, StoredStream, StreamTooLargeError
from kalda.common.backoff import jittered
from kalda.common.errors import ApiError
from kalda.common.pending import Pending
from kalda.common.turns import Turns
from kalda.nats.jetstream import fields
from kalda.nats.jetstream.api_errors import JetStreamError, no_resources, unavailable
from kalda.nats.jetstream.consumer_config import (
    BY_SEQUENCE,
    BY_TIME,
    LAST,
    LAST_PER_SUBJECT,
    NEW,
    ConsumerConfig,
)
from kalda.nats.jetstream.consumer_state import ConsumerState
from kalda.nats.jetstream.stream_index import SubjectFilter
from kalda.zookeeper.errors import BadVersionError, ZooKeeperError

T = TypeVar("T")

logger: Final = logging.getLogger(__name__)

CONSUMERS_MAX: Final = 1_000
"""Consumers of one stream, whatever `max_consumers` says."""

DURABLE_SUBJECTS_MAX: Final = 10_000
"""Subjects whose last messages a durable consumer begins with: they are stored one by one."""

FIRST_MAX: Final = 4_000_000
"""Subjects whose last messages the consumers of a stream have still to deliver, 8 bytes each."""

FIRST_OF_ALL_MAX: Final = 16_000_000
"""The same of all streams of the broker."""

_NAME_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_COUNTED_AT_ONCE: Final = 20_000
_WAKE_SECONDS: Final = 0.005
_RETRY_SECONDS: Final = 1.0
SWEEP_SECONDS: Final = 5.0
"""Between two looks at all pull requests of all consumers for those whose clients are gone, some 100,000."""

_EPOCH_MAX: Final = 2**31 - 1
_YEAR_2020: Final = 1_577_836_800


class Consumers:
    """The consumers of all streams that this broker leads."""

    def __init__(self, parts: JetStreamParts, learn: Callable[[str, StoredStream, int], object]) -> None:
        """`learn` takes a stream as it was stored."""
        self._parts: Final = parts
        self._learn: Final = learn
        self._pushing: Final[dict[LedConsumer, None]] = {}
        self._all: Final[dict[LedConsumer, None]] = {}
        self._is_sweeping = False
        self._swept_at = -SWEEP_SECONDS
        self._wakes_soon = False

    def wake_pushing_soon(self) -> None:
        """Schedule one check for subscribers by all push consumers, however many subscriptions are new."""
        if self._pushing and not self._wakes_soon:
            self._wakes_soon = True
            self._parts.loop.call_later(_WAKE_SECONDS, self._wake_pushing)

    def _wake_pushing(self) -> None:
        self._wakes_soon = False
        for consumer in list(self._pushing):
            if consumer.is_closed:
                del self._pushing[consumer]
            else:
                consumer.wake()

    def closed(self, consumer: LedConsumer) -> None:
        """Note that a consumer has ended."""
        del self._all[consumer]
        self._pushing.pop(consumer, None)
        self._parts.limits.consumers.give_back(consumer.config.weight)

    def make_room(self) -> None:
        """Remove the pull requests of disconnected clients, because all consumers together have too many."""
        now = self._parts.loop.time()
        if not self._is_sweeping and now >= self._swept_at + SWEEP_SECONDS:
            self._is_sweeping, self._swept_at = True, now
            self._parts.run("remove pull requests of clients that are gone", self._sweep())

    async def _sweep(self) -> None:
        try:
            for consumer in list(self._all):
                if consumer.waiting_count:
                    await Turns.of_running_loop().result(consumer.end_abandoned())
        finally:
            self._is_sweeping = False

    # Making.

    async def restore(self, stream: LedStream) -> None:
        """Make the durable consumers of a stream that was opened; what fails is tried again."""
        while not stream.is_closed:
            async with stream.lock:
                missing = [name for name in stream.stored.consumers if name not in stream.consumers]
                failed = [name for name in missing if not await self._restore(stream, name)]
            if not failed:
                return
            await asyncio.sleep(jittered(_RETRY_SECONDS, self._parts.random))

    async def _restore(self, stream: LedStream, name: str) -> bool:
        """Make one durable consumer; return whether there is no more to do for it."""
        stored = stream.stored.consumers[name]
        try:
            config = ConsumerConfig.parse(stored.config, stream.config)
        except JetStreamError as error:
            logger.warning("consumer %s of stream %s is not served: %s", name, stream.name, error)
            return True
        try:
            found = await _result(self._parts.states().read(consumer_key(stream, name), stream.leader_epoch))
        except ApiError as error:
            logger.warning("consumer %s of stream %s is not served now: %s", name, stream.name, error)
            return False
        if _is_closed(stream):
            return True
        state = ConsumerState(config, stored.start, limit=self._parts.limits.unacknowledged)
        start, ranges = restored_ranges(found)
        state.restore(max(start, 1), ranges, self._parts.loop.time())
        state.forget_removed(stream.index)
        state.unread = await self._count(stream, state)
        if _is_closed(stream):
            state.close()
            return True
        self._begin(stream, name, config, state, stored.created_ns, stored.epoch)
        return True

    async def create(self, stream: LedStream, name: str, config: ConsumerConfig) -> StreamConsumer:
        """Make a consumer, or change one; return it.

        Raises:
            JetStreamError: it cannot be made or changed.
        """
        existing = stream.consumers.get(name)
        if existing is not None:
            return await self._update(stream, existing, config)
        if name in stream.stored.consumers:
            # It is not restored yet.
            raise unavailable()
        count, limit = len(stream.consumers), stream.config.max_consumers
        if count >= (min(limit, CONSUMERS_MAX) if limit > 0 else CONSUMERS_MAX) or not (
            self._has_room(stream, config.weight)
        ):
            raise JetStreamError(400, 10026, "maximum consumers limit reached")
        name = name or self._new_name(stream)
        start, first = await self._start(stream, config)
        if len(first) > self._first_max(stream, config):
            raise no_resources()
        state = ConsumerState(config, start, first, limit=self._parts.limits.unacknowledged)
        created_ns = self._parts.clock.time_ns()
        epoch = min(max(created_ns // 1_000_000_000 - _YEAR_2020, 0), _EPOCH_MAX)
        if config.durable_name:
            epoch = await self._store_new(stream, name, config, start, created_ns, epoch)
        state.unread = len(first) + await self._count(stream, state)
        if stream.is_closed:
            raise unavailable()
        return self._begin(stream, name, config, state, created_ns, epoch)

    def _has_room(self, stream: LedStream, weight: int) -> bool:
        own = sum(each.config.weight for each in stream.consumers.values())
        return self._parts.limits.consumers.has_room(own, weight)

    def _first_max(self, stream: LedStream, config: ConsumerConfig) -> int:
        if config.durable_name:
            return DURABLE_SUBJECTS_MAX
        of_all = sum(each.first_count for each in self._all)
        return min(FIRST_MAX - stream.first_count, FIRST_OF_ALL_MAX - of_all)

    def _new_name(self, stream: LedStream) -> str:
        while True:
            name = "".join(
                _NAME_ALPHABET[self._parts.random.randrange(len(_NAME_ALPHABET))] for _ in range(8)
            )
            if name not in stream.consumers:
                return name

    async def _start(self, stream: LedStream, config: ConsumerConfig) -> tuple[int, Sequence[int]]:
        """Return the first sequence to look at, and the sequences that are delivered before it."""
        index = stream.index
        end = stream.committed
        policy = config.deliver_policy
        if policy == NEW:
            return stream.replicated, []
        if policy == BY_SEQUENCE:
            return min(max(config.opt_start_seq, index.first), max(end, 1)), []
        if policy == BY_TIME:
            return index.at_time(-(-fields.read_time(config.opt_start_time) // 1_000_000)), []
        if policy == LAST:
            last = await Turns.of_running_loop().result(index.last_before(SubjectFilter(config.filters), end))
            return end if last is None else last, []
        if policy == LAST_PER_SUBJECT:
            lasts = index.lasts_before(SubjectFilter(config.filters), end)
            return end, await Turns.of_running_loop().result(lasts)
        return index.first, []

    async def _store_new(
        self, stream: LedStream, name: str, config: ConsumerConfig, start: int, created_ns: int, epoch: int
    ) -> int:
        """Store a new durable consumer; return the epoch of its state."""
        key = consumer_key(stream, name)
        states = self._parts.states()
        try:
            before = await _result(states.summary(key))
            if before is not None:
                # A consumer of that name was removed, and its state was not.
                epoch = max(epoch, before.state_epoch + 1)
            await _result(states.initialize(key, epoch, start - 1))
            await _result(states.read(key, stream.leader_epoch))
        except ApiError as error:
            logger.warning("consumer %s of stream %s cannot be stored: %s", name, stream.name, error)
            raise unavailable() from None
        stored = StoredConsumer(created_ns=created_ns, config=config.as_json(), start=start, epoch=epoch)
        await self.write(stream, replace(stream.stored, consumers={**stream.stored.consumers, name: stored}))
        return epoch

    async def write(
        self, stream: LedStream, stored: StoredStream, subjects_version: int | None = None
    ) -> None:
        """Store a stream, with other subjects if a version of the subjects is given.

        Raises:
            BadVersionError: a version is given, and it or that of the stream is another now.
            JetStreamError: it cannot be stored.
        """
        store = self._parts.store
        try:
            version = await store.write(stream.name, stored, stream.version, subjects_version)
        except StreamTooLargeError:
            raise no_resources() from None
        except ZooKeeperError as error:
            if subjects_version is not None and isinstance(error, BadVersionError):
                raise
            logger.warning("stream %s cannot be stored: %s", stream.name, error)
            raise unavailable() from None
        stream.stored, stream.version = stored, version
        self._learn(stream.name, stored, version)

    def _begin(
        self,
        stream: LedStream,
        name: str,
        config: ConsumerConfig,
        state: ConsumerState,
        created_ns: int,
        epoch: int,
    ) -> LedConsumer:
        consumer = LedConsumer(stream, name, config, state, created_ns, epoch, self)
        stream.consumers[name] = consumer
        self._all[consumer] = None
        self._parts.limits.consumers.take(config.weight)
        if config.is_push:
            self._pushing[consumer] = None
        consumer.open()
        return consumer

    async def _count(self, stream: LedStream, state: ConsumerState) -> int:
        """Count the messages from the next one on that a consumer gets."""
        index = stream.index
        if state.filter.is_all and state.next <= index.first:
            return index.count
        count, at, end = 0, state.next, index.next
        while at < end:
            looked_to = at + max(_COUNTED_AT_ONCE // max(len(state.filter.patterns), 1), 1)
            while at < looked_to:
                sequence, at = index.next_match(state.filter, at, _COUNTED_AT_ONCE)
                if sequence is None:
                    break
                at = sequence + 1
                count += 1
            if at < end:
                await asyncio.sleep(0)
                end = index.next
        return count

    async def _update(
        self, stream: LedStream, consumer: StreamConsumer, config: ConsumerConfig
    ) -> StreamConsumer:
        old = consumer.config
        if config == old:
            return consumer
        config.check_update(old)
        if config.is_push and config.deliver_subject != old.deliver_subject and consumer.is_bound:
            raise JetStreamError(400, 10013, "consumer name already in use")
        more = config.weight - old.weight
        if more > 0 and not self._has_room(stream, more):
            raise no_resources()
        if consumer.is_durable:
            stored = replace(stream.stored.consumers[consumer.name], config=config.as_json())
            consumers = {**stream.stored.consumers, consumer.name: stored}
            await self.write(stream, replace(stream.stored, consumers=consumers))
        # It may have ended meanwhile.
        if stream.consumers.get(consumer.name) is consumer:
            self._parts.limits.consumers.take(more)
            consumer.configure(config)
        return consumer

    # Removing.

    async def remove(self, stream: LedStream, consumer: StreamConsumer) -> None:
        """Remove a consumer and its stored state.

        Raises:
            JetStreamError: it cannot be removed.
        """
        if consumer.is_durable:
            consumers: Mapping[str, StoredConsumer] = {
                name: each for name, each in stream.stored.consumers.items() if name != consumer.name
            }
            await self.write(stream, replace(stream.stored, consumers=consumers))
        consumer.close()
        if consumer.is_durable:
            self._parts.states().delete(consumer_key(stream, consumer.name))

    def forget(self, stream: LedStream) -> None:
        """Delete the state of a deleted stream's consumers."""
        for name in stream.stored.consumers:
            self._parts.states().delete(consumer_key(stream, name))


def _is_closed(stream: LedStream) -> bool:
    """Return whether a stream was closed during a wait; checkers take an attribute for unchanged."""
    return stream.is_closed


async def _result(pending: Pending[T]) -> T:
    """Wait for a result."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(_: object) -> None:
        if not done.done():
            done.set_result(None)

    pending.add_done(wake)
    await done
    return pending.value
