"""A hierarchical timing wheel: time-outs that cost O(1) to add and cancel, driven by a clock, with no thread.

A wheel has `wheel_size` buckets of `tick_ms` each, so it spans ``tick_ms * wheel_size``. A task that is due
later goes to the overflow wheel, whose tick is the whole span of the one below; it is made when first needed.
As time passes, a bucket of an overflow wheel begins, and its tasks are put in again: they land in a lower
wheel, where ticks are finer, until the lowest one lets them expire.

Example, with ticks of 1 ms and 3 buckets, at time 0:

    level 0   tick 1 ms    [0] [1] [2]                 spans 0..2
    level 1   tick 3 ms    [0..2] [3..5] [6..8]        spans 0..8
    level 2   tick 9 ms    [0..8] [9..17] [18..26]     spans 0..26

Tasks due at 2, 5 and 13 go to level 0 bucket [2], level 1 bucket [3..5], level 2 bucket [9..17]. At 2 the
first expires. At 3 bucket [3..5] begins; its task is put in again, and level 0, now [3] [4] [5], takes it to
[5], where it expires at 5. At 9 bucket [9..17] begins; level 0 spans 9..11 and level 1 9..17, so the third
task goes to level 1 bucket [12..14], at 12 to level 0 bucket [13], and expires at 13.

A task never expires before its delay has passed, and expires within one tick after it, provided that
`advance` is called at `next_deadline`. Every bucket with an entry is in the queue of begins.
"""

import heapq
from typing import Final, Generic, TypeVar

from kalda.common import invariants
from kalda.runtime.clock import Clock

T = TypeVar("T")

TICK_MS: Final = 1
WHEEL_SIZE: Final = 20
"""Kafka's purgatories use these too: 20 ms at the lowest level, 8 s at the third, 19 days at the seventh."""

DELAY_MS_MAX: Final = 2**53
"""A longer delay is taken for this one: time in milliseconds stays exact in a float."""


