"""Keeps the streams of the cluster, and runs those whose partitions this broker leads: `Streams`.

It follows the znodes of streams and the leaders of their partitions, subscribes to the subjects of all
streams, and opens a stream when this broker begins to lead it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from kalda.broker.nats.jetstream.jetstream_parts import JetStreamParts
from kalda.broker.nats.jetstream.led_stream import LedStream
from kalda.broker.nats.jetstream.stream_consumer import REMOVED
from kalda.cluster.nats_streams import StoredStream
from kalda.common.backoff import jittered
from kalda.common.types import TopicPartition, uuid_to_text
from kalda.nats.exchange import Subscriber, Subscription
from kalda.nats.jetstream.api_errors import JetStreamError
from kalda.nats.jetstream.patterns import Pattern
from kalda.nats.jetstream.stream_config import StreamConfig, check_stream_name, patterns_of
from kalda.storage.errors import LOG_ERRORS
from kalda.zookeeper.errors import ZooKeeperError
from kalda.zookeeper.port import SessionState, WatchEvent

logger: Final = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 60.0
FAILURES_MAX: Final = 6
"""After so many failures the pause is the longest one."""

TICK_SECONDS: Final = 1.0

STREAMS_MAX: Final = 1_000
"""Streams of a cluster: each broker knows all of them."""


@dataclass(slots=True, eq=False)
class KnownStream:
    """A stream of the cluster."""

    name: str
    stored: StoredStream
    version: int
    config: StreamConfig
    patterns: Sequence[Pattern]
    """Of its subjects."""
    subscriptions: list[Subscription] = field(default_factory=list)
    led: LedStream | None = None
    failures: int = 0
    """How often it could not be opened, one time after the other."""
    retry_at: float = 0.0


class Streams:
    """All streams, by name."""

    def __init__(self, parts: JetStreamParts, subscriber: Subscriber) -> None:
        """`subscriber` gets the messages of all streams' subjects."""
        self._parts: Final = parts
        self._subscriber: Final = subscriber
        self.known: Final[dict[str, KnownStream]] = {}
        self._by_subscription: Final[dict[Subscription, KnownStream]] = {}
        self.subjects_version = -1
        """The version of the streams' subjects that `known` has, or an earlier one."""
        self.claiming: Final = asyncio.Lock()
        """Held while a stream gets subjects, so that requests to this broker do not fail each other."""
        self._is_stale: Final = asyncio.Event()
        self._read: Final = asyncio.Event()
        self.open_consumers: Callable[[LedStream], object] = lambda _: None
        """Called with a stream whose log was read."""
        self._is_closed = False

    async def run(self) -> None:
        """Follow the streams until cancelled."""
        parts = self._parts
        parts.store.zookeeper.add_state_listener(self._on_session)
        parts.cache.on_change(self._on_metadata)
        self._is_stale.set()
        while True:
            await self._is_stale.wait()
            self._is_stale.clear()
            try:
                await self.refresh()
            except ZooKeeperError as error:
                logger.warning("the streams of NATS cannot be read now: %s", error)
                self._is_stale.set()
                await asyncio.sleep(jittered(RETRY_SECONDS, parts.random))

    async def wait_read(self) -> None:
        """Wait until the streams were read once."""
        await self._read.wait()

    def close(self) -> None:
        """Close the streams that this broker leads."""
        self._is_closed = True
        for known in self.known.values():
            if known.led is not None:
                known.led.close()

    async def refresh(self) -> None:
        """Read all streams again.

        Raises:
            ZooKeeperError: they cannot be read.
        """
        store = self._parts.store
        # A stream that is created during the read may not be in it.
        before = list(self.known)
        subjects_version = await store.subjects_version()
        found = await store.read_all(self._on_watch)
        for name in before:
            if name not in found:
                self.forget(name)
        for name, (data, version) in found.items():
            stored = _decoded(name, data)
            if stored is not None:
                self.learn(name, stored, version)
            # A configuration of 64 subjects takes two milliseconds to check.
            await asyncio.sleep(0)
        self.subjects_version = subjects_version
        self._read.set()
        self._check_all()

    def learn(self, name: str, stored: StoredStream, version: int) -> KnownStream | None:
        """Note a stream that was created or changed; None if its configuration is of a later release."""
        known = self.known.get(name)
        if known is not None and known.stored.topic_id == stored.topic_id and known.version >= version:
            return known
        try:
            config = StreamConfig.parse(stored.config)
        except JetStreamError as error:
            logger.warning("stream %s is not served: %s", name, error)
            return None
        if known is not None and known.stored.topic_id != stored.topic_id:
            self.forget(name)
            known = None
        if known is None:
            known = self.known[name] = KnownStream(name, stored, version, config, patterns_of(config))
        else:
            known.stored, known.version, known.config = stored, version, config
            known.patterns = patterns_of(config)
            if known.led is not None:
                known.led.configure(config, stored, version)
        self._subscribe(known)
        self._check(known)
        return known

    def forget(self, name: str) -> None:
        """Note that a stream is deleted."""
        known = self.known.pop(name, None)
        if known is None:
            return
        for each in known.subscriptions:
            del self._by_subscription[each]
            self._parts.exchange.remove(each)
        if known.led is not None:
            known.led.close(REMOVED)

    async def look_up(self, name: str) -> KnownStream | None:
        """Return a stream as it is stored now, None without one.

        Raises:
            ZooKeeperError: it cannot be read.
        """
        try:
            check_stream_name(name)
        except JetStreamError:
            return None
        found = await self._parts.store.read(name)
        if found is None:
            self.forget(name)
            return None
        stored = _decoded(name, found[0])
        return None if stored is None else self.learn(name, stored, found[1])

    def of(self, subscription: Subscription) -> KnownStream | None:
        """Return the stream of a subscription to its subjects, None for another subscription."""
        return self._by_subscription.get(subscription)

    def led(self, name: str) -> LedStream | None:
        """Return a stream that this broker leads and serves now."""
        known = self.known.get(name)
        if known is None:
            return None
        self._check(known)
        return known.led

    def leader(self, name: str) -> int | None:
        """Return the other broker that leads a stream; None if there is none now, or this one does."""
        known = self.known.get(name)
        partition = self._parts.cache.partition(TopicPartition(name, 0))
        if known is None or partition is None or partition.leader == self._parts.broker_id:
            return None
        is_same = uuid_to_text(self._parts.cache.topic_id(name)) == known.stored.topic_id
        return partition.leader if is_same and partition.leader >= 0 else None

    def _subscribe(self, known: KnownStream) -> None:
        wanted = [each.encode() for each in known.config.subjects]
        kept = [each for each in known.subscriptions if each.subject in wanted]
        for each in known.subscriptions:
            if each not in kept:
                del self._by_subscription[each]
                self._parts.exchange.remove(each)
        have = {each.subject for each in kept}
        for subject in wanted:
            if subject not in have:
                subscription = Subscription(self._subscriber, subject, b"", b"")
                kept.append(subscription)
                self._by_subscription[subscription] = known
                self._parts.exchange.add(subscription)
        known.subscriptions = kept

    # Leaders.

    def _check_all(self) -> None:
        for known in list(self.known.values()):
            self._check(known)

    def _check(self, known: KnownStream) -> None:
        """Open a stream that this broker leads, and close one that it no longer leads."""
        if self._is_closed:
            return
        led = known.led
        if led is not None and not led.is_current:
            led.close()
            led = known.led = None
        parts = self._parts
        if led is not None or parts.loop.time() < known.retry_at:
            return
        partition = parts.replicas.partitions.get(TopicPartition(known.name, 0))
        if partition is None or not partition.is_leader or partition.is_gone:
            return
        if uuid_to_text(parts.cache.topic_id(known.name)) != known.stored.topic_id:
            return
        led = known.led = LedStream(parts, known.name, known.stored, known.version, partition)
        parts.run(f"open stream {known.name}", self._open(led))

    async def _open(self, led: LedStream) -> None:
        try:
            await led.open()
        except (JetStreamError, *LOG_ERRORS) as error:
            logger.warning("stream %s cannot be opened: %s", led.name, error)
            led.close()
            known = self.known.get(led.name)
            if known is not None:
                # Its whole log may have been read for nothing.
                pause = min(RETRY_SECONDS * 2**known.failures, RETRY_SECONDS_MAX)
                known.retry_at = self._parts.loop.time() + jittered(pause, self._parts.random)
                known.failures = min(known.failures + 1, FAILURES_MAX)
            return
        if not led.is_closed:
            known = self.known.get(led.name)
            if known is not None:
                known.failures = 0
            self.open_consumers(led)
            logger.info(
                "stream %s is led here: %d messages, %d subjects",
                led.name,
                led.index.count,
                len(led.index.subjects),
            )

    # Events.

    def _on_watch(self, _: WatchEvent) -> None:
        self._is_stale.set()

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._is_stale.set()

    def _on_metadata(self, topics: Collection[str]) -> None:
        for topic in topics:
            known = self.known.get(topic)
            if known is not None:
                self._parts.loop.call_soon(self._check, known)

    async def follow_time(self) -> None:
        """Make the streams that this broker leads remove old messages, until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            for known in list(self.known.values()):
                self._check(known)
                if known.led is not None:
                    known.led.tick()
                    await asyncio.sleep(0)


def _decoded(name: str, data: bytes) -> StoredStream | None:
    try:
        return StoredStream.decode(data)
    except ValueError as error:
        logger.warning("stream %s is not served: %s", name, error)
        return None
