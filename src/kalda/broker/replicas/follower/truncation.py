"""Where a follower cuts its log to make it a prefix of its leader's: by leader epoch, not high watermark.

A high watermark says what is committed, not what is the same: a follower that cut there could drop committed
records and lead without them (KIP-101). Epochs tell: two logs that hold the same epoch hold the same records
in it, as far as both go. Pure functions; the log is cut by the caller.
"""

from dataclasses import dataclass
from typing import Final, Protocol

UNDEFINED: Final = -1
"""An epoch or offset that is not known."""


class EpochHistory(Protocol):
    """What is asked of the follower's own log."""

    @property
    def log_start_offset(self) -> int:
        """The first offset."""
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
    """What a leader told a follower that asked for an offset outside of its log."""

    start_offset: int
    end_offset: int
    epoch: int = UNDEFINED
    """The leader's largest epoch that is not above the follower's last; -1 if none was asked or known."""
    epoch_end_offset: int = UNDEFINED


def offset_to_truncate_to(log: EpochHistory, leader_epoch: int, leader_end_offset: int) -> int:
    """Return where to cut, given the leader's largest epoch up to the follower's last and where that ends.

    The follower has epochs 3 [10,20) and 5 [20,30), the leader 3 [10,15) and 4 [15,40): the leader answers
    (4, 40); the follower knows no 4, so it cuts off all above 3: at 20. Its next fetch, with epoch 3, is
    answered (3, 15): it cuts at 15, and the logs agree.
    """
    end = log.log_end_offset
    epoch, epoch_end = log.end_offset_for_epoch(leader_epoch)
    if epoch == leader_epoch and epoch_end >= 0:
        return min(epoch_end, leader_end_offset, end)
    if epoch_end >= 0:
        # Another round follows, with an epoch that the leader may know.
        return min(epoch_end, end)
    # The follower knows no epoch above: the leader's end is the best there is.
    return min(leader_end_offset, end)


@dataclass(frozen=True, slots=True)
class Restart:
    """Drop everything and begin anew at an offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Cut off what is at an offset and after it; an offset at the log's end cuts nothing."""

    offset: int


def resolve_out_of_range(log: EpochHistory, leader: LeaderOffsets) -> Restart | TruncateTo:
    """Decide what to do when the leader has no record at the follower's end.

    A leader [100,200) and a follower [0,50): nothing that the follower has is left there, so it restarts at
    100. A leader [0,40) after an unclean election and a follower [0,50): cut by epoch, else at 40.
    """
    end = log.log_end_offset
    if leader.start_offset > end:
        return Restart(leader.start_offset)
    if leader.end_offset < log.log_start_offset:
        # Not one record in common: nothing of the follower's can be kept.
        return Restart(max(leader.start_offset, 0))
    if leader.epoch >= 0 and leader.epoch_end_offset >= 0:
        offset = offset_to_truncate_to(log, leader.epoch, leader.epoch_end_offset)
        return TruncateTo(min(offset, max(leader.end_offset, 0)))
    return TruncateTo(min(leader.end_offset, end))
