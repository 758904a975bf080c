"""Finds offsets that no batch accounts for, or that two batches account for.

It is a decision without I/O over records of the ledger. The records of one query follow each other without a
hole: a batch begins where the one before it ended. A pipeline whose checkpoint was rebuilt has a new query,
which goes on where the former one ended.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kalda.common.types import TopicPartition
from kalda.pipelines.batch import BatchAccount
from kalda.pipelines.ledger.record import LedgerRecord


class BreakKind(StrEnum):
    """How two ranges fail to join."""

    GAP = "gap"
    """Offsets between them are in no batch."""
    OVERLAP = "overlap"
    """Offsets are in both."""


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


class Continuity:
    """Follows where the ranges of each partition have come to.

    Example: ranges [0, 10), [10, 30) and [35, 40) have the gap [30, 35).
    """

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, int] = {}

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Behind which offset each partition goes on."""
        return dict(self._ends)

    def follow(self, batch: BatchAccount) -> list[Break]:
        """Take the next batch; return where it does not join the one before."""
        return [
            found
            for each in batch.ranges
            if (found := self.join(each.topic_partition, each.start, each.end, batch.batch_id)) is not None
        ]

    def join(self, topic_partition: TopicPartition, start: int, end: int, batch_id: int) -> Break | None:
        """Take the next range of a partition."""
        before = self._ends.get(topic_partition, start)
        self._ends[topic_partition] = max(before, end)
        if start > before:
            return Break(BreakKind.GAP, topic_partition, before, start, batch_id)
        if start < before:
            return Break(BreakKind.OVERLAP, topic_partition, start, min(before, end), batch_id)
        return None


def find_breaks(records: Iterable[LedgerRecord]) -> list[Break]:
    """Return every gap and overlap in the records of one pipeline.

    Records of different queries are ordered by their commit, those of one query by their batch.
    """
    records = list(records)
    first_commit: dict[str, int] = {}
    for each in records:
        first = first_commit.get(each.query_id, each.committed_ms)
        first_commit[each.query_id] = min(first, each.committed_ms)
    continuity = Continuity()
    found = []
    for each in sorted(
        records, key=lambda record: (first_commit[record.query_id], record.query_id, record.batch_id)
    ):
        account = each.account
        broken = continuity.join(each.topic_partition, account.start, account.end, each.batch_id)
        if broken is not None:
            found.append(broken)
    return found
