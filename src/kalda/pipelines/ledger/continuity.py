"""Finds offsets that no batch accounts for, or that two batches account for.

It is a decision without I/O. While a pipeline runs, `Continuity` follows its batches, each of which begins
where the one before it ended. Over the whole ledger, `find_breaks` looks at what the ranges cover together,
because a replay or a backfill fills a gap long after the batches around it; `find_uncovered` looks for wanted
ranges in it. A topic that was created again counts as another topic.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import BatchAccount, RangeAccount
from kalda.pipelines.ledger.audit_record import LedgerRecord


class BreakKind(StrEnum):
    """How ranges fail to join."""

    GAP = "gap"
    """Offsets between two ranges are in none."""
    OVERLAP = "overlap"
    """Offsets are in two ranges."""


@dataclass(frozen=True, slots=True)
class Break:
    """Offsets ``[start, end)`` of a partition that no batch, or more than one, accounts for."""

    kind: BreakKind
    topic_partition: TopicPartition
    start: int
    end: int
    batch_id: int
    """The batch in front of which, or in which, the offsets lie."""

    def __str__(self) -> str:
        what = "in no batch" if self.kind is BreakKind.GAP else "in more than one batch"
        return (
            f"{self.topic_partition}: offsets {self.start} to {self.end - 1} are {what} "
            f"(seen at batch {self.batch_id})"
        )


@dataclass(frozen=True, slots=True)
class Uncovered:
    """Offsets ``[start, end)`` of a partition that no batch accounts for."""

    topic_partition: TopicPartition
    start: int
    end: int


class Continuity:
    """Follows where the ranges of each partition have come to.

    Example: ranges [0, 10), [10, 30) and [35, 40) have the gap [30, 35).
    """

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, int] = {}
        self._topic_ids: dict[TopicPartition, str] = {}

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Behind which offset each partition goes on."""
        return dict(self._ends)

    def follow(self, batch: BatchAccount) -> list[Break]:
        """Take the next batch; return where it does not join the one before."""
        return [found for each in batch.ranges if (found := self.join(each, batch.batch_id)) is not None]

    def join(self, account: RangeAccount, batch_id: int) -> Break | None:
        """Take the next range of a partition. Another topic with the same name begins with any offset."""
        topic_partition, start, end = account.topic_partition, account.start, account.end
        topic_id = account.topic_id or self._topic_ids.get(topic_partition, "")
        if self._topic_ids.get(topic_partition, topic_id) != topic_id:
            del self._ends[topic_partition]
        if topic_id:
            self._topic_ids[topic_partition] = topic_id
        before = self._ends.get(topic_partition, start)
        self._ends[topic_partition] = max(before, end)
        if start > before:
            return Break(BreakKind.GAP, topic_partition, before, start, batch_id)
        if start < before:
            return Break(BreakKind.OVERLAP, topic_partition, start, min(before, end), batch_id)
        return None


def find_breaks(records: Iterable[LedgerRecord], *, may_repeat: bool = False) -> list[Break]:
    """Return every gap and overlap in the records of one pipeline.

    Args:
        may_repeat: whether replays may process offsets again, as they may where rows replace each other.
    """
    continuity = Continuity()
    found = []
    records = list(records)
    turns = _turns(records)
    for each in sorted(
        records, key=lambda record: (record.topic_partition, turns[record.key], *_range(record))
    ):
        broken = continuity.join(each.account, each.batch_id)
        if broken is None:
            continue
        is_repeat = may_repeat and broken.kind is BreakKind.OVERLAP
        if not is_repeat:
            found.append(broken)
    return found


def of_newest_topics(records: Iterable[LedgerRecord]) -> list[LedgerRecord]:
    """Return the records without those of topics that were deleted before another got their name."""
    records = list(records)
    turns = _turns(records)
    newest: dict[TopicPartition, int] = {}
    for each in records:
        newest[each.topic_partition] = max(newest.get(each.topic_partition, 0), turns[each.key])
    return [each for each in records if turns[each.key] == newest[each.topic_partition]]


def find_uncovered(
    wanted: Mapping[TopicPartition, tuple[int, int]], records: Sequence[LedgerRecord]
) -> list[Uncovered]:
    """Return the wanted offsets that no record accounts for, in order.

    Args:
        wanted: start and end of the offsets of each partition, in the topic that the newest records are of.

    Example: of [0, 100), records for [10, 30) and [30, 90) leave [0, 10) and [90, 100).
    """
    found = []
    by_partition: dict[TopicPartition, list[LedgerRecord]] = {}
    for each in sorted(of_newest_topics(records), key=_range):
        by_partition.setdefault(each.topic_partition, []).append(each)
    for topic_partition, (start, end) in sorted(wanted.items()):
        position = start
        for each in by_partition.get(topic_partition, ()):
            if each.account.start >= end:
                break
            if each.account.start > position:
                found.append(Uncovered(topic_partition, position, each.account.start))
            position = max(position, each.account.end)
        if position < end:
            found.append(Uncovered(topic_partition, position, end))
    return found


def _range(record: LedgerRecord) -> tuple[int, int]:
    return record.account.start, record.account.end


def _turns(records: Iterable[LedgerRecord]) -> dict[bytes, int]:
    """Return of each record, by its key, which topic of its name it is of: 0 for the first, by the time.

    Older records have no topic id; they are of the topic of the first record that has one.
    """
    seen: dict[TopicPartition, list[str]] = {}
    turns: dict[bytes, int] = {}
    for each in sorted(records, key=lambda record: (record.committed_ms, record.batch_id)):
        ids = seen.setdefault(each.topic_partition, [])
        topic_id = each.account.topic_id
        if topic_id is not None and topic_id not in ids:
            ids.append(topic_id)
        turns[each.key] = 0 if topic_id is None else ids.index(topic_id)
    return turns
