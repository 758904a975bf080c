"""Divides the partitions of a group among its consumers: every consumer for itself, by what ZooKeeper says.

    registered -> watches set -> view read -> assignment computed
        unchanged: go on reading
        changed:   stop reading -> commit -> release what was owned -> claim -> read offsets -> read on
                   a partition is still another's: release, wait, and try again

A consumer that comes or goes, a broker, a new topic or new partitions fire a watch, in all consumers at about
the same time. A claim is an ephemeral znode, so two consumers never own one partition; offsets are read only
after the claim, when the owner before has committed.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

from kalda.clients.errors import ClientError
from kalda.clients.legacy.consumer.consumer_config import ConsumerConfig
from kalda.clients.legacy.consumer.group_registry import GroupRegistry
from kalda.clients.legacy.consumer.partition_assignment import ASSIGNORS, AssignmentError, GroupView
from kalda.clients.legacy.consumer.topic_count import ThreadId, TopicCount
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.schema import BrokerInfo
from kalda.common.backoff import jittered
from kalda.common.public import public_in
from kalda.common.types import TopicPartition
from kalda.runtime.clock import Clock
from kalda.runtime.system.loop_logger import loop_logger
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.zookeeper.errors import ZooKeeperError
from kalda.zookeeper.port import SessionState, WatchEvent, ZooKeeperClient

logger: Final = loop_logger(__name__)

_RETRY_S_MIN: Final = 1.0
"""The shortest wait after a rebalance that failed with all its retries."""


@public_in("kalda.clients.legacy")
class ConsumerRebalanceFailedError(ClientError):
    """A consumer got no partitions within `rebalance.max.retries`."""


class Reading(Protocol):
    """The port by which a rebalance stops and starts the streams."""

    @property
    def is_reading(self) -> bool:
        """Whether messages of the owned partitions are delivered."""
        ...

    def knows(self, brokers: Mapping[int, BrokerInfo]) -> bool:
        """Whether messages are, or can be, fetched from brokers one of which is among these."""
        ...

    async def stop(self) -> None:
        """Withdraw messages not yet taken, and commit consumed ones if commits are automatic."""

    def abandon(self) -> None:
        """Take everything back without a commit: the partitions may be another's."""

    async def begin(
        self, owned: Mapping[TopicPartition, ThreadId], brokers: Mapping[int, BrokerInfo]
    ) -> None:
        """Read the group's offsets and deliver messages from there; raises as the storage does."""


