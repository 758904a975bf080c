"""Decides where a follower truncates its log to make it a prefix of its leader's: by leader epoch.

The high watermark marks what is committed, not what is equal: a follower that truncated to it could drop
committed records and then become leader without them (KIP-101). Epochs decide it: two logs with the same
epoch have the same records of that epoch, up to the shorter one's end. These are pure functions; the caller
truncates.
"""

from dataclasses import dataclass
from typing import Final, Protocol

UNDEFINED: Final = -1
"""An unknown epoch or offset."""


class EpochHistory(Protocol):
    """The part of the follower's log that decides the truncation."""

    @property
    def log_start_offset(self) -> int:
        """The first offset of the log."""
        ...

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch at or below `epoch` and its end offset; (-1, -1) if not known."""
        ...


@dataclass(frozen=True, slots=True)
class LeaderOffsets:
    """The bounds of a leader's log, for a follower that requested an offset outside them."""

    start_offset: int
    end_offset: int
    epoch: int = UNDEFINED
    """The leader's largest epoch up to the follower's last one; -1 if unknown."""
    epoch_end_offset: int = UNDEFINED


def offset_to_truncate_to(log: EpochHistory, leader_epoch: int, leader_end_offset: int) -> int:
    """Return the offset to truncate to, given the leader's largest epoch up to the follower's last one.

    The follower has epochs 3 [10,20) and 5 [20,30), the leader 3 [10,15) and 4 [15,40). The leader answers
    (4, 40); the follower has no epoch 4 and truncates to the end of epoch 3, 20. The leader answers its next
    fetch, with epoch 3, with (3, 15); the follower truncates to 15, and the logs agree.
    """
    end = log.log_end_offset
    epoch, epoch_end = log.end_offset_for_epoch(leader_epoch)
    if epoch == leader_epoch and epoch_end >= 0:
        return min(epoch_end, leader_end_offset, end)
    if epoch_end >= 0:
        # The next fetch names an older epoch, which the leader may have.
        return min(epoch_end, end)
    # The follower has no epoch at or below: only the leader's end is left.
    return min(leader_end_offset, end)


@dataclass(frozen=True, slots=True)
class Restart:
    """Drop the whole log and start it at an offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Truncate to an offset; the log's end truncates nothing."""

    offset: int


def resolve_out_of_range(log: EpochHistory, leader: LeaderOffsets) -> Restart | TruncateTo:
    """Return what to do with a log whose end is out of the leader's range.

    A leader [100,200) and a follower [0,50) have nothing in common, so the follower restarts at 100. With a
    leader [0,40) after an unclean election and a follower [0,50), it truncates by epoch, else to 40.
    """
    end = log.log_end_offset
    if leader.start_offset > end:
        return Restart(leader.start_offset)
    if leader.end_offset < log.log_start_offset:
        # The logs have no record in common.
        return Restart(max(leader.start_offset, 0))
    if leader.epoch >= 0 and leader.epoch_end_offset >= 0:
        offset = offset_to_truncate_to(log, leader.epoch, leader.epoch_end_offset)
        return TruncateTo(min(offset, max(leader.end_offset, 0)))
    return TruncateTo(min(leader.end_offset, end))
