"""Defines the records of a share partition that are in flight: `InFlightRecords`.

They are the offsets from the start offset, below which everything is done, to the end offset, from which on
nothing was delivered yet, as ranges in one state::

    start 4                                              end 20
    [4-6 acquired by a][7-7 acknowledged][8-11 available 1][12-19 acquired by b]
"""

from typing import Final, NamedTuple

from kalda.coordinator.share.delivery_state import PartitionState, RecordState, StateRange
from kalda.coordinator.share.partition_limits import PartitionLimits
from kalda.coordinator.share.record_ranges import NO_MEMBER, RecordRange, RecordRanges
from kalda.coordinator.share.record_turns import RecordTurns

_AVAILABLE: Final = RecordState.AVAILABLE
_ACQUIRED: Final = RecordState.ACQUIRED
_ARCHIVING: Final = RecordState.ARCHIVING
_ARCHIVED: Final = RecordState.ARCHIVED


class DeadRange(NamedTuple):
    """Offsets of records whose dead letters are not written yet, and how often they were delivered."""

    first: int
    last: int
    deliveries: int
    is_rejected: bool
    """Whether a member rejected them; else they were delivered as often as the group allows."""
    reason: bytes = b""
    """Why, as the member said, in UTF-8; empty if it did not, or said it to another leader."""