class Rebalancer:
    """The group's side of one connector; on the loop.

    Args:
        config: Retries, back-off, strategy.
        consumer: The name of this consumer in the group.
        wanted: What it wants.
        zookeeper: The session.
        reading: The streams.
        clock: The time in the registration.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer: str,
        wanted: TopicCount,
        zookeeper: ZooKeeperClient,
        reading: Reading,
        clock: Clock,
    ) -> None:
        self._config: Final = config
        self._consumer: Final = consumer
        self._wanted: Final = wanted
        self._zookeeper: Final = zookeeper
        self._registry: Final = GroupRegistry(zookeeper, config.group)
        self._store: Final = ClusterStore(zookeeper, clock, SYSTEM_RANDOM)
        self._reading: Final = reading
        self._clock: Final = clock
        self._assign: Final = ASSIGNORS[config.partition_assignment_strategy]
        self.owned: dict[TopicPartition, ThreadId] = {}
        """The partitions that this consumer owns, with the threads that read them."""
        self._is_registered = False
        self._loss_count = 0
        """How often the session ended, or was silent for so long that it may have."""
        self._is_due: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._silence: asyncio.TimerHandle | None = None
        zookeeper.add_state_listener(self._on_state)

    async def start(self) -> None:
        """Register, and own partitions; then keep up with the group in the background.

        Raises:
            ConsumerRebalanceFailedError: no attempt succeeded.
        """
        await self._synced_rebalance()
        self._task = asyncio.create_task(self._run(), name=f"rebalancer of {self._consumer}")

    async def owned_now(self) -> list[TopicPartition]:
        """Return the partitions that ZooKeeper says are this consumer's."""
        return await self._registry.owned(list(self.owned))

    async def check_ownership(self) -> None:
        """Stop to deliver if ZooKeeper has other owners, and rebalance.

        Raises:
            ZooKeeperError: ZooKeeper does not say who they are.
        """
        losses, owned = self._loss_count, set(self.owned)
        still = set(await self.owned_now())
        if losses == self._loss_count and owned == set(self.owned) and owned != still:
            self._lose()

    async def stop(self) -> None:
        """Stop to rebalance."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._silence is not None:
            self._silence.cancel()

    async def leave(self) -> None:
        """Leave the group, which gets the partitions; raises `ZooKeeperError`."""
        await self._release()
        if self._is_registered:
            await self._registry.unregister(self._consumer)

    async def _run(self) -> None:
        while True:
            await self._is_due.wait()
            try:
                await self._synced_rebalance()
            except ConsumerRebalanceFailedError as error:
                logger.error("%s", error)
                wait = jittered(max(self._config.backoff_s, _RETRY_S_MIN), SYSTEM_RANDOM)
                asyncio.get_running_loop().call_later(wait, self._is_due.set)
            except Exception:
                logger.exception("Consumer %s: a rebalance failed", self._consumer)
                await asyncio.sleep(jittered(_RETRY_S_MIN, SYSTEM_RANDOM))
                self._is_due.set()

    async def _synced_rebalance(self) -> None:
        """Retry until the consumer owns its share of the partitions."""
        attempts = self._config.rebalance_max_retries + 1
        reason = ""
        for attempt in range(attempts):
            if attempt:
                await self._pause()
            self._is_due.clear()
            try:
                reason = await self._rebalance()
            except (ZooKeeperError, ClientError, AssignmentError) as error:
                reason = str(error)
            if not reason:
                return
            logger.info(
                "Consumer %s: attempt %d to rebalance failed: %s", self._consumer, attempt + 1, reason
            )
        raise ConsumerRebalanceFailedError(
            f"consumer {self._consumer} has no partitions after {attempts} attempts to rebalance "
            f"(`rebalance.max.retries`={self._config.rebalance_max_retries}); the last failed: {reason}"
        )

    async def _pause(self) -> None:
        """Wait for the back-off, but not when something has changed."""
        try:
            async with asyncio.timeout(jittered(self._config.backoff_s, SYSTEM_RANDOM)):
                await self._is_due.wait()
        except TimeoutError:
            return

    async def _rebalance(self) -> str:
        """Make one attempt; return why it failed, or nothing."""
        if not self._is_registered:
            self._is_registered = await self._registry.register(
                self._consumer, self._wanted, self._clock.time_ms()
            )
            if not self._is_registered:
                # Of a program that was killed and started again with its `consumer.id`, it expires soon.
                return f"another consumer is registered as {self._consumer}; each needs its own `consumer.id`"
        brokers = await self._store.brokers(self._on_watch)
        consumers = await self._registry.consumers(self._on_watch)
        if self._consumer not in consumers:
            self._is_registered = False
            return f"the registration of {self._consumer} is gone"
        if not brokers:
            # The watch on the brokers brings the next rebalance.
            await self._stop_and_release()
            return ""
        assignment = self._assign(await self._view(consumers))
        mine = {each: thread for each, thread in assignment.items() if thread.consumer == self._consumer}
        goes_on = mine == self.owned and self._reading.is_reading and self._reading.knows(brokers)
        if goes_on and len(await self.owned_now()) == len(mine):
            return ""
        await self._stop_and_release()
        # Also what is not claimed yet: an attempt that fails on the way has claims to release.
        self.owned = mine
        taken = await self._registry.claim(mine)
        if taken:
            await self._release()
            return f"{len(taken)} partitions have other owners yet, the first is {taken[0]}"
        losses = self._loss_count
        await self._reading.begin(mine, brokers)
        if losses != self._loss_count:
            self._reading.abandon()
            return "the session ended while reading began"
        logger.info("Consumer %s owns %d partitions", self._consumer, len(mine))
        return ""

    async def _view(self, consumers: Mapping[str, TopicCount]) -> GroupView:
        topics = await self._store.topics(self._on_watch)
        threads: dict[str, list[ThreadId]] = {}
        for name, count in sorted(consumers.items()):
            exclude = self._config.exclude_internal_topics
            for topic, own in count.threads(name, topics, exclude_internal=exclude).items():
                threads.setdefault(topic, []).extend(own)
        assignments = await self._store.topic_assignments(threads, self._on_watch)
        partitions = {topic: sorted(each.partitions) for topic, each in assignments.items()}
        # The watch covers these, so that all consumers sort alike; present leaders change without one.
        preferred = {
            TopicPartition(topic, number): each.replicas[0]
            for topic, assignment in assignments.items()
            for number, each in assignment.partitions.items()
            if each.replicas
        }
        return GroupView(threads, partitions, preferred)

    async def _stop_and_release(self) -> None:
        await self._reading.stop()
        await self._release()

    async def _release(self) -> None:
        for each in list(self.owned):
            await self._registry.release(each)
            self.owned.pop(each, None)

    def _on_watch(self, event: WatchEvent) -> None:
        self._is_due.set()

    def _on_state(self, state: SessionState) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        if state is SessionState.EXPIRED:
            self._is_registered = False
            self.owned = {}
            self._lose()
        elif state is SessionState.SUSPENDED:
            # A server that cannot be heard may end the session, and give the partitions to others.
            timeout_s = self._config.zookeeper_session_timeout_ms / 1000
            self._silence = asyncio.get_running_loop().call_later(timeout_s, self._lose)
        elif state is SessionState.CONNECTED:
            self._is_due.set()

    def _lose(self) -> None:
        """Stop to deliver at once: other consumers may own the partitions now."""
        if self._reading.is_reading:
            logger.warning("Consumer %s lost its ZooKeeper session, and its partitions", self._consumer)
        self._loss_count += 1
        self._reading.abandon()
        self._is_due.set()
