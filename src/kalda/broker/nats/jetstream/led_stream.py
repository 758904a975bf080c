"""Runs one stream whose partition this broker leads: adds messages, finds them, removes old ones.

The index follows the log's end. What clients of Kafka write is read from the log before the
next message is added. Messages are delivered and acknowledged once they are below the high watermark.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, TypeVar

from kalda.broker.nats.jetstream.jetstream_parts import JetStreamParts
from kalda.broker.nats.jetstream.stream_consumer import MOVED, StreamConsumer
from kalda.broker.nats.jetstream.stream_log import (
    READ_BYTES,
    Entry,
    MessageCache,
    OpenBatch,
    Summary,
    TransactionEnd,
    committed,
    decode,
    entries,
    read_page,
)
from kalda.broker.replicas.partition import ACKS_ALL, Partition
from kalda.cluster.nats_streams import StoredStream
from kalda.common.errors import ApiError
from kalda.common.turns import Turns
from kalda.nats.jetstream import fields
from kalda.nats.jetstream.api_errors import JetStreamError, store_failed, unavailable
from kalda.nats.jetstream.open_transactions import OpenTransactions
from kalda.nats.jetstream.publish_queue import BATCH_BYTES_MAX, PublishQueue
from kalda.nats.jetstream.publishing import (
    EXPECTED_SUBJECT_SEQUENCE,
    ROLLUP_ALL,
    Accepted,
    Duplicate,
    MessageIds,
    check_message,
)
from kalda.nats.jetstream.stored_message import RecordReader, StoredMessage, stored_size
from kalda.nats.jetstream.stream_config import StreamConfig
from kalda.nats.jetstream.stream_index import MESSAGES_MAX, SUBJECTS_MAX, StreamIndex, SubjectFilter
from kalda.nats.operations import Publish
from kalda.net.connection import TURN_S
from kalda.records.record import RecordBatchBuilder
from kalda.storage.errors import LOG_ERRORS

T = TypeVar("T")

logger: Final = logging.getLogger(__name__)

OPEN_SECONDS_MAX: Final = 4.0
"""How long a request waits for a stream that is being opened; clients give up after 5 s."""

ENTRIES_MAX: Final = 10_000
"""Records that are decoded at once."""

STEPS: Final = 2_000
"""Messages that are added, indexed, or removed in one turn, where no consumers look at them."""


_EXPECTED: Final = EXPECTED_SUBJECT_SEQUENCE.encode()


class LedStream:
    """One stream in one leader epoch of its partition."""

    def __init__(
        self, parts: JetStreamParts, name: str, stored: StoredStream, version: int, partition: Partition
    ) -> None:
        self.parts: Final = parts
        self.name: Final = name
        self.stored = stored
        self.version = version
        """Of the znode."""
        self.config = StreamConfig.parse(stored.config)
        self.partition: Final = partition
        self.leader_epoch: Final = partition.leader_epoch
        self.index = StreamIndex(stored.first_sequence, self.config.max_msgs_per_subject)
        self.ids: Final = MessageIds(parts.limits.ids)
        self.consumers: Final[dict[str, StreamConsumer]] = {}
        self.lock: Final = asyncio.Lock()
        """Held while the stream or its consumers are changed."""
        self.is_open = False
        self.is_closed = False
        self._reader = RecordReader(name, self.config.subjects)
        self._cache: Final = MessageCache(parts.limits.cached)
        self._queue: Final = PublishQueue(parts.limits.queued)
        self._flushes_soon = False
        self._looks_soon = False
        self._is_reading = False
        self._purges: Final[deque[tuple[SubjectFilter, int]]] = deque()
        """Filters and sequences: messages before the sequence are to be removed."""
        self._rollups: Final[dict[bytes, int]] = {}
        """The same of single subjects."""
        self._transactions: Final = OpenTransactions()
        self._start = 0
        """The sequence before which messages are being removed, because the log has them no more."""
        self._keys: Final[Sequence[Hashable]] = (partition, partition.log_end_key)
        self._ready: Final[asyncio.Future[None]] = parts.loop.create_future()

    # Life.

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads the partition in the same epoch."""
        partition = self.partition
        return (
            not self.is_closed
            and partition.is_leader
            and not partition.is_gone
            and partition.leader_epoch == self.leader_epoch
        )

    @property
    def replicated(self) -> int:
        """The sequence from which on messages are not replicated yet."""
        return min(self.partition.log.high_watermark + 1, self.index.next)

    @property
    def committed(self) -> int:
        """The sequence from which on messages are not replicated yet, or belong to an open transaction."""
        return min(self.replicated, self._first_open)

    @property
    def first_kept(self) -> int:
        """The first sequence that has a message, or may have one when its transaction ends."""
        return min(self.index.first, self._first_open)

    @property
    def _first_open(self) -> int:
        first = self._transactions.first
        return self.index.next if first is None else first

    async def open(self) -> None:
        """Read the log and begin to follow it.

        Raises:
            StorageError, RecordsError: the log cannot be read.
            JetStreamError: it has more messages than the index may have.
        """
        self.parts.fetches.watch(self, self._keys)
        self._is_reading = True
        try:
            await self._follow_log()
            await self._remove_stored()
        finally:
            self._is_reading = False
        self._remove_overdue()
        self.is_open = True
        if not self._ready.done():
            self._ready.set_result(None)
        self._flush_soon()

    async def wait_open(self) -> None:
        """Wait some seconds until the log was read."""
        if not self._ready.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(OPEN_SECONDS_MAX):
                    await asyncio.shield(self._ready)

    def close(self, reason: bytes = MOVED) -> None:
        """Stop, because another broker leads or the stream is deleted; `status` answers waiting requests."""
        if self.is_closed:
            return
        self.is_closed = True
        self.parts.fetches.unwatch(self, self._keys)
        for consumer in list(self.consumers.values()):
            consumer.close(reason)
        for reply in self._queue.clear():
            self.parts.later.add(partial(self._answer_error, reply, unavailable()))
        self.ids.close()
        self._cache.close()
        if not self._ready.done():
            self._ready.set_result(None)

    async def _follow_log(self) -> None:
        """Index the records up to the log's end."""
        log = self.partition.log
        start = max(self.index.next - 1, log.log_start_offset)
        self.index.skip_to(start + 1)
        while (offset := self.index.next - 1) < log.log_end_offset and not self.is_closed:
            if not self.index.has_room():
                text = f"stream {self.name} has more than {MESSAGES_MAX} sequences or {SUBJECTS_MAX} subjects"
                raise JetStreamError(503, 10023, text)
            page = read_page(log, offset, READ_BYTES)
            if page.next_offset == offset:
                break
            found = entries(page, self._reader, offset)
            while part := await self.parts.background.call(partial(_first_of, found)):
                await self._index_all(part)
            self.index.skip_to(page.next_offset + 1)

    async def _index_all(self, found: Sequence[Entry]) -> None:
        at = 0
        while at < len(found):
            now_ms = self.parts.clock.time_ms()
            self._forget_ids(now_ms)
            count = self._messages_at_once
            for each in islice(found, at, at + count):
                if isinstance(each, Summary):
                    self._index_one(each, now_ms)
                elif isinstance(each, OpenBatch):
                    self._transactions.add(each.producer_id, each.first, each.last)
                    self.index.skip_to(each.last + 1)
                else:
                    await self._end_transaction(each)
            at += count
            await asyncio.sleep(0)
            await self._finish_purges()

    async def _end_transaction(self, end: TransactionEnd) -> None:
        """Index the records of a transaction if it is committed; until then there are no such messages."""
        if end.is_committed:
            for first, last in self._transactions.ranges(end.producer_id):
                await self._index_committed(end.producer_id, first, last)
        self._transactions.end(end.producer_id)

    async def _index_committed(self, producer_id: int, first: int, last: int) -> None:
        log = self.partition.log
        offset = max(first - 1, log.log_start_offset)
        while offset < last and not self.is_closed:
            page = read_page(log, offset, READ_BYTES if last - offset > STEPS else 1)
            if page.next_offset == offset:
                return
            found = committed(page, self._reader, producer_id, offset, last)
            while part := await self.parts.background.call(partial(_first_of, found)):
                await self._index_unless_purged(part)
            offset = page.next_offset

    async def _index_unless_purged(self, found: Sequence[Summary]) -> None:
        """Index messages that no request has removed before their transaction ended."""
        at = 0
        while at < len(found):
            now_ms, stored = self.parts.clock.time_ms(), self.stored
            purges = [(SubjectFilter([pattern]), before) for pattern, before, _ in stored.purges]
            count = max(self._messages_at_once // (1 + len(purges)), 1)
            for each in islice(found, at, at + count):
                if each.sequence >= stored.first_sequence and not any(
                    each.sequence < before and filter_.includes(each.subject) for filter_, before in purges
                ):
                    self._index_one(each, now_ms)
            at += count
            await asyncio.sleep(0)

    async def _remove_stored(self) -> None:
        """Remove the messages that requests have removed."""
        stored = self.stored
        for pattern, before, keep in stored.purges:
            await self.remove_before(SubjectFilter([pattern]), before, keep)
        for first, last in stored.removed:
            at, end = max(first, self.index.first), min(last + 1, self.index.next)
            while at < end:
                following = min(at + self._messages_at_once, end)
                for sequence in range(at, following):
                    self.remove(sequence)
                at = following
                await asyncio.sleep(0)

    @property
    def _messages_at_once(self) -> int:
        """How many messages are indexed or removed in one turn: each consumer looks at each."""
        return max(2 * STEPS // (2 + len(self.consumers)), 1)

    def _index_one(self, found: Summary, now_ms: int) -> None:
        # What clients of Kafka date ahead would outlive all that comes after it.
        time_ms = min(max(found.time_ms, 0), now_ms)
        is_last = found.sequence >= self.index.next
        add = self.index.append if is_last else self.index.insert
        for old in list(add(found.sequence, found.subject, found.size, time_ms)):
            self.remove(old)
        if is_last:
            self.ids.last = found.message_id or b""
        if found.message_id is not None:
            self.ids.add(found.message_id, found.sequence, time_ms)
        if found.rollup is not None and self.config.allow_rollup_hdrs:
            if found.rollup == ROLLUP_ALL:
                self._purges.append((SubjectFilter(), found.sequence))
            else:
                self._rollups[found.subject] = max(found.sequence, self._rollups.get(found.subject, 0))
        for consumer in self.consumers.values():
            consumer.added(found.sequence, found.subject)

    # A watcher of the purgatory.

    def on_event(self, _key: Hashable, /) -> bool:
        """Note that the log has grown, or its high watermark has moved; it is looked at in another turn."""
        self._look_soon()
        return False

    def _look_soon(self) -> None:
        if not self._looks_soon and not self.is_closed:
            self._looks_soon = True
            self.parts.loop.call_soon(self._look)

    def _look(self) -> None:
        self._looks_soon = False
        if self.is_closed:
            return
        if not self.is_current:
            self.close()
            return
        self._acknowledge()
        if self._is_behind():
            self._catch_up()
        for consumer in self.consumers.values():
            consumer.wake_for_new()

    def _is_behind(self) -> bool:
        return self.index.next - 1 < self.partition.log.log_end_offset

    def _catch_up(self) -> None:
        """Index records that other producers have appended."""
        if not self._is_reading and self.is_open:
            self._is_reading = True
            self.parts.run("read stream", self._catch_up_now())

    async def _catch_up_now(self) -> None:
        try:
            await self._follow_log()
            self._remove_overdue()
        except (JetStreamError, *LOG_ERRORS) as error:
            logger.warning("stream %s is closed: its log cannot be read: %s", self.name, error)
            self.close()
        finally:
            self._is_reading = False
        self._flush_soon()
        self._look_soon()

    # Adding.

    def has_subject(self, subject: bytes) -> bool:
        """Return whether a subject is one of the stream."""
        return self._reader.subject(subject) == subject

    def add(self, sent: Publish) -> None:
        """Add a message, in this turn of the loop or a later one; the reply subject gets the outcome."""
        if self.is_closed or not self._queue.offer(sent):
            self._answer_error(sent.reply, unavailable())
            return
        self._flush_soon()

    def _flush_soon(self) -> None:
        if self._queue and not self._flushes_soon:
            self._flushes_soon = True
            self.parts.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushes_soon = False
        if self.is_closed or not self.is_open:
            return
        loop = self.parts.loop
        deadline = loop.time() + TURN_S
        while self._queue:
            if self._is_reading or self._purges or self._rollups:
                self._finish_purges_soon()
                return
            if self._is_behind():
                self._catch_up()
                return
            if self._waits_for_last(self._queue.first):
                self._is_reading = True
                self.parts.run("look for a last message", self._settle(self._queue.first.subject))
                return
            self._add_together(self._queue.take_batch(self._batch_max))
            if loop.time() >= deadline:
                self._flush_soon()
                return

    def _waits_for_last(self, sent: Publish) -> bool:
        """Return whether a message expects another one to be the last of its subject, which is not known."""
        return self.index.is_last_removed(sent.subject) and _EXPECTED in sent.headers

    async def _settle(self, subject: bytes) -> None:
        try:
            entry = self.index.subjects.get(subject)
            if entry is not None:
                await Turns.of_running_loop().result(self.index.settle_lasts([entry]))
        finally:
            self._is_reading = False
        self._flush_soon()
        self._look_soon()

    @property
    def first_count(self) -> int:
        """How many last messages of subjects the consumers have still to deliver."""
        return sum(each.first_count for each in self.consumers.values())

    @property
    def _batch_max(self) -> int:
        """How many messages may become one batch: what bounds single messages is checked one by one."""
        is_alone = self.config.discard == "new" or self.config.max_msg_size >= 0
        return 1 if is_alone else self._messages_at_once

    def _add_together(self, taken: Sequence[Publish]) -> None:
        now_ms = self.parts.clock.time_ms()
        self._forget_ids(now_ms)
        builder = RecordBatchBuilder()
        added: list[tuple[Publish, Accepted]] = []
        for sent in taken:
            subject, _, headers, payload = sent
            try:
                outcome = check_message(self.config, self.index, self.ids, subject, headers, payload)
            except JetStreamError as error:
                self._answer_error(sent.reply, error)
                continue
            if isinstance(outcome, Duplicate):
                self.parts.counts.duplicates += 1
                # Its first copy may wait for replicas, and so does this answer.
                self._wait_committed(sent, outcome.sequence, is_duplicate=True)
                continue
            builder.append_next(subject, payload, now_ms, outcome.headers)
            added.append((sent, outcome))
        if not added:
            return
        try:
            info = self.parts.replicas.append(self.partition, memoryview(builder.build()), ACKS_ALL)
        except (ApiError, *LOG_ERRORS) as error:
            for sent, _ in added:
                self._answer_error(sent.reply, store_failed(str(error) or error.code.name))
            if not self.is_current:
                self.close()
            return
        self.parts.counts.stored += len(added)
        for number, (sent, outcome) in enumerate(added):
            sequence = info.first_offset + 1 + number
            subject, _, headers, payload = sent
            size = stored_size(subject, headers, payload)
            found = Summary(sequence, subject, size, now_ms, outcome.message_id, outcome.rollup)
            self._index_one(found, now_ms)
            self._cache.add(StoredMessage(sequence, subject, headers, payload, now_ms))
            self._wait_committed(sent, sequence)
        self._remove_overdue()
        self._finish_purges_soon()
        self._look_soon()

    def _wait_committed(self, sent: Publish, sequence: int, *, is_duplicate: bool = False) -> None:
        if not sent.reply or self.config.no_ack:
            return
        if is_duplicate:
            text = f'{{"stream":"{self.name}", "seq":{sequence},"duplicate": true}}'
            if sequence <= self.partition.log.high_watermark:
                self.parts.send(sent.reply, text.encode())
            else:
                self._answer_error(sent.reply, unavailable())
            return
        self._queue.wait_replicated(sequence, sent.reply)

    def _acknowledge(self) -> None:
        """Answer those whose messages are replicated."""
        for sequence, reply in self._queue.replicated(self.partition.log.high_watermark):
            self.parts.send(reply, f'{{"stream":"{self.name}", "seq":{sequence}}}'.encode())

    def _answer_error(self, reply: bytes, error: JetStreamError) -> None:
        if reply and not self.config.no_ack:
            self.parts.send(reply, fields.dumps({"error": error.as_json(), "stream": self.name, "seq": 0}))

    # Removing.

    def remove(self, sequence: int) -> bool:
        """Remove a message from the index; return whether there was one."""
        number = self.index.number_at(sequence)
        if number < 0:
            return False
        subject = self.index.subject_of(number)
        assert subject is not None, f"message {sequence} has no subject"
        for consumer in self.consumers.values():
            consumer.removed(sequence, subject)
        return self.index.remove(sequence)

    async def remove_before(self, filter_: SubjectFilter, before: int, keep: int = 0) -> int:
        """Remove the messages before a sequence that a filter includes, but for the last ones; count them."""
        found: deque[int] = deque()
        count = 0
        at = self.index.first
        before = min(before, self.index.next)
        while at < before and not self.is_closed:
            looked_to = at + self._messages_at_once
            while at < looked_to:
                sequence, at = self.index.next_match(filter_, at, STEPS)
                if sequence is None:
                    break
                at = sequence + 1
                if sequence >= before:
                    break
                found.append(sequence)
                if len(found) > keep:
                    count += self.remove(found.popleft())
            await asyncio.sleep(0)
        return count

    def _finish_purges_soon(self) -> None:
        if (self._purges or self._rollups) and not self._is_reading:
            self._is_reading = True
            self.parts.run("roll up", self._finish_purges_now())

    async def _finish_purges_now(self) -> None:
        try:
            await self._finish_purges()
        finally:
            self._is_reading = False
        self._flush_soon()
        self._look_soon()

    async def _finish_purges(self) -> None:
        while self._purges:
            filter_, before = self._purges[0]
            await self.remove_before(filter_, before)
            self._purges.popleft()
        if self._rollups:
            count = 0
            for sequence in self.index.roll_up(self._rollups):
                if self.is_closed:
                    break
                if sequence is not None:
                    self.remove(sequence)
                    count += 1
                if sequence is None or not count % self._messages_at_once:
                    await asyncio.sleep(0)
            self._rollups.clear()

    def _remove_overdue(self) -> None:
        """Remove messages beyond the limits of the stream, for one turn."""
        config = self.config
        if config.max_msgs < 0 and config.max_bytes < 0 and not config.max_age:
            return
        oldest_ms = self.parts.clock.time_ms() - config.max_age // 1_000_000 if config.max_age else None
        overdue = self.index.overdue(
            messages_max=config.max_msgs, bytes_max=config.max_bytes, oldest_ms=oldest_ms
        )
        for count, sequence in enumerate(overdue, 1):
            self.remove(sequence)
            if count >= self._messages_at_once:
                self.parts.loop.call_soon(self._remove_more)
                return

    def _remove_more(self) -> None:
        if not self.is_closed:
            self._remove_overdue()

    def tick(self) -> None:
        """Remove messages that are too old, and delete segments that are not needed; called each second."""
        if not self.is_open or self.is_closed:
            return
        if not self.is_current:
            self.close()
            return
        self._remove_overdue()
        self._forget_ids(self.parts.clock.time_ms())
        self._follow_start()
        log = self.partition.log
        start = min(self.first_kept - 1, log.high_watermark)
        if start > log.log_start_offset and not self._is_reading:
            try:
                log.delete_records_before(start)
            except (ApiError, *LOG_ERRORS) as error:
                logger.warning("stream %s: its first records cannot be deleted: %s", self.name, error)

    def _forget_ids(self, now_ms: int) -> None:
        self.ids.forget(now_ms - self.config.duplicate_window // 1_000_000)

    def _follow_start(self) -> None:
        """Remove the messages that the log has no more: clients and settings of Kafka delete records."""
        start = self.partition.log.log_start_offset + 1
        if start > max(self.index.first, self._start):
            self._start = start
            self._purges.append((SubjectFilter(), start))
            self._finish_purges_soon()

    # Reading.

    def cached(self, sequence: int) -> StoredMessage | None:
        """Return a message if it is in memory, and the log has it still."""
        if sequence <= self.partition.log.log_start_offset:
            self._follow_start()
            return None
        return self._cache.get(sequence)

    async def message(self, sequence: int) -> StoredMessage | None:
        """Return a message; None if it is removed, or cannot be read.

        Raises:
            StorageError, RecordsError: the log cannot be read.
        """
        if not self.index.has(sequence) or sequence <= self.partition.log.log_start_offset:
            return None
        found = self._cache.get(sequence)
        if found is not None:
            return found
        page = read_page(self.partition.log, sequence - 1, BATCH_BYTES_MAX)
        for each in await decode(page, self._reader, sequence - 1, self.parts.background):
            if each.sequence == sequence:
                found = each
            self._cache.add(each)
        return found

    # Changing.

    def configure(self, config: StreamConfig, stored: StoredStream, version: int) -> None:
        """Take a new configuration, which is stored."""
        self.config, self.stored, self.version = config, stored, version
        self._reader = RecordReader(self.name, config.subjects)
        self._remove_overdue()

    def state(self) -> dict[str, object]:
        """Return the state of the stream as responses have it."""
        index = self.index
        first_time = fields.NO_TIME
        if index.count:
            first_time = fields.time_text(index.time_at(index.first) * 1_000_000)
        last_time = fields.NO_TIME
        if index.last_time_ms is not None:
            last_time = fields.time_text(index.last_time_ms * 1_000_000)
        is_new = index.next == 1
        found: dict[str, object] = {
            "messages": index.count,
            "bytes": index.bytes,
            "first_seq": 0 if is_new else index.first,
            "first_ts": first_time,
            "last_seq": index.next - 1,
            "last_ts": last_time,
        }
        if index.subjects:
            found["num_subjects"] = len(index.subjects)
        deleted = index.span - index.count
        if deleted:
            found["num_deleted"] = deleted
        found["consumer_count"] = len(self.consumers)
        return found


def _first_of(found: Iterator[T]) -> list[T]:
    """Return the next entries: a page of compressed batches may have very many."""
    return list(islice(found, ENTRIES_MAX))
