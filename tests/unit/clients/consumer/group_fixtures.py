"""What the tests of both group drivers share: a cluster, a listener that keeps a log, and the poll."""

import asyncio
from collections.abc import Collection
from typing import Any
from uuid import UUID

from kalda.clients.consumer.group.membership import GroupMembership, GroupOptions
from kalda.clients.consumer.offset_reset import EARLIEST
from kalda.clients.consumer.rebalance_listener import RebalanceEvent
from kalda.clients.consumer.subscription_state import SubscriptionState
from kalda.clients.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from tests.unit.clients.scripted_network import ScriptedNetwork, settle
from tests.virtual_time import LoopClock

GROUP = "g"
TOPIC_ID = UUID(int=10)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MAX_POLL_INTERVAL_MS = 60_000


def cluster() -> ClusterMetadata:
    """Return broker 1, which leads both partitions of the topic."""
    partitions = {
        each.partition: PartitionMetadata(each, 1, 0, ErrorCode.NONE, (1,), (1,)) for each in (T0, T1)
    }
    topics = {"t": TopicMetadata("t", TOPIC_ID, False, ErrorCode.NONE, partitions)}
    return ClusterMetadata(1, "c", 1, {1: BrokerEndpoint(1, "h", 9092)}, topics)


class GroupMember:
    """A member that subscribes to the topic; derived classes make its driver."""

    member: GroupMembership

    def __init__(self) -> None:
        self.network = ScriptedNetwork(LoopClock(), cluster())
        self.client: Any = self.network
        self.subscription = SubscriptionState(EARLIEST)
        self.subscription.subscribe(["t"])
        self.events: list[tuple[RebalanceEvent, list[TopicPartition]]] = []
        """The calls of the listener."""
        self.wake_count = 0

    def options(self, *, is_static: bool = False, auto_commit_ms: int | None = None) -> GroupOptions:
        return GroupOptions(
            group_id=GROUP,
            group_instance_id="static" if is_static else None,
            rack=None,
            max_poll_interval_ms=MAX_POLL_INTERVAL_MS,
            auto_commit_interval_ms=auto_commit_ms,
            exclude_internal_topics=True,
            wake=self._wake,
            on_committed=lambda offsets: None,
        )

    async def invoke(self, event: RebalanceEvent, partitions: Collection[TopicPartition]) -> None:
        """Play the listener."""
        self.events.append((event, list(partitions)))

    def _wake(self) -> None:
        self.wake_count += 1

    async def poll(self) -> None:
        """Call poll, and again as long as the member wakes it."""
        while True:
            before = self.wake_count
            self.member.polled(self.network.clock.monotonic())
            await settle()
            if before == self.wake_count:
                return

    async def pass_time(self, seconds: float) -> None:
        """Let time pass without a poll."""
        await asyncio.sleep(seconds)
        await settle()

    def take_events(self) -> list[tuple[RebalanceEvent, list[TopicPartition]]]:
        events, self.events = self.events, []
        return events
