"""Keeps the groups and committed offsets of one partition of ``__consumer_offsets``.

The two group protocols and the operations on offsets read this state and decide; they set timers through its
context. What is not here: replaying records, which `kalda.coordinator.group.group_shard` does. What lives
beside the log while this broker leads (waiting requests, timers) is in the groups and is lost with the
leadership, as in Kafka.
"""

from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.group.group import Group
from kalda.coordinator.group.group_config import GroupConfig
from kalda.coordinator.group.member_memory import MemberMemory
from kalda.coordinator.group.offset_store import OffsetStore
from kalda.coordinator.runtime.coordinator_shard import ShardContext
from kalda.events.event import NO_EVENTS, EventSink


class GroupShardState:
    """The groups and offsets of one partition."""

    def __init__(
        self,
        partition: int,
        config: GroupConfig,
        memory: MemberMemory | None = None,
        events: EventSink = NO_EVENTS,
    ) -> None:
        """`memory` is that of all shards of a broker; without it the shard has one of its own."""
        self.events: Final = events
        self.partition: Final = partition
        self.config: Final = config
        self.groups: Final[dict[str, Group]] = {}
        self.memory: Final = memory or MemberMemory(
            config, lambda: sum(group.held_bytes for group in self.groups.values())
        )
        self.offsets: Final = OffsetStore()
        self._context: ShardContext | None = None

    @property
    def is_loaded(self) -> bool:
        """Whether the whole log was replayed and this broker leads the partition."""
        return self._context is not None

    @property
    def context(self) -> ShardContext:
        """The clock, timers and writes of the loaded shard."""
        assert self._context is not None, f"partition {self.partition} is not loaded"
        return self._context

    def group(self, group_id: str) -> Group:
        """Return a group of any type.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND.
        """
        found = self.groups.get(group_id)
        if found is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return found
