"""Defines where a consumer reads next in one partition, and from which leader.

An epoch of -1 stands for "not known", as on the wire.
"""

from dataclasses import dataclass
from typing import Final

NO_LEADER_EPOCH: Final = -1
NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """A partition's leader as the metadata names it."""

    leader_id: int = NO_LEADER
    epoch: int = NO_LEADER_EPOCH


UNKNOWN_LEADER: Final = LeaderAndEpoch()


@dataclass(frozen=True, slots=True)
class FetchPosition:
    """The next offset to return to the user.

    The position is validated with the leader (KIP-320) whenever `leader` changes and `offset_epoch` is known:
    the new leader may have a shorter log, or another one under the same offsets.
    """

    offset: int
    offset_epoch: int = NO_LEADER_EPOCH
    """The leader epoch of the last record consumed, the one before `offset`."""
    leader: LeaderAndEpoch = UNKNOWN_LEADER
    """The leader that the position was last checked against, or obtained from."""

    def __str__(self) -> str:
        epoch = "" if self.offset_epoch == NO_LEADER_EPOCH else f" (epoch {self.offset_epoch})"
        return f"offset {self.offset}{epoch}"
