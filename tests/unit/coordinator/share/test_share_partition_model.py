"""A share partition against a plain reference: every acknowledgement sequence of five records.

The reference keeps one state for each record. Each step acknowledges some records in one request, lets the
locks end, or ends the member's session; after it the records that are left are acquired again. All sequences
of two requests of all types of acknowledgement for five records are tried, and at random many longer ones, in
groups without and with dead letters, back-off, records that name the time of their delivery, order of keys.
Some of the releases ask for delays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

import pytest

from kalda.common.errors import ApiError
from kalda.coordinator.share.acknowledgement import Acknowledgement
from kalda.coordinator.share.delivery_state import (
    AcknowledgeType,
    PartitionState,
    RecordState,
    StateRange,
    combined,
)
from kalda.coordinator.share.fetched_batch import FetchedBatch
from kalda.coordinator.share.partition_limits import PartitionLimits
from kalda.coordinator.share.share_partition import (
    AcquiredRange,
    SharePartition,
)
from kalda.protocol.messages.share_acknowledge import GROUPS_DELAY

COUNT = 5
LIMIT = 2
LOCK_MS = 100
LIMITS = PartitionLimits(delivery_count_limit=LIMIT, lock_ms=LOCK_MS)
DEAD_LETTERS = LIMITS._replace(has_dead_letters=True)
BACKOFF = DEAD_LETTERS._replace(delivery_count_limit=4, backoff_ms=30, backoff_max_ms=100)
TIMES = BACKOFF._replace(has_times=True)
TIMES_MS = {0: 20, 2: 50, 3: 50}
"""When some records are due in a group that obeys their headers."""
ORDER = TIMES._replace(has_key_order=True)
KEYS = {0: 7, 1: 7, 2: 8, 3: 7}
WAITS_MS = {1: 30, 2: 60, 3: 100}
KINDS = (AcknowledgeType.GAP, AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
DELAYS_MS = (GROUPS_DELAY, 0, 20, 70)
BATCHES = (FetchedBatch(0, 1), FetchedBatch(2, 4))


@dataclass
class Record:
    """One record of the reference."""

    limits: PartitionLimits
    state: RecordState = RecordState.AVAILABLE
    deliveries: int = 0
    is_rejected: bool = False
    due_ms: int = 0

    def acquire(self) -> None:
        self.state, self.deliveries = RecordState.ACQUIRED, self.deliveries + 1

    def acknowledge(self, kind: AcknowledgeType, now_ms: int, delay_ms: int) -> None:
        if kind is AcknowledgeType.ACCEPT:
            self.state = RecordState.ACKNOWLEDGED
        elif kind is AcknowledgeType.RELEASE:
            self.give_back(now_ms, delay_ms)
        elif kind is AcknowledgeType.REJECT:
            self.is_rejected = True
            self.give_up()
        else:
            self.state = RecordState.ARCHIVED

    def give_back(self, now_ms: int, delay_ms: int = GROUPS_DELAY) -> None:
        if self.deliveries < self.limits.delivery_count_limit:
            self.state = RecordState.AVAILABLE
            if delay_ms == GROUPS_DELAY:
                delay_ms = WAITS_MS[self.deliveries] if self.limits.backoff_ms else 0
            self.due_ms = now_ms + delay_ms if delay_ms else 0
        else:
            self.give_up()

    def give_up(self) -> None:
        has_dead_letters = self.limits.has_dead_letters
        self.state = RecordState.ARCHIVING if has_dead_letters else RecordState.ARCHIVED


def acquire_suspects(
    partition: SharePartition, member_id: str, batches: Sequence[FetchedBatch], now_ms: int
) -> list[AcquiredRange]:
    """Acquire what is left: suspect records come alone, so they take several fetches."""
    acquired: list[AcquiredRange] = []
    while (offset := partition.next_fetch_offset(now_ms)) is not None:
        more = partition.acquire(member_id, offset, batches, now_ms, records_max=100)
        if not more:
            break
        acquired += more
    return acquired


class Pair:
    """A share partition, what its share coordinator has stored, and the reference."""

    def __init__(self, limits: PartitionLimits = LIMITS) -> None:
        self.limits = limits
        self.partition = SharePartition(PartitionState(0, 0), limits)
        self.keys = KEYS if limits.has_key_order else {}
        self.times_ms = TIMES_MS if limits.has_times else {}
        self.records = [Record(limits, due_ms=self.times_ms.get(number, 0)) for number in range(COUNT)]
        self.stored: tuple[StateRange, ...] = ()
        self.stored_start = 0
        self.now_ms = 0

    def acquire(self) -> None:
        offset = self.partition.next_fetch_offset(self.now_ms)
        assert offset is not None
        late = [(number, due_ms) for number, due_ms in self.times_ms.items() if due_ms > self.now_ms]
        batches = [each._replace(late=late, keys=self.keys) for each in BATCHES]
        end_offset = self.partition.end_offset
        acquired = self.partition.acquire("a", offset, batches, self.now_ms, records_max=100)
        acquired += acquire_suspects(self.partition, "a", batches, self.now_ms)
        for record in self.records[end_offset:]:
            # A record that is due already has no wait that could end.
            record.due_ms = record.due_ms if record.due_ms > self.now_ms else 0
        expected = {}
        for number, record in enumerate(self.records):
            if number in self.next_of_keys() and record.due_ms <= self.now_ms:
                record.acquire()
                expected[number] = record.deliveries
        assert expected == {
            number: each.deliveries for each in acquired for number in range(each.first, each.last + 1)
        }
        self.check()

    def next_of_keys(self, *, after_failover: bool = False) -> set[int]:
        """Return the records that nothing but their time keeps from being acquired."""
        found, taken = set(), set()
        for number, record in enumerate(self.records):
            if record.state.is_terminal or record.state is RecordState.ARCHIVING:
                continue
            is_free = record.state is RecordState.AVAILABLE or after_failover
            key = self.keys.get(number)
            if is_free and key not in taken:
                found.add(number)
            if key is not None:
                taken.add(key)
        return found

    def acknowledge(
        self, kinds: dict[int, AcknowledgeType], delays_ms: Sequence[int] = (GROUPS_DELAY,)
    ) -> None:
        """Acknowledge some records, of which each released one has a delay, in turn."""
        delays = {
            number: delays_ms[number % len(delays_ms)] if kind is AcknowledgeType.RELEASE else GROUPS_DELAY
            for number, kind in kinds.items()
        }
        batches = [
            Acknowledgement(number, number, [kind], delays[number]) for number, kind in sorted(kinds.items())
        ]
        held = all(self.records[number].state is RecordState.ACQUIRED for number in kinds)
        passed = all(number < self.partition.start_offset for number in kinds)
        try:
            transition = self.partition.acknowledge("a", batches, self.now_ms)
        except ApiError:
            assert not held
            self.check()
            return
        for number, kind in kinds.items():
            if number >= self.partition.start_offset:
                assert held or passed or self.records[number].state is RecordState.ACQUIRED
                self.records[number].acknowledge(kind, self.now_ms, delays[number])
        self.store(transition)

    def wait(self, milliseconds: int) -> None:
        """Let less time pass than a lock takes: only waits end, exactly when the timer says so."""
        self.now_ms += milliseconds
        self.end_waits()
        deadline_ms = self.partition.next_deadline_ms
        assert deadline_ms is None or deadline_ms > self.now_ms

    def end_waits(self) -> None:
        entered = self.records[: self.partition.end_offset]
        ended = [e for e in entered if e.state is RecordState.AVAILABLE and 0 < e.due_ms <= self.now_ms]
        for each in ended:
            each.due_ms = 0
        assert bool(ended) == self.partition.end_waits(self.now_ms)

    def expire(self) -> None:
        self.now_ms += LOCK_MS
        self.end_waits()
        for record in self.records:
            if record.state is RecordState.ACQUIRED:
                record.give_back(self.now_ms)
        self.store(self.partition.expire(self.now_ms))

    def abandon(self) -> None:
        for record in self.records:
            if record.state is RecordState.ACQUIRED:
                record.give_back(self.now_ms)
        self.store(self.partition.abandon("a", self.now_ms))

    def close(self) -> None:
        for record in self.records:
            if record.state is RecordState.ACQUIRED:
                record.state, record.deliveries = RecordState.AVAILABLE, record.deliveries - 1
                record.due_ms = 0
        self.store(self.partition.release("a"))

    def bury(self, count: int) -> None:
        dead = self.partition.dead_ranges(count)
        expected = {
            number: (each.deliveries, each.is_rejected)
            for number, each in enumerate(self.records)
            if each.state is RecordState.ARCHIVING
        }
        found = {
            number: (each.deliveries, each.is_rejected)
            for each in dead
            for number in range(each.first, each.last + 1)
        }
        assert dict(list(expected.items())[:count]) == found
        for number in found:
            self.records[number].state = RecordState.ARCHIVED
        self.store(self.partition.bury(dead))

    def store(self, transition: object) -> None:
        if transition is not None:
            progress = self.partition.progress([transition])  # type: ignore[list-item]  # one of ours
            self.stored_start = max(self.stored_start, progress.start_offset)
            self.stored = combined(self.stored, progress.ranges, self.stored_start)
            self.partition.confirm(transition)  # type: ignore[arg-type]  # as above
            assert self.partition.start_offset == progress.start_offset
            assert self.partition.complete_count == progress.complete_count
        self.check()

    def check(self) -> None:
        partition = self.partition
        partition.check_invariants()
        found = {
            number: (each.state, each.deliveries)
            for each in partition.state_ranges()
            for number in range(each.first, each.last + 1)
        }
        for number, record in enumerate(self.records):
            if number < partition.start_offset:
                assert record.state.is_terminal, f"{number} is {record.state.name}, below the start"
            elif number < partition.end_offset:
                state, deliveries = found[number]
                assert record.state == state
                if not record.state.is_terminal:
                    assert record.deliveries == deliveries
        self.check_successor()

    def check_successor(self) -> None:
        """A next leader knows what is done, and delivers everything else again."""
        after = SharePartition(PartitionState(0, self.stored_start, ranges=self.stored), self.limits)
        after.check_invariants()
        done = {
            number
            for each in after.state_ranges()
            if each.state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
            for number in range(each.first, each.last + 1)
        }
        done |= set(range(after.start_offset))
        assert {number for number, record in enumerate(self.records) if record.state.is_terminal} == done
        dead = {number for each in after.dead_ranges(COUNT) for number in range(each.first, each.last + 1)}
        expected = {n for n, record in enumerate(self.records) if record.state is RecordState.ARCHIVING}
        assert expected == dead
        batches = [each._replace(keys=self.keys) for each in BATCHES]
        offset = after.next_fetch_offset()
        assert offset is not None
        acquired = after.acquire("b", offset, batches, self.now_ms, records_max=100)
        acquired += acquire_suspects(after, "b", batches, self.now_ms)
        assert self.next_of_keys(after_failover=True) == {
            number for each in acquired for number in range(each.first, each.last + 1)
        }
        after.check_invariants()


ALL = [dict(enumerate(kinds)) for kinds in product(KINDS, repeat=COUNT)]


@pytest.mark.parametrize("delays_ms", [(GROUPS_DELAY,), DELAYS_MS], ids=["group's", "own"])
@pytest.mark.parametrize("limits", [LIMITS, DEAD_LETTERS, BACKOFF, TIMES, ORDER])
def test_every_acknowledgement_of_five_records_and_one_after_it(
    limits: PartitionLimits, delays_ms: Sequence[int]
) -> None:
    """Of the second deliveries too: 1,024 first requests, each followed by one type for what came again."""
    for first in ALL:
        for kind in KINDS:
            pair = Pair(limits)
            pair.acquire()
            pair.acknowledge(first, delays_ms)
            pair.acquire()
            pair.wait(30)
            pair.acquire()
            left = [n for n, record in enumerate(pair.records) if record.state is RecordState.ACQUIRED]
            pair.acknowledge(dict.fromkeys(left, kind), delays_ms)
            pair.bury(COUNT)
            assert all(record.deliveries <= limits.delivery_count_limit for record in pair.records)


def test_every_order_in_which_five_records_are_accepted() -> None:
    """One request for each record: whatever the order, the start offset ends behind the last one."""
    for order in product(range(COUNT), repeat=COUNT):
        pair = Pair()
        pair.acquire()
        for number in order:
            pair.acknowledge({number: AcknowledgeType.ACCEPT})
        assert set(order) != set(range(COUNT)) or COUNT == pair.partition.start_offset


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("limits", [LIMITS, DEAD_LETTERS, BACKOFF, TIMES, ORDER])
def test_random_sequences(seed: int, limits: PartitionLimits) -> None:
    random = Random(seed)
    for _ in range(150):
        pair = Pair(limits)
        for _ in range(12):
            step = random.randrange(9)
            if step == 0:
                pair.acquire()
            elif step == 1:
                pair.expire()
            elif step == 2:
                pair.close()
            elif step == 5:
                pair.abandon()
            elif step == 4:
                # Locks begin at several times, so that one may end meanwhile.
                pair.wait(0 if any(e.state is RecordState.ACQUIRED for e in pair.records) else 10)
            elif step == 3:
                pair.bury(random.randint(1, COUNT))
            else:
                numbers = random.sample(range(COUNT), random.randint(1, COUNT))
                if pair.partition.end_offset:
                    kinds = {each: random.choice(KINDS) for each in numbers}
                    pair.acknowledge(kinds, random.sample(DELAYS_MS, len(DELAYS_MS)))
