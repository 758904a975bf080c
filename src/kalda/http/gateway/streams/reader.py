"""Runs one stream: where it begins, its own fetches until it is near the end, then its place in the feed.

The position is all of a reader's state. It moves only when the events up to it are queued for the connection,
so that wherever a reader leaves off, the position it takes on is that of the last event it will send.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from kalda.clients.admin.partitions import OffsetSpec
from kalda.clients.consumer.consumer_errors import OffsetsOutOfRangeError
from kalda.clients.errors import ClientError, RequestTimedOutError, UnknownTopicOrPartitionError
from kalda.common.backoff import ExponentialBackoff
from kalda.common.types import TopicPartition
from kalda.http.callers import Caller
from kalda.http.gateway.streams.event_form import OPENING_RETRY_MS, EventForm
from kalda.http.gateway.streams.feed import Consumer, Feed, is_final
from kalda.http.gateway.streams.feeds import Feeds
from kalda.http.gateway.streams.stream_request import Edge, StreamRequest
from kalda.http.gateway.streams.view import Leaving

Send = Callable[[bytes], Awaitable[None]]

CHUNK_BYTES: Final = 64 * 1024
"""Events of a reader's own fetches are written in pieces of about this size."""
WAITS_MAX: Final = 5
"""How often a reader waits for a feed that is behind its position."""
CHECK_SECONDS: Final = 3.0
TRIES_MAX: Final = 5
"""How often a position beyond the end is tried again: a leader that was just elected may know less."""


class StreamReader:
    """One stream of one caller.

    Args:
        feeds: The feeds and limits of the process.
        caller: Whose rights apply; checked by the one who made this.
        request: What is asked for.
        form: The form of the events.
        send: Writes bytes; it returns when the connection can take more.
        is_bytes: Whether `send` takes bytes that may be joined; else each chunk is a message.
    """

    def __init__(
        self,
        feeds: Feeds,
        caller: Caller,
        request: StreamRequest,
        form: EventForm,
        send: Send,
        *,
        is_bytes: bool,
    ) -> None:
        self._caller: Final = caller
        self.sending_since: float | None = None
        """Since when a write waits for the connection, by the loop's time."""
        self.checked_at = asyncio.get_running_loop().time()
        """When the caller's login was checked."""
        self._feeds: Final = feeds
        self._request: Final = request
        self._form: Final = form
        self._send_bytes: Final = send
        self._is_bytes: Final = is_bytes
        self._position: dict[int, int] = {}
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._is_position_checked = False
        """Whether the brokers have said that the position exists, or it is one that the feed passed."""
        self._waits = 0
        self._failures = 0
        self._backoff: Final = ExponentialBackoff(100, 5_000, random.uniform)
        self._end: tuple[str, str] | None = None

    @property
    def caller(self) -> Caller:
        """The caller whose permissions apply."""
        return self._caller

    async def run(self, start: Mapping[int, int] | None) -> None:
        """Send events until there are no more, or `stop` is called.

        `start` is the position to begin at; None is the end of the feed.
        """
        self._task = asyncio.current_task()
        try:
            async with self._feeds.reading(self):
                await self._run(start)
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            if self._task is not None:
                self._task.uncancel()
            if self.sending_since is not None:
                raise StalledError from None
        if self._end is not None:
            reason, message = self._end
            # Without an id: events behind the position that is known here may be on their way.
            await self._send_bytes(self._form.named("end", None, {"reason": reason, "message": message}))

    def stop(self, end: tuple[str, str] | None = None) -> None:
        """End the stream, with an event that gives the reason if there is one."""
        if self._task is not None and not self._stopping:
            self._stopping, self._end = True, end
            self._task.cancel()

    def cut_off(self) -> None:
        """End a stream whose client does not read."""
        self.stop()

    async def _run(self, start: Mapping[int, int] | None) -> None:
        has_begun = False
        while not self._feeds.is_closing and self._end is None:
            feed = self._feeds.get(
                self._caller, self._request.topic, is_read_committed=self._request.is_read_committed
            )
            await feed.wait_ready()
            if feed.is_over:
                await self._fail(feed.failure)
            elif not has_begun:
                has_begun = True
                self._position = dict(feed.tail(self._request.partitions) if start is None else start)
                opening = self._form.position(self._position)
                if self._is_bytes:
                    opening = b"retry: %d\n" % random.randint(*OPENING_RETRY_MS) + opening
                await self._send(opening)
            else:
                try:
                    await self._advance(feed)
                except ClientError as error:
                    await self._fail(error)

    async def _advance(self, feed: Feed) -> None:
        """Read with the feed if it has all records from the position on, else alone until it has."""
        if not feed.recent.covers(self._position):
            await self._catch_up(feed)
        elif feed.recent.is_behind(self._position) and not self._is_position_checked:
            # The feed may be a moment late. If not, the brokers have to say that there are such offsets.
            self._waits += 1
            if self._waits <= WAITS_MAX:
                await asyncio.sleep(random.uniform(0.1, 0.3))
            else:
                await self._catch_up(feed)
        elif not self._form.is_ready(feed.recent):
            await self._form.prepare(list(feed.recent))
        else:
            await self._follow(feed)

    async def _fail(self, error: ClientError | None) -> None:
        """End the stream if an error is final; else wait a little, with a sign of life for the reader."""
        if error is not None and is_final(error):
            is_missing = isinstance(error, UnknownTopicOrPartitionError)
            self._end = ("topic_deleted" if is_missing else "refused", str(error))
            return
        self._failures += 1
        await self._send(self._form.heartbeat)
        await asyncio.sleep(self._backoff.seconds(self._failures))

    async def _follow(self, feed: Feed) -> None:
        """Send what the feed has until the reader leaves it."""
        form, partitions = self._form, self._request.partitions
        member = feed.join(form, partitions, self._position)
        try:
            while True:
                chunks = member.take()
                if chunks:
                    if self._is_bytes:
                        await self._send(chunks[0] if len(chunks) == 1 else b"".join(chunks))
                    else:
                        for chunk in chunks:
                            await self._send(chunk)
                elif member.leaving is not None:
                    break
                else:
                    await member.wait_ready()
        finally:
            feed.leave(form, partitions, member)
        self._position = member.position
        self._failures = self._waits = 0
        if member.leaving is Leaving.ENDED:
            self._end = member.end or ("refused", "the stream has ended")
        elif member.leaving is Leaving.RESET:
            # All readers come at once; one of them begins the next feed.
            await asyncio.sleep(random.uniform(0.0, 0.2))

    async def _catch_up(self, feed: Feed) -> None:
        """Read with a consumer of the reader's own until the feed has everything from there on."""
        waiting = asyncio.create_task(self._keep_alive(), name="heartbeats of a waiting reader")
        try:
            async with self._feeds.own_consumer(
                self._caller, is_read_committed=self._request.is_read_committed
            ) as consumer:
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
                await self._fetch(consumer, feed)
        finally:
            waiting.cancel()

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._feeds.limits.feed.heartbeat_seconds)
            await self._send(self._form.heartbeat)

    async def _fetch(self, consumer: Consumer, feed: Feed) -> None:
        topic, position, form = self._request.topic, self._position, self._form
        loop = asyncio.get_running_loop()
        await consumer.assign([TopicPartition(topic, partition) for partition in position])
        for partition, offset in position.items():
            await consumer.seek(TopicPartition(topic, partition), offset)
        tries = 0
        sent_at = began_at = loop.time()
        while not (feed.is_over or self._may_join(feed)):
            try:
                records = await consumer.poll(1.0)
            except OffsetsOutOfRangeError as error:
                tries += 1
                await self._skip_gap(consumer, error, is_last_try=tries > TRIES_MAX)
                began_at = loop.time()
                continue
            # A fetch from an offset that does not exist would have failed by then.
            self._is_position_checked = loop.time() - began_at > CHECK_SECONDS
            await form.prepare(records)
            events: list[bytes] = []
            size = 0
            for record in records:
                position[record.partition] = record.offset + 1
                event = form.event(record, position)
                if event is not None:
                    events.append(event)
                    size += len(event)
                if size > CHUNK_BYTES:
                    await self._send(form.chunk(events))
                    sent_at = loop.time()
                    events, size = [], 0
            if events:
                await self._send(form.chunk(events))
                sent_at = loop.time()
            for partition in position:
                with contextlib.suppress(RequestTimedOutError):
                    at = await consumer.position(TopicPartition(topic, partition), 0.0)
                    position[partition] = max(at, position[partition])
            if loop.time() - sent_at > self._feeds.limits.feed.heartbeat_seconds:
                await self._send(form.position(position))
                sent_at = loop.time()

    def _may_join(self, feed: Feed) -> bool:
        is_known = self._is_position_checked or not feed.recent.is_behind(self._position)
        return is_known and feed.recent.covers(self._position)

    async def _skip_gap(
        self, consumer: Consumer, error: OffsetsOutOfRangeError, *, is_last_try: bool
    ) -> None:
        """Continue at the next existing record, and send an event with the offsets that are missing."""
        partitions = list(error.offsets)
        first = await consumer.beginning_offsets(partitions)
        ends = await consumer.end_offsets(partitions)
        for partition, offset in error.offsets.items():
            target = offset
            if offset < first[partition]:
                target = first[partition]
            elif offset > ends[partition] and is_last_try:
                target = ends[partition]
            elif offset > ends[partition]:
                await asyncio.sleep(random.uniform(0.1, 0.3))
            await consumer.seek(partition, target)
            if target != offset:
                self._position[partition.partition] = target
                gap = {"partition": partition.partition, "from": offset, "to": target}
                await self._send(self._form.named("gap", self._position, gap))

    async def _send(self, chunk: bytes) -> None:
        self.sending_since = asyncio.get_running_loop().time()
        await self._send_bytes(chunk)
        self.sending_since = None


