"""Keeps which messages one consumer has delivered and which of them are acknowledged. No I/O, no clock.

Messages that wait for an acknowledgement are pending. One is delivered again after the wait, or after a
negative acknowledgement, up to a limit. What has to survive the broker is taken by `take_change` in the form
in which the share coordinator stores it; see `Change`.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import takewhile
from typing import Final, NamedTuple

from kalda.nats.jetstream.consumer_config import ACK_PENDING_MAX, ConsumerConfig
from kalda.nats.jetstream.shared_limits import SharedLimit
from kalda.nats.jetstream.stream_index import StreamIndex, SubjectFilter

SEARCHED_AT_ONCE: Final = 20_000
"""Sequences that one step looks at for the next message of a filter: some milliseconds."""

SETTLED_AT_ONCE: Final = 256
"""Messages whose waits end in one step, or that need not be delivered again."""

CHANGED_MAX: Final = 25_000
"""Messages with changes that are not stored yet; beyond, nothing is delivered until they are."""

DONE: Final = -1
"""Stands for the deliveries of a message that is not delivered any more."""

_NS: Final = 1_000_000_000


class Delivery(NamedTuple):
    """A message that is to be delivered now."""

    sequence: int
    deliveries: int
    """How often it is delivered with this time."""


class StoredRange(NamedTuple):
    """Sequences in one state, from the first to the last."""

    first: int
    last: int
    deliveries: int
    """How often they were delivered without an acknowledgement; `DONE` if they are done."""


class Change(NamedTuple):
    """Changes since the last `take_change`: messages before `start` and outside of all ranges are done."""

    start: int
    ranges: tuple[StoredRange, ...]


class Pending:
    """A message that waits for its acknowledgement."""

    __slots__ = ("deadline", "delivered_as", "deliveries", "is_queued")

    def __init__(self, delivered_as: int, deliveries: int, deadline: float) -> None:
        self.delivered_as: Final = delivered_as
        """The consumer's sequence of the first delivery."""
        self.deliveries = deliveries
        self.deadline = deadline
        self.is_queued = False
        """Whether it is to be delivered again now."""


