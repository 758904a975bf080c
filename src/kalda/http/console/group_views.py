"""Computes the rows that pages show of a group's lag, and the offsets to which a group is reset. No I/O."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kalda.clients.admin.groups import MemberDescription
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import TopicPartition

Committed = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class LagRow:
    """A partition that a group reads, or has read."""

    partition: TopicPartition
    committed: int | None
    end: int | None
    member: str
    client_id: str
    metadata: str

    @property
    def lag(self) -> int | None:
        """How many offsets there are from the committed one to the end."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


def lag_rows(
    committed: Committed, members: Iterable[MemberDescription], ends: Mapping[TopicPartition, int]
) -> list[LagRow]:
    """Return a row for each partition with a committed offset or a member, by topic and number."""
    owners = {partition: member for member in members for partition in member.assignment}
    rows = []
    for partition in sorted({*committed, *owners}):
        offset, owner = committed.get(partition), owners.get(partition)
        rows.append(
            LagRow(
                partition,
                None if offset is None else offset.offset,
                ends.get(partition),
                "" if owner is None else owner.member_id,
                "" if owner is None else owner.client_id,
                "" if offset is None or not offset.metadata else offset.metadata,
            )
        )
    return rows


def lag_of(committed: Committed, ends: Mapping[TopicPartition, int]) -> int | None:
    """Return the lag of all partitions together; None if one is not known, or nothing is committed."""
    if not committed or any(partition not in ends for partition in committed):
        return None
    return sum(max(0, ends[partition] - each.offset) for partition, each in committed.items())


@dataclass(frozen=True, slots=True)
class ResetRow:
    """The offset that a partition is reset to."""

    partition: TopicPartition
    now: int | None
    then: int
    is_moved: bool
    """Whether the offset that was asked for is outside the log."""


def reset_rows(
    asked: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    logs: Mapping[TopicPartition, tuple[int, int]],
) -> list[ResetRow]:
    """Return the reset, where offsets outside a log are moved to its nearer end."""
    rows = []
    for partition, offset in sorted(asked.items()):
        first, end = logs[partition]
        then = min(max(offset, first), end)
        rows.append(ResetRow(partition, committed.get(partition), then, then != offset))
    return rows
