"""Holds the feeds of a process, and the readers of all streams with their limits."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from kalda.http.callers import Caller
from kalda.http.errors import HttpError
from kalda.http.gateway.streams.feed import Consumer, Feed, FeedLimits

logger: Final = logging.getLogger(__name__)

SWEEP_SECONDS: Final = 5.0
LOGIN_CHECK_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The limits of a process's streams."""

    readers: int = 10_000
    own_consumers: int = 64
    """Readers that fetch by themselves at once; others wait for their turn."""
    stall_seconds: float = 60.0
    """How long a reader may take nothing before it is cut off."""
    feed: FeedLimits = field(default_factory=FeedLimits)


class OpenStream(Protocol):
    """A stream, as far as its limits need it."""

    sending_since: float | None
    """Since when a write waits for the connection, by the loop's time."""
    checked_at: float
    """When the caller's login was checked, by the loop's time."""

    @property
    def caller(self) -> Caller:
        """The caller whose permissions apply."""
        ...

    def stop(self, end: tuple[str, str] | None = None) -> None:
        """End the stream, with an event that gives the reason if there is one."""

    def cut_off(self) -> None:
        """End a stream whose client does not read."""


class Feeds:
    """The feeds by principal, topic and isolation level, and their readers."""

    def __init__(self, limits: StreamLimits, forget_topic: Callable[[str], None]) -> None:
        """`forget_topic` is called with the name of a topic that was deleted."""
        self._forget_topic: Final = forget_topic
        self.limits: Final = limits
        self.is_closing = False
        self._feeds: Final[dict[tuple[str, str, bool], Feed]] = {}
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._readers: Final[set[OpenStream]] = set()
        self._own_consumers: Final = asyncio.Semaphore(limits.own_consumers)
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def readers(self) -> int:
        """How many streams are open."""
        return len(self._readers)

    @property
    def feeds(self) -> int:
        """How many feeds read."""
        return len(self._feeds)

    def get(self, caller: Caller, topic: str, *, is_read_committed: bool) -> Feed:
        """Return the feed of a caller whose login was checked; begin one if there is none."""
        key = (caller.principal, topic, is_read_committed)
        feed = self._feeds.get(key)
        if feed is None or feed.is_over:

            def open_consumer() -> Consumer:
                return stream_consumer(caller, is_read_committed=is_read_committed)

            feed = self._feeds[key] = Feed(topic, open_consumer, self.limits.feed)
            task = asyncio.create_task(self._run(key, feed), name=f"feed of {topic}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return feed

    @asynccontextmanager
    async def reading(self, reader: OpenStream) -> AsyncIterator[None]:
        """Count a reader for the length of the block.

        Raises:
            HttpError: there are too many readers, or the process is shutting down (503).
        """
        self.check_room()
        self._readers.add(reader)
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="stalled readers")
        try:
            yield
        finally:
            self._readers.discard(reader)

    def check_room(self) -> None:
        """Check that the limits allow another reader.

        Raises:
            HttpError: there are too many readers, or the process is shutting down (503).
        """
        if self.is_closing:
            raise HttpError(503, "the server is shutting down", headers={"Retry-After": "1"})
        if len(self._readers) >= self.limits.readers:
            raise HttpError(
                503,
                f"{len(self._readers)} streams are open, which is the limit (`http.stream.readers.max`)",
                headers={"Retry-After": "5"},
            )

    @asynccontextmanager
    async def own_consumer(self, caller: Caller, *, is_read_committed: bool) -> AsyncIterator[Consumer]:
        """Run a consumer of one reader, after it waited for its turn."""
        async with (
            self._own_consumers,
            stream_consumer(caller, is_read_committed=is_read_committed) as consumer,
        ):
            yield consumer

    def stop(self) -> None:
        """End all streams; their readers come back to another process with their position."""
        self.is_closing = True
        for reader in list(self._readers):
            reader.stop()

    async def close(self) -> None:
        """End the feeds."""
        self.stop()
        tasks = [*self._tasks, *([] if self._sweeper is None else [self._sweeper])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: tuple[str, str, bool], feed: Feed) -> None:
        try:
            await feed.run()
        except Exception:
            logger.exception("the feed of %s failed", feed.topic)
        finally:
            if feed.is_deleted:
                self._forget_topic(feed.topic)
            if self._feeds.get(key) is feed:
                del self._feeds[key]

    async def _sweep(self) -> None:
        """Disconnect readers that do not read, or whose login is no longer accepted."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = loop.time()
            for reader in list(self._readers):
                if reader.sending_since is not None:
                    if now - reader.sending_since > self.limits.stall_seconds:
                        reader.cut_off()
                elif now - reader.checked_at > LOGIN_CHECK_SECONDS:
                    reader.checked_at = now
                    try:
                        await reader.caller.authenticate()
                    except HttpError as error:
                        if error.status == 401:
                            reader.stop(("refused", error.message))


def stream_consumer(caller: Caller, *, is_read_committed: bool) -> Consumer:
    """Return a consumer for a stream; it has no group and never resets a position by itself."""
    return caller.consumer(
        isolation_level="read_committed" if is_read_committed else "read_uncommitted",
        auto_offset_reset="none",
        enable_auto_commit="false",
        allow_auto_create_topics="false",
        exclude_internal_topics="false",
        metadata_max_age_ms="5000",
        max_poll_records="1000",
        max_partition_fetch_bytes="262144",
        fetch_max_bytes="2097152",
    )
