"""Starts and ends the replica fetchers of one broker: one for each leader and fetcher number.

The leader and the partition's name decide which fetcher a partition belongs to, as in Kafka, so it stays the
same as long as ``num.replica.fetchers`` does.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from zlib import crc32

from kalda.broker.replicas.follower.fetch_state import FetchState, FetchStatus
from kalda.broker.replicas.follower.fetcher_core import FetcherCore
from kalda.broker.replicas.follower.follower_fetch_session import FollowerFetchSession
from kalda.broker.replicas.follower.ports import LeaderDialer
from kalda.broker.replicas.follower.replica_fetcher import FetcherSettings, ReplicaFetcher
from kalda.broker.replicas.replication_quota import FOLLOWER_RATE, ReplicationQuota
from kalda.common import invariants
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.events.event import NO_EVENTS, EventSink
from kalda.protocol.fetch_session import TOPIC_IDS_FROM
from kalda.runtime.clock import Clock
from kalda.runtime.random import Random

if TYPE_CHECKING:
    from kalda.broker.replicas.partition import Partition
    from kalda.settings import BrokerConfig

logger: Final = logging.getLogger(__name__)

FETCHERS_SETTING: Final = "num.replica.fetchers"


@dataclass(frozen=True, slots=True)
class ReplicaFetcherStatistics:
    """The state of all fetchers at one moment."""

    fetchers: int
    partitions: int
    failed_partitions: int
    dead_fetchers: int
    """Fetchers with partitions and without a connection."""
    max_lag: int
    bytes_in: int
    """Bytes of records appended from leaders since the start."""


class ReplicaFetcherManager:
    """Assigns followed partitions to fetchers; implements `ports.FollowerFetching`."""

    def __init__(
        self,
        broker_id: int,
        config: "BrokerConfig",
        *,
        dialer: LeaderDialer,
        find_broker: Callable[[int], BrokerEndpoint | None],
        quota: ReplicationQuota,
        wake: "Callable[[Partition], object]",
        broker_epoch: Callable[[], int],
        clock: Clock,
        random: Random,
        tasks: asyncio.TaskGroup,
        events: EventSink = NO_EVENTS,
    ) -> None:
        """`find_broker` returns the endpoint of a live broker; `wake` is called for moved watermarks."""
        self._broker_id: Final = broker_id
        self._config: Final = config
        self._dialer: Final = dialer
        self._find_broker: Final = find_broker
        self.quota: Final = quota
        self._wake: Final = wake
        self._broker_epoch: Final = broker_epoch
        self._clock: Final = clock
        self._random: Final = random
        self._tasks: Final = tasks
        self._events: Final = events
        self._fetchers: Final[dict[tuple[int, int, bool], ReplicaFetcher]] = {}
        """By leader, number, and whether requests name topics by id: one request cannot do both."""
        self._fetcher_of: Final[dict[TopicPartition, ReplicaFetcher]] = {}
        self._without_topic_ids: Final[set[int]] = set()
        """Leaders that support no Fetch with topic ids: Apache Kafka before 3.1."""
        self._running: Final[set[asyncio.Task[None]]] = set()
        self._bytes_in_before = 0
        """The bytes of fetchers that have ended."""
        self._is_closed = False
        quota.set_rate(config.follower_replication_throttled_rate)

    # FollowerFetching.

    def follow(self, partitions: "Sequence[Partition]") -> None:
        """Fetch each partition from its leader at its leader epoch from now on."""
        for partition in partitions:
            self._follow(partition)
        if invariants.enabled:
            self.check_invariants()

    def unfollow(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching these; when this returns, no fetcher touches their logs any more."""
        for topic_partition in partitions:
            fetcher = self._fetcher_of.pop(topic_partition, None)
            if fetcher is not None:
                fetcher.unfollow(topic_partition)

    # Changes of the cluster and the settings.

    def on_cluster_change(self, _topics: Collection[str]) -> None:
        """Retry the connections to leaders that are not connected, as the metadata has changed."""
        for fetcher in self._fetchers.values():
            fetcher.nudge()

    def on_settings_change(self, names: frozenset[str]) -> None:
        """Apply changed settings."""
        if FOLLOWER_RATE in names:
            self.quota.set_rate(self._config.follower_replication_throttled_rate)
        if FETCHERS_SETTING in names:
            self._assign_again([state for _, state in self.states()])

    def close_nowait(self) -> None:
        """Stop all fetching without waiting until the connections are closed, as if the process had died."""
        self._is_closed = True
        self.unfollow(list(self._fetcher_of))
        for task in self._running:
            task.cancel()

    async def close(self) -> None:
        """Stop all fetching."""
        running = list(self._running)
        self.close_nowait()
        await asyncio.gather(*running, return_exceptions=True)

    def statistics(self) -> ReplicaFetcherStatistics:
        """Return the state of all fetchers; it visits every partition."""
        fetchers = self._fetchers.values()
        states = [state for _, state in self.states()]
        return ReplicaFetcherStatistics(
            fetchers=len(fetchers),
            partitions=len(states),
            failed_partitions=sum(state.status is FetchStatus.FAILED for state in states),
            dead_fetchers=sum(not fetcher.is_connected for fetcher in fetchers if fetcher.core.states),
            max_lag=max((state.lag or 0 for state in states), default=0),
            bytes_in=self.bytes_in,
        )

    @property
    def bytes_in(self) -> int:
        """Bytes of records appended from leaders since the start."""
        return self._bytes_in_before + sum(fetcher.core.bytes_in for fetcher in self._fetchers.values())

    def state(self, topic_partition: TopicPartition) -> FetchState | None:
        """Return the state of a followed partition, or None."""
        fetcher = self._fetcher_of.get(topic_partition)
        return None if fetcher is None else fetcher.core.states.get(topic_partition)

    def states(self) -> Iterator[tuple[str, FetchState]]:
        """Iterate over the followed partitions, each with the client id that its leader sees."""
        for fetcher in self._fetchers.values():
            for state in fetcher.core.states.values():
                yield fetcher.name, state

    def check_invariants(self) -> None:
        """Assert that each followed partition belongs to exactly one fetcher, which has not ended."""
        followed = [(name, each) for each in self._fetchers.values() for name in each.core.states]
        assert len(followed) == len(self._fetcher_of), f"{len(self._fetcher_of)} followed, {followed} fetched"
        for name, fetcher in followed:
            assert self._fetcher_of.get(name) is fetcher, f"{name}: {self._fetcher_of.get(name)}, {fetcher}"
            assert not fetcher.is_over, f"{fetcher} of {name} is over"

    # Internals.

    def _follow(self, partition: "Partition") -> None:
        topic_partition, leader_id = partition.topic_partition, partition.leader_id
        if self._is_closed or partition.is_leader or leader_id < 0 or leader_id == self._broker_id:
            self.unfollow((topic_partition,))
            return
        is_by_id = partition.is_named_by_id and leader_id not in self._without_topic_ids
        fetcher = self._fetcher(leader_id, self._number(topic_partition), is_by_id)
        if self._fetcher_of.get(topic_partition) is not fetcher:
            self.unfollow((topic_partition,))
            self._fetcher_of[topic_partition] = fetcher
        fetcher.follow(partition)

    def _assign_again(self, states: Sequence[FetchState]) -> None:
        self.unfollow([state.topic_partition for state in states])
        self.follow([state.partition for state in states])

    def _on_connected(self, leader_id: int, fetch_version: int) -> None:
        """Name the topics of a leader as it can read them; an upgrade changes that."""
        is_without = fetch_version < TOPIC_IDS_FROM
        if is_without == (leader_id in self._without_topic_ids):
            return
        if is_without:
            self._without_topic_ids.add(leader_id)
        else:
            self._without_topic_ids.remove(leader_id)
        self._assign_again([state for _, state in self.states() if state.partition.leader_id == leader_id])

    def _number(self, topic_partition: TopicPartition) -> int:
        count = self._config.num_replica_fetchers
        if count == 1:
            return 0
        return (31 * crc32(topic_partition.topic.encode()) + topic_partition.partition) % count

    def _fetcher(self, leader_id: int, number: int, is_by_id: bool) -> ReplicaFetcher:
        key = (leader_id, number, is_by_id)
        fetcher = self._fetchers.get(key)
        if fetcher is not None and not fetcher.is_over:
            return fetcher
        config = self._config
        backoff_seconds = config.replica_fetch_backoff_ms / 1000
        session = FollowerFetchSession(
            self._broker_id,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            partition_max_bytes=config.replica_fetch_max_bytes,
            is_by_id=is_by_id,
        )
        fetcher = self._fetchers[key] = ReplicaFetcher(
            f"broker-{self._broker_id}-fetcher-{number}",
            FetcherCore(leader_id, session, self.quota, backoff_seconds),
            FetcherSettings(
                backoff_seconds=backoff_seconds,
                socket_timeout_seconds=config.replica_socket_timeout_ms / 1000,
                # By default the system lets the buffer grow as needed; Kafka's default would keep it small.
                receive_buffer_bytes=(
                    config.replica_socket_receive_buffer_bytes
                    if "replica.socket.receive.buffer.bytes" in config.static
                    else -1
                ),
            ),
            broker_id=self._broker_id,
            dialer=self._dialer,
            find_leader=lambda: self._find_broker(leader_id),
            broker_epoch=self._broker_epoch,
            wake=self._wake,
            on_connected=lambda version: self._on_connected(leader_id, version),
            events=self._events,
            clock=self._clock,
            random=self._random,
        )
        task = self._tasks.create_task(
            self._run(fetcher, key), name=f"replica fetcher {number} of leader {leader_id}"
        )
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return fetcher

    async def _run(self, fetcher: ReplicaFetcher, key: tuple[int, int, bool]) -> None:
        try:
            await fetcher.run()
        finally:
            self._bytes_in_before += fetcher.core.bytes_in
            if self._fetchers.get(key) is fetcher:
                del self._fetchers[key]
