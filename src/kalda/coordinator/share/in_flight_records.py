"""Defines the records of a share partition that are in flight: `InFlightRecords`.

They are the offsets from the start offset, below which everything is done, to the end offset, from which on
nothing was delivered yet, as ranges in one state::

    start 4                                              end 20
    [4-6 acquired by a][7-7 acknowledged][8-11 available 1][12-19 acquired by b]
"""

from typing import Final, NamedTuple

from kalda.coordinator.share.delivery_state import PartitionState, RecordState
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
    """The offsets between the start and the end of what a group was delivered of a partition.

    It keeps the ranges and what is counted of them together; `SharePartition` decides what becomes of them.
    """

    def __init__(self, state: PartitionState, limits: PartitionLimits) -> None:
        """`state` has a start offset: the caller has chosen one where the group had none."""
        assert state.start_offset >= 0, f"start offset {state.start_offset}"
        self.limits = limits
        self.start_offset = state.start_offset
        """Every offset below it is done."""
        self.end_offset = state.start_offset
        """The first offset that was never delivered; what is between start and end is in `ranges`."""
        self.ranges: Final = RecordRanges()
        """Those between start and end, in order and without gaps."""
        self.available_count = 0
        """How many offsets below the end may be acquired, now or when they are due."""
        self.end_due_ms = 0
        """When the record at the end is due; 0: now, or nobody has looked."""
        self.turns: Final = RecordTurns(self.ranges)
        for each in state.ranges:
            if each.last < self.start_offset or not each.is_valid:
                continue
            first = max(each.first, self.start_offset)
            # What no range has was acquired when the leader before this one stored its state.
            self.append(first - 1, _AVAILABLE, 0)
            state_now = _AVAILABLE if each.state == _ACQUIRED else RecordState(each.state)
            self.append(each.last, state_now, each.deliveries)
            if state_now is _ARCHIVING and self.end_offset == each.last + 1:
                # The reason is not stored.
                self.ranges[-1].is_rejected = each.deliveries < limits.delivery_count_limit
        self.turns.forget(limits)
        self.advance()

    @property
    def in_flight_count(self) -> int:
        """How many offsets there are from the start offset to the end offset."""
        return self.end_offset - self.start_offset

    # What time, the log and the settings of the group change.

    def end_waits(self, now_ms: int) -> bool:
        """Let records be acquired whose wait is over by now; return whether there are any."""
        have_ended = self.turns.end_waits(now_ms)
        if 0 < self.end_due_ms <= now_ms:
            self.end_due_ms = 0
            return True
        return have_ended

    def move_start(self, log_start_offset: int) -> bool:
        """Give up the records that the log has deleted; return whether there were any."""
        if log_start_offset <= self.start_offset:
            return False
        if log_start_offset >= self.end_offset:
            self.ranges.clear()
            self.available_count = 0
            self.turns.keys.clear()
            self.start_offset = self.end_offset = log_start_offset
            self.end_due_ms = 0
            return True
        index = self.ranges.split(log_start_offset)
        for each in self.ranges[:index]:
            if each.state is _AVAILABLE and each.transition is None:
                self.available_count -= each.size
        del self.ranges[:index]
        before, self.start_offset = self.start_offset, log_start_offset
        self.turns.pass_on(before, log_start_offset - 1)
        self.advance()
        return True

    def set_limits(self, limits: PartitionLimits) -> None:
        """Obey other settings of the group from now on."""
        before, self.limits = self.limits, limits
        if before.delay_ms != limits.delay_ms:
            self.end_due_ms = 0
        self.turns.set_limits(before, limits)

    # Ranges.

    def may_acquire(self, each: RecordRange, now_ms: int) -> bool:
        """Return whether the records of a range are for the next member."""
        return (
            each.state is _AVAILABLE
            and each.transition is None
            and each.deadline_ms <= now_ms
            and not each.is_blocked
        )

    def archive_available(self, first: int, last: int) -> None:
        """Archive the records that are not acquired between two offsets, which may be beyond the end."""
        if first < self.end_offset:
            index = self.ranges.split(first)
            self.ranges.split(min(last, self.end_offset - 1) + 1)
            for each in self.ranges.until(index, last):
                if each.state is _AVAILABLE and each.transition is None:
                    self.available_count -= each.size
                    each.state, each.deadline_ms, each.is_known = _ARCHIVED, 0, True
                    each.is_blocked = False
            self.turns.pass_on(first, min(last, self.end_offset - 1))
        if last >= self.end_offset:
            self.append(last, _ARCHIVED, 0)

    def append(self, last: int, state: RecordState, count: int) -> None:
        """Add a range from the end offset to `last`, unless it is empty."""
        if last < self.end_offset:
            return
        each = RecordRange(self.end_offset, last, state, count)
        self.ranges.append(each)
        self.end_offset = last + 1
        if state is _AVAILABLE:
            self.available_count += each.size

    def advance(self) -> None:
        """Move the start offset past everything that is done."""
        count = 0
        for each in self.ranges:
            if not each.state.is_terminal:
                break
            count += 1
        if count:
            self.start_offset = self.ranges[count - 1].last + 1
            del self.ranges[:count]

    # Invariants.

    def check_invariants(self) -> None:
        """Assert that the ranges cover the offsets from start to end, and that counts are right."""
        offset, available = self.start_offset, 0
        for each in self.ranges:
            assert each.first == offset, f"{each} begins at {each.first}, not at {offset}"
            assert each.last >= each.first, f"{each} is empty"
            assert (each.member != NO_MEMBER) == (each.state is _ACQUIRED), f"{each} has the wrong member"
            if each.state is _AVAILABLE and each.transition is None:
                available += each.size
            offset = each.last + 1
        self.turns.check_invariants()
        assert offset == self.end_offset, f"the ranges end at {offset}, the partition at {self.end_offset}"
        assert available == self.available_count, (
            f"{available} are available, {self.available_count} are counted"
        )
