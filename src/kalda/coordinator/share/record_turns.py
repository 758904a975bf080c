"""Keeps what available records of a share partition wait for: a time, or a record before them with their key.

Both are facts of the records, which only the batches in the log have. A leader that takes over does not know
them of records that were in flight; its first fetch of those finds them out.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from kalda.coordinator.share.delivery_state import RecordState
from kalda.coordinator.share.fetched_batch import pieces
from kalda.coordinator.share.key_order import KeyOrder
from kalda.coordinator.share.partition_limits import PartitionLimits
from kalda.coordinator.share.record_ranges import RecordRanges

_AVAILABLE: Final = RecordState.AVAILABLE


class RecordTurns:
    """When the available records in some ranges may be acquired, by their times and keys."""

    def __init__(self, ranges: RecordRanges) -> None:
        self._ranges: Final = ranges
        self.keys: Final = KeyOrder()
        """Empty where the order of keys does not count."""

    def forget(self, limits: PartitionLimits) -> None:
        """Have times and keys found out of what waits for a delivery, where they count."""
        for each in self._ranges:
            if each.state is _AVAILABLE:
                is_due_unknown = limits.looks_into_batches and not each.count
                each.is_known = not (limits.has_key_order or is_due_unknown)

    def set_limits(self, before: PartitionLimits, limits: PartitionLimits) -> None:
        """Obey other settings of the group from now on."""
        if before.has_times and not limits.has_times:
            for each in self._ranges:
                if each.state is _AVAILABLE and not each.count:
                    each.deadline_ms = 0
        if before.has_key_order and not limits.has_key_order:
            self.keys.clear()
            for each in self._ranges:
                each.is_blocked = False
        elif limits.has_key_order and not before.has_key_order:
            self.forget(limits)

    def first_unknown(self, first: int, last: int) -> int | None:
        """Return the first of some offsets whose time and key are not known; None if there is none."""
        for each in self._ranges.until(self._ranges.index_of(first), last):
            if not each.is_known and each.state is _AVAILABLE:
                return max(first, each.first)
        return None

    def examine(
        self, first: int, last: int, due_ms: int, late: Sequence[tuple[int, int]], keys: Mapping[int, int]
    ) -> None:
        """Note times and keys of records that an earlier leader had in flight.

        Keys become known in the order of offsets: a fetch begins with the first record that is not known.
        """
        for to, wait_ms in pieces(first, last, late, keys):
            index = self._ranges.split(first)
            self._ranges.split(to + 1)
            for each in self._ranges.until(index, to):
                if not each.is_known and each.state is _AVAILABLE and each.transition is None:
                    each.is_known = True
                    if not each.count:
                        each.deadline_ms = max(due_ms, wait_ms)
                    each.is_blocked = bool(keys) and self.keys.add(each.first, keys.get(each.first))
            first = to + 1

    def pass_on(self, first: int, last: int) -> None:
        """Release the next records with the keys of completed records, so that they can be acquired."""
        if self.keys:
            for offset in self.keys.remove(first, last):
                index = self._ranges.split(offset)
                self._ranges.split(offset + 1)
                self._ranges[index].is_blocked = False

    def end_waits(self, now_ms: int) -> bool:
        """Let records be acquired whose wait is over by now; return whether there are any."""
        ended = [each for each in self._ranges if each.state is _AVAILABLE and 0 < each.deadline_ms <= now_ms]
        for each in ended:
            each.deadline_ms = 0
        if ended:
            self._ranges.coalesce()
        return bool(ended)

    def check_invariants(self) -> None:
        """Assert that a record is blocked where one before it has its key."""
        for each in self._ranges:
            assert not each.is_blocked or each.state is _AVAILABLE, f"{each} is blocked"
            if each.is_known and each.state is _AVAILABLE:
                for number in range(each.first, each.last + 1) if self.keys else ():
                    is_blocked = self.keys.is_blocked(number)
                    assert is_blocked == each.is_blocked, f"{number} in {each} is blocked or should be"