class InFlightRecords:
    """The offsets between the start and the end of what a group was delivered of a partition."""

    def __init__(self, state: PartitionState, limits: PartitionLimits) -> None:
        """`state` has a start offset: the caller has chosen one where the group had none."""
        assert state.start_offset >= 0, f"start offset {state.start_offset}"
        self.limits = limits
        self.state_epoch: Final = state.state_epoch
        self.start_offset = state.start_offset
        """Every offset below it is done."""
        self.end_offset = state.start_offset
        """The first offset that was never delivered; what is between start and end is in `_ranges`."""
        self._ranges: Final = RecordRanges()
        self._available = 0
        """How many offsets below the end may be acquired, now or when they are due."""
        self._end_due_ms = 0
        """When the record at the end is due; 0: now, or nobody has looked."""
        self._turns: Final = RecordTurns(self._ranges)
        for each in state.ranges:
            if each.last < self.start_offset or not each.is_valid:
                continue
            first = max(each.first, self.start_offset)
            # What no range has was acquired when the leader before this one stored its state.
            self._append(first - 1, _AVAILABLE, 0)
            state_now = _AVAILABLE if each.state == _ACQUIRED else RecordState(each.state)
            self._append(each.last, state_now, each.deliveries)
            if state_now is _ARCHIVING and self.end_offset == each.last + 1:
                # The reason is not stored.
                self._ranges[-1].is_rejected = each.deliveries < limits.delivery_count_limit
        self._turns.forget(limits)
        self._advance()

    # Looking.

    @property
    def in_flight_count(self) -> int:
        """How many offsets there are from the start offset to the end offset."""
        return self.end_offset - self.start_offset

    @property
    def acquired_count(self) -> int:
        """How many offsets members have acquired."""
        return sum(each.size for each in self._ranges if each.state is _ACQUIRED)

    @property
    def waiting_count(self) -> int:
        """How many offsets below the end wait for their time, or for the end of a back-off."""
        return sum(each.size for each in self._ranges if each.state is _AVAILABLE and each.deadline_ms)

    @property
    def complete_count(self) -> int:
        """How many offsets from the start offset on are done."""
        return sum(each.size for each in self._ranges if each.state.is_terminal)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first lock or wait ends, None if there is none."""
        # Only acquired and available ranges have deadlines.
        deadlines = [
            each.deadline_ms for each in self._ranges if each.deadline_ms and each.transition is None
        ]
        if self._end_due_ms:
            deadlines.append(self._end_due_ms)
        return min(deadlines) if deadlines else None

    def next_fetch_offset(self, now_ms: int = 0) -> int | None:
        """Return the first offset that may be acquired; None if there are too many records in flight."""
        if self._available:
            for each in self._ranges:
                if self._may_acquire(each, now_ms):
                    return each.first
        if self.in_flight_count >= self.limits.in_flight_max or self._end_due_ms > now_ms:
            return None
        return self.end_offset

    def first_unknown(self, first: int, last: int) -> int | None:
        """Return the first of some offsets whose time and key are not known; None if there is none."""
        first = max(first, self.start_offset)
        if first < self.end_offset:
            unknown = self._turns.first_unknown(first, last)
            if unknown is not None:
                return unknown
        return max(first, self.end_offset) if last >= self.end_offset else None

    def dead_ranges(self, count_max: int) -> list[DeadRange]:
        """Return the first offsets whose dead letters are to be written, `count_max` at most."""
        found: list[DeadRange] = []
        for each in self._ranges:
            if count_max <= 0:
                break
            if each.state is _ARCHIVING and each.transition is None:
                last = min(each.last, each.first + count_max - 1)
                found.append(DeadRange(each.first, last, each.count, each.is_rejected, each.reason))
                count_max -= last - each.first + 1
        return found

    @property
    def dead_count(self) -> int:
        """How many offsets wait for their dead letters."""
        return sum(each.size for each in self._ranges if each.state is _ARCHIVING)

    def holder(self, offset: int) -> tuple[str, int] | None:
        """Return the member that has acquired a record, and when its lock ends; None if nobody has."""
        if not self.start_offset <= offset < self.end_offset:
            return None
        each = self._ranges[self._ranges.index_of(offset)]
        return (each.member, each.deadline_ms) if each.state is _ACQUIRED else None

    def is_done(self, offset: int) -> bool:
        """Return whether a record will not be delivered again."""
        if not self.start_offset <= offset < self.end_offset:
            return offset < self.start_offset
        state = self._ranges[self._ranges.index_of(offset)].state
        return state.is_terminal or state is _ARCHIVING

    def state_ranges(self) -> tuple[StateRange, ...]:
        """Return the state of every offset in flight; what is acquired is available to a next leader."""
        return tuple(StateRange(each.first, each.last, each.state, each.count) for each in self._ranges)

    # What time, the log and the settings of the group change.

    def end_waits(self, now_ms: int) -> bool:
        """Let records be acquired whose wait is over by now; return whether there are any."""
        have_ended = self._turns.end_waits(now_ms)
        if 0 < self._end_due_ms <= now_ms:
            self._end_due_ms = 0
            return True
        return have_ended

    def move_start(self, log_start_offset: int) -> bool:
        """Give up the records that the log has deleted; return whether there were any."""
        if log_start_offset <= self.start_offset:
            return False
        if log_start_offset >= self.end_offset:
            self._ranges.clear()
            self._available = 0
            self._turns.keys.clear()
            self.start_offset = self.end_offset = log_start_offset
            self._end_due_ms = 0
            return True
        index = self._ranges.split(log_start_offset)
        for each in self._ranges[:index]:
            if each.state is _AVAILABLE and each.transition is None:
                self._available -= each.size
        del self._ranges[:index]
        before, self.start_offset = self.start_offset, log_start_offset
        self._turns.pass_on(before, log_start_offset - 1)
        self._advance()
        return True

    def set_limits(self, limits: PartitionLimits) -> None:
        """Obey other settings of the group from now on."""
        before, self.limits = self.limits, limits
        if before.delay_ms != limits.delay_ms:
            self._end_due_ms = 0
        self._turns.set_limits(before, limits)

    # Ranges.

    def _may_acquire(self, each: RecordRange, now_ms: int) -> bool:
        return (
            each.state is _AVAILABLE
            and each.transition is None
            and each.deadline_ms <= now_ms
            and not each.is_blocked
        )

    def _archive_available(self, first: int, last: int) -> None:
        """Archive the records that are not acquired between two offsets, which may be beyond the end."""
        if first < self.end_offset:
            index = self._ranges.split(first)
            self._ranges.split(min(last, self.end_offset - 1) + 1)
            for each in self._ranges.until(index, last):
                if each.state is _AVAILABLE and each.transition is None:
                    self._available -= each.size
                    each.state, each.deadline_ms, each.is_known = _ARCHIVED, 0, True
                    each.is_blocked = False
            self._turns.pass_on(first, min(last, self.end_offset - 1))
        if last >= self.end_offset:
            self._append(last, _ARCHIVED, 0)

    def _append(self, last: int, state: RecordState, count: int) -> None:
        """Add a range from the end offset to `last`, unless it is empty."""
        if last < self.end_offset:
            return
        each = RecordRange(self.end_offset, last, state, count)
        self._ranges.append(each)
        self.end_offset = last + 1
        if state is _AVAILABLE:
            self._available += each.size

    def _advance(self) -> None:
        """Move the start offset past everything that is done."""
        count = 0
        for each in self._ranges:
            if not each.state.is_terminal:
                break
            count += 1
        if count:
            self.start_offset = self._ranges[count - 1].last + 1
            del self._ranges[:count]

    # Invariants.

    def check_invariants(self) -> None:
        """Assert that the ranges cover the offsets from start to end, and that counts are right."""
        offset, available = self.start_offset, 0
        for each in self._ranges:
            assert each.first == offset, f"{each} begins at {each.first}, not at {offset}"
            assert each.last >= each.first, f"{each} is empty"
            assert (each.member != NO_MEMBER) == (each.state is _ACQUIRED), f"{each} has the wrong member"
            if each.state is _AVAILABLE and each.transition is None:
                available += each.size
            offset = each.last + 1
        self._turns.check_invariants()
        assert offset == self.end_offset, f"the ranges end at {offset}, the partition at {self.end_offset}"
        assert available == self._available, f"{available} are available, {self._available} are counted"