class TimerEntry(Generic[T]):
    """A task in a wheel; the handle to cancel it with."""

    __slots__ = ("_bucket", "deadline_ms", "task")

    def __init__(self, task: T, deadline_ms: int) -> None:
        self.task: Final = task
        self.deadline_ms: Final = deadline_ms
        """On the wheel's own time line, which begins at 0."""
        # The bucket that holds the entry; None once it has expired or was cancelled.
        self._bucket: _Bucket[T] | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it has neither expired nor been cancelled."""
        return self._bucket is not None

    def cancel(self) -> bool:
        """Take the task out; false if it has expired or was cancelled before."""
        bucket = self._bucket
        if bucket is None:
            return False
        self._bucket = None
        del bucket.entries[self]
        bucket.wheel.waiting_count -= 1
        assert bucket.wheel.waiting_count >= 0, f"{bucket.wheel.waiting_count} tasks wait"
        return True


class _Bucket(Generic[T]):
    """The tasks of one tick of one level, in the order they came."""

    __slots__ = ("begin_ms", "entries", "wheel")

    def __init__(self, wheel: "TimingWheel[T]") -> None:
        self.wheel: Final = wheel
        self.begin_ms = -1
        """The tick that the bucket stands for at present; buckets are reused turn by turn."""
        self.entries: dict[TimerEntry[T], None] = {}


class _Level(Generic[T]):
    """One wheel of the hierarchy."""

    __slots__ = ("buckets", "now_ms", "overflow", "span_ms", "tick_ms")

    def __init__(self, wheel: "TimingWheel[T]", tick_ms: int, wheel_size: int, now_ms: int) -> None:
        self.tick_ms: Final = tick_ms
        self.span_ms: Final = tick_ms * wheel_size
        self.now_ms = now_ms - now_ms % tick_ms
        """The tick that has begun, a multiple of `tick_ms`; buckets stand for the span from there."""
        self.buckets: Final = [_Bucket[T](wheel) for _ in range(wheel_size)]
        self.overflow: _Level[T] | None = None


class TimingWheel(Generic[T]):
    """Holds tasks with delays; its owner calls `advance` to expire them."""

    def __init__(self, clock: Clock, tick_ms: int = TICK_MS, wheel_size: int = WHEEL_SIZE) -> None:
        assert tick_ms >= 1, f"tick_ms={tick_ms}"
        assert wheel_size >= 2, f"wheel_size={wheel_size}: an overflow wheel would not be coarser"
        self.waiting_count = 0
        self._clock: Final = clock
        self._start: Final = clock.monotonic()
        self._wheel_size: Final = wheel_size
        self._lowest: Final[_Level[T]] = _Level(self, tick_ms, wheel_size, 0)
        # (begin, sequence, bucket) of every bucket that may hold a task.
        self._begins: list[tuple[int, int, _Bucket[T]]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return self.waiting_count

    @property
    def level_count(self) -> int:
        """How many levels exist so far."""
        count = 1
        level = self._lowest
        while level.overflow is not None:
            level = level.overflow
            count += 1
        return count

    def add(self, task: T, delay_ms: int) -> TimerEntry[T]:
        """Add a task that expires after `delay_ms`; 0 or less means with the next tick."""
        tick_ms = self._lowest.tick_ms
        due_ms = self._now_ms() + min(max(delay_ms, 0), DELAY_MS_MAX)
        # Rounded up to a tick, so that it cannot be early.
        deadline_ms = -int(-due_ms // tick_ms) * tick_ms
        entry = TimerEntry(task, deadline_ms)
        self.waiting_count += 1
        self._put(entry)
        return entry

    def advance(self) -> list[T]:
        """Move to the clock's time; return the tasks that expired, earliest first."""
        now_ms = self._now_ms()
        begins = self._begins
        expired: list[T] = []
        while begins and begins[0][0] <= now_ms:
            begin_ms, _, bucket = heapq.heappop(begins)
            self._move_to(begin_ms)
            entries, bucket.entries, bucket.begin_ms = bucket.entries, {}, -1
            for entry in entries:
                if entry.deadline_ms <= begin_ms:
                    entry._bucket = None
                    self.waiting_count -= 1
                    expired.append(entry.task)
                else:
                    self._put(entry)
        self._move_to(int(now_ms))
        if invariants.enabled:
            self.check_invariants()
        return expired

    def next_deadline(self) -> float | None:
        """The monotonic second at which `advance` should be called; None while nothing waits.

        It may be earlier than any task is due, when a bucket of an overflow wheel begins by then.
        """
        if not self.waiting_count:
            return None
        begins = self._begins
        while not begins[0][2].entries:
            # All its tasks were cancelled, so there is no reason to wake up.
            _, _, bucket = heapq.heappop(begins)
            bucket.begin_ms = -1
        return self._start + begins[0][0] / 1000

    def check_invariants(self) -> None:
        """Assert that every waiting task is in the bucket of its time, and every such bucket has a begin."""
        begins = {id(bucket): begin_ms for begin_ms, _, bucket in self._begins}
        count = 0
        level: _Level[T] | None = self._lowest
        while level is not None:
            for bucket in [each for each in level.buckets if each.begin_ms >= 0 or each.entries]:
                begin_ms = bucket.begin_ms
                queued_ms = begins.pop(id(bucket), -1)
                assert begin_ms == queued_ms, f"a bucket of {begin_ms} ms begins at {queued_ms} ms"
                for entry in bucket.entries:
                    late_ms = entry.deadline_ms - begin_ms
                    assert 0 <= late_ms < level.tick_ms, f"{entry.deadline_ms} in the bucket of {begin_ms}"
                    assert entry._bucket is bucket, f"a task of {entry.deadline_ms} ms is in two buckets"
                count += len(bucket.entries)
            level = level.overflow
        assert not begins, f"buckets without a begin are queued for {list(begins.values())} ms"
        assert count == self.waiting_count, f"{self.waiting_count} tasks wait instead of {count}"

    def _now_ms(self) -> float:
        return (self._clock.monotonic() - self._start) * 1000

    def _move_to(self, now_ms: int) -> None:
        level: _Level[T] | None = self._lowest
        while level is not None and now_ms >= level.now_ms + level.tick_ms:
            level.now_ms = now_ms - now_ms % level.tick_ms
            level = level.overflow

    def _put(self, entry: TimerEntry[T]) -> None:
        deadline_ms = entry.deadline_ms
        level = self._lowest
        while deadline_ms >= level.now_ms + level.span_ms:
            if level.overflow is None:
                level.overflow = _Level(self, level.span_ms, self._wheel_size, level.now_ms)
            level = level.overflow
        tick = deadline_ms // level.tick_ms
        bucket = level.buckets[tick % self._wheel_size]
        begin_ms = tick * level.tick_ms
        if bucket.begin_ms != begin_ms:
            assert not bucket.entries, f"a bucket stands for {bucket.begin_ms} and for {begin_ms}"
            bucket.begin_ms = begin_ms
            self._sequence += 1
            heapq.heappush(self._begins, (begin_ms, self._sequence, bucket))
        bucket.entries[entry] = None
        entry._bucket = bucket
