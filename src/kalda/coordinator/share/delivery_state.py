"""Defines the states of records in a share partition, and ranges of offsets in one state."""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from heapq import heappop, heappush
from itertools import chain
from operator import itemgetter
from typing import Final, NamedTuple

START_UNKNOWN: Final = -1
"""The start offset of a share partition whose leader has not chosen one yet."""

COUNT_UNKNOWN: Final = -1

COUNT_MAX: Final = 2**31 - 1
"""The count has 32 bits on the wire, and offsets that the log does not have count, too."""

OFFSET_MAX: Final = 2**63 - 2
"""The last offset that a record can have: the one after it must fit into 64 bits, too."""

DELIVERIES_MAX: Final = 2**15 - 1
"""Counts of deliveries have 16 bits on the wire; more deliveries than that count as that many."""


class RecordState(IntEnum):
    """The state of a record for a share group; the numbers are those of the wire and of the records."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """The record will not be delivered again, and its dead letter is not written yet (KIP-1191)."""
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """Whether the record will not be delivered again."""
        return self in _TERMINAL


_TERMINAL: Final = frozenset((RecordState.ACKNOWLEDGED, RecordState.ARCHIVED))
_STATES: Final = frozenset(int(each) for each in RecordState)


class AcknowledgeType(IntEnum):
    """The kinds of acknowledgement of a record; the numbers are the protocol's."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class StateRange(NamedTuple):
    """Offsets from `first` to `last`, both included, in one state and delivered equally often."""

    first: int
    last: int
    state: int
    deliveries: int

    @property
    def is_valid(self) -> bool:
        """Whether a share partition can have such a range: requests and records may contain any numbers."""
        return (
            0 <= self.first <= self.last <= OFFSET_MAX
            and self.state in _STATES
            and 0 <= self.deliveries <= DELIVERIES_MAX
        )


class PartitionState(NamedTuple):
    """The state of one share partition that a share coordinator stores."""

    state_epoch: int
    start_offset: int = START_UNKNOWN
    leader_epoch: int = -1
    complete_count: int = COUNT_UNKNOWN
    """How many offsets from the start offset on are acknowledged or archived; -1: unknown."""
    ranges: tuple[StateRange, ...] = ()
    """In order and disjoint, none below the start offset."""


def combined(
    ranges: Iterable[StateRange], changes: Iterable[StateRange], start_offset: int
) -> tuple[StateRange, ...]:
    """Return `ranges` after `changes`, of which later ones win, without what is below `start_offset`.

    [0-9 available 1] with the change [4-5 acknowledged 1] becomes [0-3 available 1][4-5 acknowledged 1]
    [6-9 available 1]. Neighbours in the same state are joined.
    """
    joined: list[StateRange] = []
    for each in _pieces(chain(ranges, changes), start_offset):
        before = joined[-1] if joined else None
        if before is not None and before.last + 1 == each.first and before[2:] == each[2:]:
            joined[-1] = before._replace(last=each.last)
        else:
            joined.append(each)
    return tuple(joined)


def _pieces(ranges: Iterable[StateRange], start_offset: int) -> Iterator[StateRange]:
    """Cut ranges, of which later ones win, into disjoint pieces in order, in n log n steps.

    One write may have thousands of ranges, as many as records are in flight.
    """
    waiting = [(each.first, number, each) for number, each in enumerate(ranges) if each.last >= start_offset]
    waiting.sort(key=itemgetter(0, 1), reverse=True)
    covering: list[tuple[int, StateRange]] = []
    """A heap of ranges that begin at or before the position; the latest one is the first."""
    position = start_offset
    while waiting or covering:
        if not covering:
            position = max(position, waiting[-1][0])
        while waiting and waiting[-1][0] <= position:
            _, number, each = waiting.pop()
            heappush(covering, (-number, each))
        latest = covering[0][1]
        if latest.last < position:
            heappop(covering)
            continue
        last = latest.last if not waiting else min(latest.last, waiting[-1][0] - 1)
        yield latest._replace(first=position, last=last)
        position = last + 1
