"""Defines ranges of a share partition's records, and the list in which they are found, split and joined."""

from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from kalda.coordinator.share.delivery_state import RecordState

NO_MEMBER: Final = ""
_FIRST: Final = attrgetter("first")


class RecordRange:
    """A range of offsets in one state; `transition` is set while a change of it is being stored."""

    __slots__ = (
        "count",
        "deadline_ms",
        "first",
        "is_blocked",
        "is_known",
        "is_rejected",
        "last",
        "member",
        "reason",
        "state",
        "transition",
    )

    def __init__(self, first: int, last: int, state: RecordState, count: int) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.member = NO_MEMBER
        self.deadline_ms = 0
        """When the lock of an acquired range ends, or when an available one may be acquired again."""
        self.is_known = True
        """Whether times and keys of the records are known; they are not where an earlier leader had them."""
        self.is_blocked = False
        """Whether an available record waits for one before it with the same key."""
        self.is_rejected = False
        """Whether a member rejected the records; for the reason in their dead letters."""
        self.reason = b""
        """Why, if the member has said so; kept until their dead letters are written."""
        self.transition: Transition | None = None

    @property
    def size(self) -> int:
        """The number of offsets."""
        return self.last - self.first + 1

    def is_alike(self, other: "RecordRange") -> bool:
        """Return whether both could be one range."""
        return (
            self.state is other.state
            and self.count == other.count
            and self.transition is other.transition
            and self.member == other.member
            and self.deadline_ms == other.deadline_ms
            and self.is_rejected == other.is_rejected
            and self.reason == other.reason
            and self.is_known == other.is_known
            and self.is_blocked == other.is_blocked
        )

    def __repr__(self) -> str:
        return f"[{self.first}-{self.last} {self.state.name} {self.count} {self.member}]"


class Change(NamedTuple):
    """The state transition of one range."""

    records: RecordRange
    state: RecordState
    deliveries: int
    delay_ms: int
    """How long they wait if they become available; `GROUPS_DELAY`: as the group's settings say."""


class Transition:
    """A change of some ranges that is being stored."""

    __slots__ = ("changes", "now_ms")

    def __init__(self, now_ms: int | None = None) -> None:
        """`now_ms` is when the wait of records begins that become available; without it they do not wait."""
        self.now_ms: Final = now_ms
        self.changes: Final[list[Change]] = []


class RecordRanges(list[RecordRange]):
    """Ranges in order, each from the offset behind the one before."""

    def until(self, index: int, last: int) -> Iterator[RecordRange]:
        """Yield the ranges from an index on that begin at or before an offset."""
        while index < len(self) and self[index].first <= last:
            yield self[index]
            index += 1

    def index_of(self, offset: int) -> int:
        """Return the index of the range that has an offset, which is not below the start."""
        return bisect_right(self, offset, key=_FIRST) - 1

    def split(self, offset: int) -> int:
        """Have a range begin at an offset; return its index, or the number of ranges at the end."""
        if not self or offset > self[-1].last:
            return len(self)
        index = self.index_of(offset)
        each = self[index]
        if each.first == offset:
            return index
        right = RecordRange(offset, each.last, each.state, each.count)
        right.member, right.deadline_ms = each.member, each.deadline_ms
        right.is_rejected, right.reason = each.is_rejected, each.reason
        right.is_known, right.is_blocked = each.is_known, each.is_blocked
        each.last = offset - 1
        if each.transition is not None:
            # Both halves become what the whole would have become.
            right.transition = each.transition
            changes = each.transition.changes
            for number, change in enumerate(changes):
                if change.records is each:
                    changes.insert(number + 1, change._replace(records=right))
                    break
        self.insert(index + 1, right)
        return index + 1

    def coalesce(self) -> None:
        """Join neighbours that are alike, so that the list stays short."""
        kept = 0
        for each in self:
            before = self[kept - 1] if kept else None
            if before is not None and each.transition is None and before.is_alike(each):
                before.last = each.last
            else:
                self[kept] = each
                kept += 1
        del self[kept:]