class ConsumerState:
    """The deliveries of one consumer."""

    def __init__(
        self,
        config: ConsumerConfig,
        start: int,
        first_subjects: Iterable[int] = (),
        *,
        limit: SharedLimit,
    ) -> None:
        """`start` is the first sequence; `first_subjects` are earlier ones, which are delivered before it.

        `limit` is that of the messages of all consumers that wait for acknowledgements.
        """
        self.config = config
        self._limit: Final = limit
        self.filter: SubjectFilter = SubjectFilter(config.filters)
        self._first: array[int] = array("q", sorted(first_subjects, reverse=True))
        """Sequences before `next` that are still to be delivered, the first one last."""
        self._last_first = self._first[-1] - 1 if self._first else 0
        self.next = start
        """The stream's sequence from which on nothing was delivered."""
        self.next_delivery = 1
        """The consumer's sequence of the next delivery."""
        self.floor = 0
        """The stream's sequence up to which all is acknowledged."""
        self.floor_delivery = 0
        self._pending: Final[OrderedDict[int, Pending]] = OrderedDict()
        """In the order of the stream, in which they were delivered first."""
        self._again: Final[list[int]] = []
        """A heap of sequences to be delivered again; those of messages that are not queued are void."""
        self._again_count = 0
        self._deadlines: list[tuple[float, int]] = []
        """A heap; entries of other deadlines than the pending message's are void."""
        self.unread = 0
        """Messages that were not delivered yet, as the driver counts them."""
        self.redelivered_count = 0
        """Messages that wait for an acknowledgement and were delivered more than once."""
        self._changed: Final = set(self._first)
        self._is_changed = bool(self._first)

    # Looking.

    @property
    def pending_count(self) -> int:
        """How many messages wait for an acknowledgement."""
        return len(self._pending)

    @property
    def again_count(self) -> int:
        """The number of messages that are due for another delivery."""
        return self._again_count

    @property
    def delivered_sequence(self) -> int:
        """The last sequence of the stream that was delivered, or the one before what is delivered first."""
        return self._last_first if self._first else self.next - 1

    @property
    def first_count(self) -> int:
        """How many messages before `next` are still to be delivered."""
        return len(self._first)

    @property
    def is_full(self) -> bool:
        """Whether deliveries wait until changes are stored."""
        return len(self._changed) >= CHANGED_MAX

    def is_pending(self, sequence: int) -> bool:
        """Return whether a message waits for its acknowledgement."""
        return sequence in self._pending

    def next_due(self) -> float | None:
        """Return when the next wait for an acknowledgement ends."""
        while self._deadlines:
            deadline, sequence = self._deadlines[0]
            pending = self._pending.get(sequence)
            if pending is not None and not pending.is_queued and pending.deadline == deadline:
                return deadline
            heappop(self._deadlines)
        return None

    # Delivering.

    def find(self, index: StreamIndex, bound: int, now: float) -> tuple[Delivery | None, bool]:
        """Return the delivery that is due now, and whether another call is needed to continue the search.

        `bound` is the sequence from which on messages are not committed.
        """
        has_more = self.expire(now)
        if self.is_full:
            return None, False
        for _ in range(SETTLED_AT_ONCE):
            again = self._next_again()
            if again is None:
                break
            deliveries = self._pending[again].deliveries
            if index.has(again) and not 0 < self.config.max_deliver <= deliveries:
                return Delivery(again, deliveries + 1), False
            # It was removed, or delivered as often as is allowed.
            self._settle(again)
        else:
            return None, True
        if has_more:
            return None, True
        if self.config.has_acks and not self._may_wait():
            return None, False
        for _ in range(SETTLED_AT_ONCE):
            if not self._first:
                break
            if index.has(self._first[-1]):
                return Delivery(self._first[-1], 1), False
            self._changed.add(self._first.pop())
            self._is_changed = True
            self.unread = max(self.unread - 1, 0)
        else:
            return None, True
        if self.next >= bound:
            return None, False
        start = self.next
        count = min(SEARCHED_AT_ONCE, bound - max(start, index.first))
        sequence, searched = index.next_match(self.filter, start, count)
        if sequence is not None and sequence < bound:
            self._pass(sequence)
            return Delivery(sequence, 1), False
        self._pass(min(searched, bound))
        return None, self.next < bound

    def _next_again(self) -> int | None:
        """Return the first message that is to be delivered again."""
        while self._again:
            pending = self._pending.get(self._again[0])
            if pending is not None and pending.is_queued:
                return self._again[0]
            heappop(self._again)
        return None

    def _may_wait(self) -> bool:
        """Return whether one more message may wait for its acknowledgement."""
        count, wanted = len(self._pending), self.config.max_ack_pending
        if count >= (min(wanted, ACK_PENDING_MAX) if wanted > 0 else ACK_PENDING_MAX):
            return False
        # One may always: what others acknowledge does not wake this consumer.
        return not count or self._limit.has_room(count)

    def _pass(self, sequence: int) -> None:
        """Note that there is nothing to deliver before a sequence."""
        if sequence > self.next:
            self.next = sequence
            self._is_changed = True

    def sent(self, delivery: Delivery, now: float) -> None:
        """Note that a message was sent, as number `next_delivery`."""
        sequence = delivery.sequence
        number = self.next_delivery
        self.next_delivery += 1
        self._is_changed = True
        pending = self._pending.get(sequence)
        if pending is not None:
            self.redelivered_count += pending.deliveries == 1
            pending.deliveries = delivery.deliveries
            self._take_from_queue(pending)
        else:
            self.unread = max(self.unread - 1, 0)
            if self._first and self._first[-1] == sequence:
                self._last_first = self._first.pop()
            else:
                self.next = sequence + 1
            if not self.config.has_acks:
                self.floor, self.floor_delivery = sequence, number
                return
            pending = self._pending[sequence] = Pending(number, delivery.deliveries, 0.0)
            self._limit.take(1)
        self._changed.add(sequence)
        self._wait(sequence, pending, now + self._ack_wait(pending.deliveries))

    def _ack_wait(self, deliveries: int) -> float:
        backoff = self.config.backoff
        if backoff:
            return backoff[min(deliveries, len(backoff)) - 1] / _NS
        return self.config.ack_wait / _NS

    def _wait(self, sequence: int, pending: Pending, deadline: float) -> None:
        pending.deadline = deadline
        heappush(self._deadlines, (deadline, sequence))
        if len(self._deadlines) > 2 * len(self._pending) + 64:
            self._deadlines = [
                (each.deadline, key) for key, each in self._pending.items() if not each.is_queued
            ]
            heapify(self._deadlines)

    def expire(self, now: float) -> bool:
        """Make some messages whose wait has ended available again; return whether more may be due."""
        for _ in range(SETTLED_AT_ONCE):
            due = self.next_due()
            if due is None or due > now:
                return False
            _, sequence = heappop(self._deadlines)
            self._queue(sequence)
        return True

    def _queue(self, sequence: int) -> None:
        pending = self._pending[sequence]
        if not pending.is_queued:
            pending.is_queued = True
            self._again_count += 1
            heappush(self._again, sequence)

    def _take_from_queue(self, pending: Pending) -> None:
        if pending.is_queued:
            pending.is_queued = False
            self._again_count -= 1

    # Acknowledgements.

    def acknowledge(self, sequence: int) -> None:
        """Note that a message is done; with the policy `all`, each one before it as well."""
        pending = self._pending.get(sequence)
        if self.config.ack_policy == "all":
            if sequence > self.delivered_sequence or sequence <= self.floor:
                return
            if pending is not None:
                self.floor_delivery = max(self.floor_delivery, pending.delivered_as)
            self._settle_up_to(sequence)
            self.floor = sequence
            return
        if pending is None:
            return
        self._settle(sequence)
        if not self._pending:
            self.floor, self.floor_delivery = self.delivered_sequence, self.next_delivery - 1
        elif pending.delivered_as == self.floor_delivery + 1:
            self.floor, self.floor_delivery = sequence, pending.delivered_as
            first = next(iter(self._pending))
            if first > sequence:
                self.floor, self.floor_delivery = first - 1, self._pending[first].delivered_as - 1

    def release(self, sequence: int, delay: float, now: float) -> None:
        """Make a message available for another delivery, now or after a delay."""
        pending = self._pending.get(sequence)
        if pending is None or pending.is_queued:
            return
        if delay > 0:
            self._wait(sequence, pending, now + delay)
        else:
            self._queue(sequence)

    def extend(self, sequence: int, now: float) -> None:
        """Begin the wait for an acknowledgement again."""
        pending = self._pending.get(sequence)
        if pending is not None and not pending.is_queued:
            self._wait(sequence, pending, now + self.config.ack_wait / _NS)

    def _settle(self, sequence: int) -> None:
        pending = self._pending.pop(sequence)
        self._limit.give_back(1)
        self._take_from_queue(pending)
        self.redelivered_count -= pending.deliveries > 1
        self._changed.add(sequence)
        self._is_changed = True

    def _settle_up_to(self, sequence: int) -> None:
        """Settle all messages up to one; there may be 20,000, and this is one turn."""
        pending = self._pending
        settled = list(takewhile(sequence.__ge__, pending))
        if not settled:
            return
        if len(settled) == len(pending):
            pending.clear()
            # What the heap has of them is void.
            self._again_count = self.redelivered_count = 0
        else:
            for each in settled:
                found = pending.pop(each)
                self._take_from_queue(found)
                self.redelivered_count -= found.deliveries > 1
        self._limit.give_back(len(settled))
        self._changed.update(settled)
        self._is_changed = True

    def forget_removed(self, index: StreamIndex) -> None:
        """Settle messages that the stream does not have any more."""
        for sequence in [each for each in self._pending if not index.has(each)]:
            self.floor_delivery = max(self.floor_delivery, self._pending[sequence].delivered_as)
            self._settle(sequence)
        if not self._pending and self.next < index.first:
            self._pass(index.first)
        # As nats-server: what is gone counts as acknowledged.
        self.floor = max(self.floor, index.first - 1)

    def close(self) -> None:
        """Forget all messages: the consumer ends."""
        self._limit.give_back(len(self._pending))
        self._pending.clear()
        del self._first[:]

    # Storing.

    @property
    def has_change(self) -> bool:
        """Whether `take_change` would return something new."""
        return self._is_changed

    def take_change(self) -> Change:
        """Return the changes since the last call."""
        start = next(iter(self._pending), self.next)
        if self._first:
            start = min(start, self._first[-1])
        undelivered = set(self._first) if self._first and self._changed else ()
        ranges: list[StoredRange] = []
        for sequence in sorted(self._changed):
            if sequence < start:
                continue
            pending = self._pending.get(sequence)
            deliveries = DONE if pending is None else pending.deliveries
            if sequence in undelivered:
                deliveries = 0
            last = ranges[-1] if ranges else None
            if last is not None and last.last + 1 == sequence and last.deliveries == deliveries:
                ranges[-1] = last._replace(last=sequence)
            else:
                ranges.append(StoredRange(sequence, sequence, deliveries))
        end = self.next - 1
        is_listed = bool(ranges) and ranges[-1].last >= end
        if end >= start and not is_listed and end not in self._pending and end not in undelivered:
            # The range says how far the consumer has come.
            ranges.append(StoredRange(end, end, DONE))
        self._changed.clear()
        self._is_changed = False
        return Change(start, tuple(ranges))

    def forget_changes(self) -> None:
        """Note that nothing is stored of this consumer."""
        self._changed.clear()
        self._is_changed = False

    def give_back(self, change: Change) -> None:
        """Add a change that could not be stored to the next one."""
        for each in change.ranges:
            self._changed.update(range(each.first, each.last + 1))
        self._is_changed = True

    def restore(self, start: int, ranges: Iterable[StoredRange], now: float) -> None:
        """Restore stored state; messages that were pending are delivered again at once."""
        assert not self._pending, "a consumer that has delivered takes no stored state"
        self.next = start
        del self._first[:]
        self._changed.clear()
        for each in sorted(ranges):
            self.next = max(self.next, each.last + 1)
            if each.deliveries == DONE:
                continue
            if not each.deliveries:
                self._first.extend(range(each.first, each.last + 1))
                continue
            for sequence in range(each.first, each.last + 1):
                # The consumer's own sequences are not stored; the stream's are never below.
                self._pending[sequence] = Pending(sequence, each.deliveries, now)
                heappush(self._deadlines, (now, sequence))
        self._limit.take(len(self._pending))
        self._first.reverse()
        self.redelivered_count = sum(each.deliveries > 1 for each in self._pending.values())
        self.next_delivery = self.next
        self.floor = self.floor_delivery = next(iter(self._pending), self.next) - 1
        self._is_changed = False
