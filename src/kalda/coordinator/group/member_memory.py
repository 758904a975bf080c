"""Bounds the memory that the members of groups take: of each group, and of all groups of one broker.

A classic member's metadata is the client's own and is kept for each protocol that the client offers; the
number of members and of groups is not bounded. Sixty members of 5 MB each would hold 300 MB.

What one member takes is counted with the objects that it is made of. The sum over all groups is counted every
few seconds, and what joins meanwhile is added; what leaves meanwhile is noticed at the next count.
"""

from collections.abc import Callable
from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.group.group_config import GroupConfig

MEMBER_BYTES: Final = 1_000
"""What a member takes without its texts and metadata: objects, dictionary entries and a timer."""

ENTRY_BYTES: Final = 200
"""What a protocol or the name of a topic takes beside its own bytes, in the member and in its group."""

COUNT_INTERVAL_MS: Final = 5_000
"""A count visits each group, of which a broker may have tens of thousands: some 0.1 us each."""


class MemberMemory:
    """The memory that members take on one broker."""

    def __init__(self, config: GroupConfig, count: Callable[[], int]) -> None:
        """`count` returns what the members of all groups take now."""
        self._config: Final = config
        self._count: Final = count
        self._held_bytes = 0
        self._counted_at_ms: int | None = None

    def require(self, group_id: str, group_bytes: int, growth_bytes: int, now_ms: int) -> None:
        """Let a group that takes `group_bytes` grow.

        Raises:
            ApiError: GROUP_MAX_SIZE_REACHED, on which clients fail; or COORDINATOR_NOT_AVAILABLE, on which
                they try again, if it is other groups that take the memory.
        """
        if growth_bytes <= 0:
            return
        highest = self._config.kalda_group_members_max_bytes
        if group_bytes + growth_bytes > highest:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The members of group {group_id} would take {group_bytes + growth_bytes} bytes of memory; "
                f"kalda.group.members.max.bytes allows {highest}.",
            )
        if self._counted_at_ms is None or abs(now_ms - self._counted_at_ms) >= COUNT_INTERVAL_MS:
            self._held_bytes = self._count()
            self._counted_at_ms = now_ms
        highest = self._config.kalda_groups_members_max_bytes
        if self._held_bytes + growth_bytes > highest:
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"The members of all groups of this broker would take {self._held_bytes + growth_bytes} "
                f"bytes of memory; kalda.groups.members.max.bytes allows {highest}.",
            )
        self._held_bytes += growth_bytes
