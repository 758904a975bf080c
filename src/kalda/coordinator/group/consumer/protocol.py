"""The consumer protocol of one shard: all that requests may ask of its consumer groups."""

from collections.abc import Callable
from typing import Final

from kalda.coordinator.group.classic.classic_protocol import ClassicProtocol
from kalda.coordinator.group.consumer.classic_members import ClassicMembers
from kalda.coordinator.group.consumer.consumer_group_config import ConsumerGroupConfig
from kalda.coordinator.group.consumer.consumer_groups import ConsumerGroups
from kalda.coordinator.group.consumer.describe import describe
from kalda.coordinator.group.consumer.heartbeats import Heartbeats
from kalda.coordinator.group.consumer.migration import Migration
from kalda.coordinator.group.consumer.topics import TopicsView
from kalda.coordinator.group.group import GroupType
from kalda.coordinator.group.shard import GroupShard
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.protocol.messages.consumer_group_describe import DescribedGroup
from kalda.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

__all__ = ["ConsumerProtocol"]


class ConsumerProtocol:
    """Registers itself with the shard, whose records of KIP-848 it reads from then on."""

    def __init__(
        self,
        shard: GroupShard,
        config: ConsumerGroupConfig,
        topics: TopicsView,
        new_id: Callable[[], str],
        classic: ClassicProtocol | None = None,
    ) -> None:
        """`new_id` makes the ids of members whose clients leave that to the coordinator.

        With the shard's `classic` protocol, groups may have members that speak it, and change over.
        """
        self.groups: Final = ConsumerGroups(shard, config, topics, new_id)
        if classic is None:
            self._heartbeats = Heartbeats(self.groups)
            return
        migration = Migration(self.groups, classic.rebalance)
        self._heartbeats = Heartbeats(self.groups, migration.upgrade)
        self.groups.migration = migration
        classic.add_bridge(
            GroupType.CONSUMER, ClassicMembers(self.groups, self._heartbeats, migration, classic)
        )

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, api_version: int, client_id: str, client_host: str
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        """Join, stay or leave.

        Raises:
            ApiError: the request is refused.
        """
        return self._heartbeats.heartbeat(request, api_version, client_id, client_host)

    def describe(self, group_id: str) -> DescribedGroup:
        """Describe a group.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND.
        """
        default = next(iter(self.groups.assignors))
        return describe(self.groups.group(group_id), self.groups.topics, default)
