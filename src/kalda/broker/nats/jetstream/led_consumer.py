"""Runs one consumer of a stream that this broker leads: its core, requests, timers and stored state.

The state of a durable consumer is that of a share partition, whose group is named after the consumer: what
is delivered and not acknowledged is available with a count, what is done is acknowledged.
"""

import asyncio
import logging
from collections.abc import Hashable
from functools import partial
from typing import Final, Protocol

from kalda.broker.nats.jetstream.jetstream_parts import QUEUED_BYTES_MAX, JetStreamParts
from kalda.broker.nats.jetstream.led_stream import LedStream
from kalda.broker.nats.jetstream.stream_consumer import REMOVED, StreamConsumer
from kalda.common.backoff import jittered
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.common.steps import Steps, result_of
from kalda.common.types import uuid_from_text
from kalda.coordinator.share.delivery_state import (
    COUNT_UNKNOWN,
    DELIVERIES_MAX,
    PartitionState,
    RecordState,
    StateRange,
)
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.coordinator.share.share_shard import StateChange
from kalda.nats.jetstream import fields
from kalda.nats.jetstream.acks import ACK, NAK, NEXT, PROGRESS, TERM, Acknowledgement, ack_subject
from kalda.nats.jetstream.consumer_config import ConsumerConfig
from kalda.nats.jetstream.consumer_state import DONE, Change, ConsumerState, Delivery, StoredRange
from kalda.nats.jetstream.flow_control import FlowControl
from kalda.nats.jetstream.pull_requests import (
    NoRoomError,
    PullRefusedError,
    PullRequest,
    PullRequests,
    parse_pull,
    status,
)
from kalda.nats.jetstream.stored_message import StoredMessage
from kalda.nats.operations import Publish
from kalda.storage.errors import LOG_ERRORS

logger: Final = logging.getLogger(__name__)

DELIVERIES_PER_TURN: Final = 128
BYTES_PER_TURN: Final = 1024 * 1024
RETRY_SECONDS: Final = 1.0
"""The pause before a change that could not be stored is stored again."""

WAITERS_MAX: Final = 20_000
"""Acknowledgements of one consumer that wait to be stored and answered."""

LOOK_SECONDS: Final = 1.0
"""Between two looks at all waiting requests for those whose clients are gone."""

_LOOKS_PER_STEP: Final = 32
_WAITER_BYTES: Final = 60
_NS: Final = 1_000_000_000
_PAUSE_SECONDS: Final = 0.02
"""Between two looks at a client that has much to read."""

_FENCED: Final = frozenset((ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH))


class ConsumerOwner(Protocol):
    """The port by which a consumer reaches the collection of all consumers."""

    async def remove(self, stream: LedStream, consumer: StreamConsumer) -> None:
        """Remove a consumer that nobody uses."""
        ...

    def closed(self, consumer: "LedConsumer") -> None:
        """Note that a consumer has ended."""
        ...

    def make_room(self) -> None:
        """Remove the pull requests of disconnected clients, because all consumers together have too many."""
        ...