class StalledError(Exception):
    """The client has not read for too long; the connection takes no more data."""


async def start_position(
    caller: Caller, request: StreamRequest, partitions: list[int]
) -> dict[int, int] | None:
    """Return the position where a stream begins; None is the end of the feed.

    Args:
        caller: Who reads.
        request: What is asked for.
        partitions: The partitions of the topic that the request reads.

    Raises:
        ClientError: the offsets cannot be looked up.
    """
    start = request.start
    if start.offsets is None and start.timestamp_ms is None and start.edge is Edge.END:
        return None
    known = {} if start.offsets is None else {p: o for p, o in start.offsets.items() if p in partitions}
    missing = [TopicPartition(request.topic, number) for number in partitions if number not in known]
    if not missing:
        return known
    admin = await caller.admin()
    isolation = "read_committed" if request.is_read_committed else "read_uncommitted"

    async def look_up(spec: OffsetSpec) -> dict[int, int]:
        found = await admin.list_offsets(dict.fromkeys(missing, spec), isolation_level=isolation)
        return {partition.partition: result.offset for partition, result in found.results.items()}

    if start.timestamp_ms is None:
        is_earliest = start.edge is Edge.BEGINNING
        return known | await look_up(OffsetSpec.earliest() if is_earliest else OffsetSpec.latest())
    # The ends first: a record that comes in between is found by its time, or lies behind the end.
    ends = await look_up(OffsetSpec.latest())
    found = await look_up(OffsetSpec.for_timestamp(start.timestamp_ms))
    return known | {number: offset if offset >= 0 else ends[number] for number, offset in found.items()}