class LedConsumer:
    """One consumer."""

    def __init__(
        self,
        stream: LedStream,
        name: str,
        config: ConsumerConfig,
        state: ConsumerState,
        created_ns: int,
        epoch: int,
        owner: ConsumerOwner,
    ) -> None:
        """`owner` has the consumers of all streams."""
        self.stream: Final = stream
        self.name = name
        self.config = config
        self.state: Final = state
        self.created_ns: Final = created_ns
        self.requests: Final = PullRequests(stream.parts.limits.requests)
        self.flow: FlowControl | None = FlowControl() if config.flow_control else None
        self.is_closed = False
        self.is_removed = False
        self.last_delivered_ns = 0
        self.last_acknowledged_ns = 0
        self._parts: Final[JetStreamParts] = stream.parts
        self._loop: Final = stream.parts.loop
        self._key: Final = consumer_key(stream, name)
        self._epoch: Final = epoch
        self._owner: Final = owner
        self._newest = stream.index.next - 1
        """The last message that may be one of the consumer's."""
        self._is_pumping_soon = False
        self._is_reading = False
        self._is_blocked = False
        """Whether the next delivery waits for a client that has much to read."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._heartbeat_at: float | None = None
        now = self._loop.time()
        self.active_at = now
        """When a client last showed interest."""
        self._looked_at = now - LOOK_SECONDS
        """When it was looked for requests whose clients are gone."""
        self._is_storing = False
        self._stores_soon = False
        self._was_full = False
        """Whether deliveries wait for what is being stored."""
        self._stored_waiters: list[bytes] = []
        """Reply subjects of acknowledgements that are answered once they are stored."""
        self._waiters_bytes = 0
        """Of these, and of those whose acknowledgements are being stored."""
        self._deliver_subject = config.deliver_subject.encode()

    # Life.

    def open(self) -> None:
        """Begin to deliver."""
        self.wake()

    def close(self, reason: bytes = REMOVED) -> None:
        """Stop, and answer the requests that wait with a status: why."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.stream.consumers.pop(self.name, None)
        for request in self.requests.clear():
            self._parts.later.add(partial(self._parts.send, request.reply, b"", reason))
        self.state.close()
        self._parts.limits.answers.give_back(self._waiters_bytes)
        self._waiters_bytes = 0
        self._owner.closed(self)

    def configure(self, config: ConsumerConfig) -> None:
        """Take a new configuration, which is stored where it has to be."""
        self.config = self.state.config = config
        self._deliver_subject = config.deliver_subject.encode()
        self.wake()

    @property
    def is_durable(self) -> bool:
        """Whether the consumer outlives its broker."""
        return bool(self.config.durable_name)

    @property
    def is_bound(self) -> bool:
        """Whether a client gets what the consumer pushes."""
        return self.config.is_push and self._parts.exchange.has_interest(self._deliver_subject)

    @property
    def pending_count(self) -> int:
        """How many messages wait for acknowledgements."""
        return self.state.pending_count

    @property
    def unread(self) -> int:
        """How many messages are not delivered yet."""
        return self.state.unread

    @property
    def waiting_count(self) -> int:
        """How many pull requests wait."""
        return len(self.requests)

    def added(self, sequence: int, subject: bytes) -> None:
        """Count a message that the stream has now."""
        if sequence >= self.state.next and self.state.filter.includes(subject):
            self.state.unread += 1
            self._newest = sequence

    def removed(self, sequence: int, subject: bytes) -> None:
        """Count a message that the stream is about to lose."""
        if sequence >= self.state.next and self.state.filter.includes(subject):
            self.state.unread = max(self.state.unread - 1, 0)

    def stream_purged(self) -> None:
        """Drop pending acknowledgements of messages that the stream no longer has."""
        self.state.forget_removed(self.stream.index)
        self._store()
        self.wake()

    # Pull requests.

    def pull(self, body: bytes, reply: bytes, client: Hashable) -> None:
        """Take a request for messages; `client` has a share of the requests that may wait."""
        now = self._loop.time()
        self.active_at = now
        try:
            request = parse_pull(body, reply, self.config, now)
            request.client = client
            if self.requests.is_full(self.config):
                self._make_room(now)
            self.requests.add(request, self.config)
        except PullRefusedError as refusal:
            if isinstance(refusal, NoRoomError):
                self._owner.make_room()
            self._parts.send(reply, b"", refusal.headers)
            return
        self.wake()

    def _make_room(self, now: float) -> None:
        """Remove the requests of disconnected clients, as nats-server does before it refuses one.

        A client that goes on with too many requests does not have all of them looked at for each.
        """
        if now < self._looked_at + LOOK_SECONDS:
            return
        self._looked_at = now
        self._end_requests(now)
        result_of(self.end_abandoned())

    def end_abandoned(self) -> Steps[None]:
        """Remove the requests of disconnected clients, in steps."""
        for number, each in enumerate(self.requests.all(), 1):
            if self.requests.waits(each):
                self._has_interest(each)
            if not number % _LOOKS_PER_STEP:
                yield

    # Acknowledgements.

    def acknowledge(self, ack: Acknowledgement, reply: bytes, client: Hashable) -> None:
        """Take an acknowledgement; a reply subject gets an answer once it is stored."""
        state, now = self.state, self._loop.time()
        self.active_at = now
        if ack.kind in (ACK, TERM, NEXT):
            if state.is_pending(ack.sequence):
                self.last_acknowledged_ns = self._parts.clock.time_ns()
            state.acknowledge(ack.sequence)
        elif ack.kind == NAK:
            state.release(ack.sequence, ack.delay, now)
        elif ack.kind == PROGRESS:
            state.extend(ack.sequence, now)
        if ack.kind == NEXT:
            if reply:
                self.pull(ack.request, reply, client)
        elif reply:
            self._wait_stored(reply)
        self._store_soon()
        self.wake()

    # Delivering.

    @property
    def first_count(self) -> int:
        """How many last messages of subjects are still to be delivered before all others."""
        return self.state.first_count

    def wake_for_new(self) -> None:
        """Deliver new messages in a turn of their own, if there are any for the consumer."""
        if self._newest >= self.state.next:
            self.wake()

    def wake(self) -> None:
        """Deliver what there is, in a turn of its own."""
        if not self._is_pumping_soon and not self.is_closed:
            self._is_pumping_soon = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_pumping_soon = False
        if self.is_closed or self._is_reading or not self.stream.is_open:
            return
        if not self.stream.is_current:
            self.stream.close()
            return
        now = self._loop.time()
        if self.config.is_push:
            has_more = self._push(now)
        else:
            has_more = self._answer_requests(now)
        self._store_soon()
        if has_more:
            self.wake()
        self._arm()

    def _answer_requests(self, now: float) -> bool:
        """Send messages to the requests that wait; return whether there is more to do."""
        self._is_blocked = False
        self._end_requests(now)
        size_left = BYTES_PER_TURN
        blocked = 0
        for _ in range(DELIVERIES_PER_TURN):
            request = self.requests.first()
            if request is None or blocked >= len(self.requests):
                return False
            if not self._has_interest(request):
                continue
            if self._parts.exchange.queued_bytes_elsewhere(request.reply) > QUEUED_BYTES_MAX:
                # Others, whose clients are elsewhere, go on.
                self.requests.postpone(request)
                self._is_blocked = True
                blocked += 1
                continue
            delivery, is_unfinished = self.state.find(self.stream.index, self.stream.committed, now)
            if delivery is None:
                if is_unfinished:
                    return True
                self._end_no_wait()
                return False
            message = self._message(delivery)
            if message is None:
                return False
            size_left -= self._send_requested(request, delivery, message, now)
            blocked = 0
            if size_left < 0:
                return True
        return blocked < DELIVERIES_PER_TURN

    def _has_interest(self, request: PullRequest) -> bool:
        if self._parts.exchange.has_interest(request.reply):
            return True
        self.requests.remove(request)
        return False

    def _send_requested(
        self, request: PullRequest, delivery: Delivery, message: StoredMessage, now: float
    ) -> int:
        reply = self._reply(delivery, message)
        payload, headers = self._content(message)
        size = len(message.subject) + len(reply) + len(headers) + len(payload)
        if request.bytes_max and size > request.bytes_max:
            self.requests.remove(request)
            end = status(409, "Message Size Exceeds MaxBytes", *request.pending())
            self._parts.send(request.reply, b"", end)
            return 0
        sent = Publish(message.subject, reply, headers, payload)
        if not self._parts.exchange.answer(sent, request.reply):
            self.requests.remove(request)
            return 0
        self._note_sent(delivery, now)
        self.requests.sent(request, size, now)
        return size

    def _end_requests(self, now: float) -> None:
        for request in self.requests.expired(now):
            self._parts.send(request.reply, b"", request.timeout())
        for request in self.requests.due_heartbeats(now):
            self._parts.send(request.reply, b"", self._heartbeat())

    def _end_no_wait(self) -> None:
        """End the requests that do not wait for messages."""
        for request in self.requests.all_no_wait():
            self.requests.remove(request)
            headers = request.timeout() if request.sent else status(404, "No Messages")
            self._parts.send(request.reply, b"", headers)

    def _message(self, delivery: Delivery) -> StoredMessage | None:
        """Return the message of a delivery; None if it is being read first."""
        found = self.stream.cached(delivery.sequence)
        if found is None:
            self._is_reading = True
            self._parts.run("read a message", self._read(delivery.sequence))
        return found

    async def _read(self, sequence: int) -> None:
        is_there = False
        try:
            is_there = await self.stream.message(sequence) is not None
        except LOG_ERRORS as error:
            logger.warning("message %d of stream %s cannot be read: %s", sequence, self.stream.name, error)
            # The disk may be better later.
            await asyncio.sleep(jittered(RETRY_SECONDS, self._parts.random))
            is_there = True
        finally:
            self._is_reading = False
        if not is_there:
            # Its record is compacted away, or cannot be decoded.
            self.stream.remove(sequence)
        self.wake()

    def _reply(self, delivery: Delivery, message: StoredMessage) -> bytes:
        state = self.state
        is_new = not state.is_pending(delivery.sequence)
        return ack_subject(
            self.stream.name,
            self.name,
            delivery.deliveries,
            delivery.sequence,
            state.next_delivery,
            message.time_ms,
            max(state.unread - is_new, 0),
        )

    def _content(self, message: StoredMessage) -> tuple[bytes, bytes]:
        if not self.config.headers_only:
            return message.payload, message.headers
        size = b"Nats-Msg-Size: %d\r\n\r\n" % len(message.payload)
        return b"", (message.headers[:-2] if message.headers else b"NATS/1.0\r\n") + size

    def _note_sent(self, delivery: Delivery, now: float) -> None:
        self._parts.counts.delivered += 1
        if delivery.deliveries > 1:
            self._parts.counts.redelivered += 1
        self.state.sent(delivery, now)
        self.active_at = now
        self.last_delivered_ns = self._parts.clock.time_ns()
        if self.config.idle_heartbeat:
            self._heartbeat_at = now + self.config.idle_heartbeat / _NS

    def _heartbeat(self, *more: tuple[str, object]) -> bytes:
        state = self.state
        return status(
            100,
            "Idle Heartbeat",
            ("Nats-Last-Consumer", state.next_delivery - 1),
            ("Nats-Last-Stream", state.delivered_sequence),
            *more,
        )

    # Pushing.

    def _push(self, now: float) -> bool:
        """Send messages to the subject of the consumer; return whether there is more to do."""
        self._is_blocked = False
        if not self.is_bound:
            self._heartbeat_at = None
            return False
        self.active_at = now
        flow = self.flow
        size_left = BYTES_PER_TURN
        for _ in range(DELIVERIES_PER_TURN):
            if flow is not None and flow.is_full:
                break
            if self._parts.exchange.queued_bytes(self._deliver_subject) > QUEUED_BYTES_MAX:
                self._is_blocked = True
                break
            delivery, is_unfinished = self.state.find(self.stream.index, self.stream.committed, now)
            if delivery is None:
                self._send_heartbeat(now)
                return is_unfinished
            message = self._message(delivery)
            if message is None:
                return False
            reply = self._reply(delivery, message)
            payload, headers = self._content(message)
            sent = Publish(message.subject, reply, headers, payload)
            if not self._parts.exchange.answer(sent, self._deliver_subject):
                return False
            self._note_sent(delivery, now)
            size = len(message.subject) + len(reply) + len(headers) + len(payload)
            size_left -= size
            if flow is not None:
                flow.sent(size)
                if flow.asks:
                    self._ask_flow(flow)
            if size_left < 0:
                return True
        else:
            return True
        self._send_heartbeat(now)
        return False

    def _ask_flow(self, flow: FlowControl) -> None:
        subject = f"$JS.FC.{self.stream.name}.{self.name}.{self._parts.random.randrange(1 << 30)}".encode()
        flow.asked(subject)
        self._parts.send(self._deliver_subject, b"", status(100, "FlowControl Request"), subject)

    def flow_answered(self, subject: bytes) -> None:
        """Note that a client has read up to a request of flow control."""
        if self.flow is not None and self.flow.answered(subject):
            self.wake()

    def _send_heartbeat(self, now: float) -> None:
        interval = self.config.idle_heartbeat / _NS
        if not interval:
            return
        if self._heartbeat_at is None:
            self._heartbeat_at = now + interval
        elif self._heartbeat_at <= now:
            self._heartbeat_at = now + interval
            stalled = () if self.flow is None else self.flow.stalled()
            self._parts.send(self._deliver_subject, b"", self._heartbeat(*stalled))

    # Time.

    def _arm(self) -> None:
        """Set the timer for the earliest deadline."""
        times = [self.state.next_due(), self.requests.next_due(), self._heartbeat_at]
        now = self._loop.time()
        if self._is_blocked:
            times.append(now + _PAUSE_SECONDS)
        if self.config.inactive_threshold:
            times.append(self.active_at + self.config.inactive_threshold / _NS)
        due = min((each for each in times if each is not None), default=None)
        if due is None:
            return
        due = max(due, now + 0.001)
        if self._timer is not None:
            if now < self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._loop.call_at(due, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self.is_closed:
            return
        now = self._loop.time()
        threshold = self.config.inactive_threshold / _NS
        if threshold and now >= self.active_at + threshold:
            if self.is_bound or any(map(self._has_interest, self.requests.all())):
                self.active_at = now
            else:
                self.is_removed = True
                self._parts.run("remove consumer", self._owner.remove(self.stream, self))
                return
        self._pump_now()

    def _pump_now(self) -> None:
        if not self._is_pumping_soon:
            self._pump()

    # Storing.

    def _store_soon(self) -> None:
        """Store the changes of this turn together, at its end."""
        if not self._stores_soon:
            self._stores_soon = True
            self._loop.call_soon(self._store_planned)

    def _store_planned(self) -> None:
        self._stores_soon = False
        self._store()

    def _store(self) -> None:
        if self._is_storing or self.is_closed:
            return
        if not self.is_durable:
            self.state.forget_changes()
            self._answer_stored(self._take_waiters())
            return
        if not self.state.has_change:
            self._answer_stored(self._take_waiters())
            return
        self._is_storing = True
        self._was_full = self.state.is_full
        change, waiters = self.state.take_change(), self._take_waiters()
        stored = StateChange(
            self._epoch,
            self.stream.leader_epoch,
            change.start - 1,
            COUNT_UNKNOWN,
            tuple(map(_stored_range, change.ranges)),
        )
        self._parts.states().write(self._key, stored).add_done(partial(self._on_stored, change, waiters))

    def _wait_stored(self, reply: bytes) -> None:
        """Answer an acknowledgement when it is stored."""
        size, limit = _WAITER_BYTES + len(reply), self._parts.limits.answers
        if len(self._stored_waiters) >= WAITERS_MAX or not limit.has_room(self._waiters_bytes, size):
            # The client asks again, as it does when the broker is gone.
            return
        self._stored_waiters.append(reply)
        self._waiters_bytes += size
        limit.take(size)

    def _take_waiters(self) -> list[bytes]:
        waiters, self._stored_waiters = self._stored_waiters, []
        return waiters

    def _answer_stored(self, waiters: list[bytes]) -> None:
        if not self.is_closed:
            size = sum(_WAITER_BYTES + len(reply) for reply in waiters)
            self._waiters_bytes -= size
            self._parts.limits.answers.give_back(size)
        for reply in waiters:
            self._parts.send(reply, b"")

    def _on_stored(self, change: Change, waiters: list[bytes], done: Pending[None]) -> None:
        error = done.error
        if error is None:
            self._is_storing = False
            self._answer_stored(waiters)
            if self._was_full:
                self.wake()
            if self.state.has_change:
                self._loop.call_soon(self._store)
            return
        if self.is_closed:
            return
        self.state.give_back(change)
        self._stored_waiters = waiters + self._stored_waiters
        if isinstance(error, ApiError) and error.code in _FENCED:
            self._is_storing = False
            self.stream.close()
            return
        logger.warning("%s: a change of its state could not be stored: %s", self._key, error)
        self._loop.call_later(RETRY_SECONDS, self._store_again)

    def _store_again(self) -> None:
        self._is_storing = False
        self._store()

    # Answers.

    def info(self) -> dict[str, object]:
        """Return what responses say of the consumer."""
        state = self.state
        delivered: dict[str, object] = {
            "consumer_seq": state.next_delivery - 1,
            "stream_seq": state.delivered_sequence,
        }
        if self.last_delivered_ns:
            delivered["last_active"] = fields.time_text(self.last_delivered_ns)
        floor: dict[str, object] = {"consumer_seq": state.floor_delivery, "stream_seq": state.floor}
        if self.last_acknowledged_ns:
            floor["last_active"] = fields.time_text(self.last_acknowledged_ns)
        found: dict[str, object] = {
            "stream_name": self.stream.name,
            "name": self.name,
            "created": fields.time_text(self.created_ns),
            "config": self.config.as_json(),
            "delivered": delivered,
            "ack_floor": floor,
            "num_ack_pending": state.pending_count,
            "num_redelivered": state.redelivered_count,
            "num_waiting": len(self.requests),
            "num_pending": state.unread,
        }
        if self.is_bound:
            found["push_bound"] = True
        return found


def consumer_key(stream: LedStream, name: str) -> SharePartitionKey:
    """Return the key of a consumer's stored state."""
    return SharePartitionKey(f"$JS.{stream.name}.{name}", uuid_from_text(stream.stored.topic_id), 0)


def _stored_range(found: StoredRange) -> StateRange:
    first, last, deliveries = found
    if deliveries == DONE:
        return StateRange(first - 1, last - 1, RecordState.ACKNOWLEDGED, 1)
    return StateRange(first - 1, last - 1, RecordState.AVAILABLE, min(deliveries, DELIVERIES_MAX))


def restored_ranges(state: PartitionState) -> tuple[int, list[StoredRange]]:
    """Return the start and the ranges of a stored state."""
    ranges = [
        StoredRange(
            each.first + 1,
            each.last + 1,
            DONE if RecordState(each.state).is_terminal else each.deliveries,
        )
        for each in state.ranges
    ]
    return state.start_offset + 1, ranges
