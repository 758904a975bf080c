"""Writes the leaders' changes of in-sync replicas to ZooKeeper, and notifies the controller of them.

A partition has one pending change at most, so the queue is never longer than the number of partitions.
Changes that are queued during a write go out together with the next one. A ZooKeeper error settles nothing,
since the write may have taken effect: the change stays pending, which is safe (see
`kalda.broker.replicas.partition`), and is written again.

    queued  --written-->                    committed in the partition, announced to the controller
            --newer state, our epoch-->     the partition takes over that state
            --newer state, newer epoch-->   this broker stops leading the partition
"""

import asyncio
import logging
from typing import Final, Protocol, TypeAlias

from kalda.broker.replicas.in_sync import IsrChange
from kalda.broker.replicas.partition import Partition
from kalda.cluster.isr_store import IsrConflict, IsrOutcome, IsrStore, IsrWritten
from kalda.cluster.schema import PartitionState
from kalda.common.backoff import ExponentialBackoff
from kalda.common.log_text import numbers_text, partitions_text
from kalda.common.types import TopicPartition
from kalda.events.event import NO_EVENTS, EventKind, EventSink, Plain
from kalda.runtime.clock import Clock
from kalda.runtime.random import Random
from kalda.zookeeper.errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)

CHANGES_PER_WRITE: Final = 500
"""Changes in one pipelined write. At a few hundred bytes each that is little for any server."""

BACKOFF_MS: Final = (200, 1_000)
"""The pauses after errors of ZooKeeper. They are short, because acks=all producers wait for a shrink."""

ANNOUNCE_CHECK_MS: Final = 500
"""How often `announce` is called. Urgent changes wait for no more than this, and cause two notifications a
second at most; Kafka's brokers check every 2.5 s."""
ANNOUNCE_LINGER_SECONDS: Final = 5.0
"""Other changes are announced when none came for this long, so that many go into one notification ..."""
ANNOUNCE_DELAY_SECONDS_MAX: Final = 60.0
"""... or when the last notification is this old. Both values are Kafka's."""

_Move: TypeAlias = tuple[str, bool, tuple[int, ...], tuple[int, ...]]
"""Topic, whether the change is an expansion, the in-sync replicas before and after it."""


class IsrOutcomes(Protocol):
    """Acts on the outcomes of changes: the replica manager."""

    def wake(self, partition: Partition) -> None:
        """Complete the operations that wait for the high watermark, which has moved."""
        ...

    def step_down(self, partition: Partition, state: PartitionState) -> None:
        """Stop leading: another leader was elected according to ZooKeeper."""
        ...


class IsrChanges:
    """Queues and writes the changes of one broker."""

    def __init__(self, store: IsrStore, clock: Clock, random: Random, events: EventSink = NO_EVENTS) -> None:
        self.store = store
        """Where changes are written; a model of other brokers replaces it."""
        self._clock: Final = clock
        self._events: Final = events
        self._written: Final[dict[_Move, list[Plain]]] = {}
        """Partitions with changes that the present write has made, for one event of the equal ones."""
        self._lagging: Final[dict[_Move, Plain]] = {}
        """For removals, how far behind the removed replicas were in the first of the partitions."""
        self._backoff: Final = ExponentialBackoff(*BACKOFF_MS, random.uniform)
        self._queue: dict[TopicPartition, tuple[Partition, IsrChange]] = {}
        self._is_queued: Final = asyncio.Event()
        self._unlogged: Final[dict[_Move, list[int]]] = {}
        """Partitions with changes to log: a broker that restarts causes dozens of equal ones."""
        self._is_failing = False
        """Whether the last write failed; an outage may be long, and is logged once."""
        self._unannounced: Final[set[TopicPartition]] = set()
        self._last_change = clock.monotonic()
        self._last_notice = clock.monotonic()
        self._is_urgent = False
        """Whether to notify the controller at once: a leader without disk space can now hand over, or a
        reassignment may be complete."""
        self.shrinks = 0
        self.expansions = 0
        self.failures = 0

    def __len__(self) -> int:
        return len(self._queue)

    def submit(self, partition: Partition, change: IsrChange) -> None:
        """Queue a change that the partition has just made pending."""
        assert partition.pending_isr is change, f"{partition} has {partition.pending_isr}, not {change}"
        topic, number = partition.topic_partition
        move = topic, change.is_expansion, partition.isr, change.isr
        self._unlogged.setdefault(move, []).append(number)
        self._queue[partition.topic_partition] = partition, change
        self._is_queued.set()

    async def run(self, outcomes: IsrOutcomes) -> None:
        """Write queued changes until cancelled."""
        failures = 0
        while True:
            await self._is_queued.wait()
            if await self.write_some(outcomes):
                failures = 0
            else:
                failures += 1
                await asyncio.sleep(self._backoff.seconds(failures))

    async def write_some(self, outcomes: IsrOutcomes) -> bool:
        """Write at most `CHANGES_PER_WRITE` queued changes; return whether none has to be retried."""
        self._log_submitted()
        batch = list(self._queue.values())[:CHANGES_PER_WRITE]
        for partition, _ in batch:
            del self._queue[partition.topic_partition]
        if not self._queue:
            self._is_queued.clear()
        # A partition with a new role has dropped its change.
        batch = [(partition, change) for partition, change in batch if partition.pending_isr is change]
        if not batch:
            return True
        results: list[IsrOutcome]
        try:
            results = await self.store.write([(change.topic_partition, change.wanted) for _, change in batch])
        except ZooKeeperError as error:
            results = [error] * len(batch)
        errors: list[ZooKeeperError] = []
        for (partition, change), result in zip(batch, results, strict=True):
            if partition.pending_isr is not change:
                continue
            if isinstance(result, ZooKeeperError):
                errors.append(result)
                self.failures += 1
                self._queue.setdefault(partition.topic_partition, (partition, change))
            else:
                self._settle(outcomes, partition, change, result)
        self._emit_written()
        if self._queue:
            self._is_queued.set()
        if errors and not self._is_failing:
            logger.warning("retrying %d changes of in-sync replicas: %s", len(errors), errors[0])
        elif batch and not errors and self._is_failing:
            logger.info("writing changes of in-sync replicas again")
        self._is_failing = bool(errors)
        return not errors

    def _log_submitted(self) -> None:
        """Log the changes since the last write, with one line for the equal changes of a topic."""
        for (topic, is_expansion, before, after), partitions in self._unlogged.items():
            logger.info(
                "%s the in-sync replicas of %s from %s to %s",
                "expanding" if is_expansion else "shrinking",
                partitions_text(topic, partitions),
                numbers_text(before),
                numbers_text(after),
            )
        self._unlogged.clear()

    def _settle(
        self,
        outcomes: IsrOutcomes,
        partition: Partition,
        change: IsrChange,
        result: IsrWritten | IsrConflict,
    ) -> None:
        if isinstance(result, IsrWritten):
            if change.is_expansion:
                self.expansions += 1
                self._is_urgent |= not partition.log.is_writable
            else:
                self.shrinks += 1
            self._is_urgent |= partition.is_being_reassigned
            self._unannounced.add(change.topic_partition)
            self._last_change = self._clock.monotonic()
            self._note_written(partition, change, result.version)
            if partition.commit_isr(change, result.version):
                outcomes.wake(partition)
            return
        self.failures += 1
        state = result.state
        if state is None:
            # The topic is being deleted; the change stays pending until the replica goes.
            logger.info(
                "%s: there is no state to change any more",
                partition.topic_partition,
            )
        elif state.leader_epoch == partition.leader_epoch:
            logger.info(
                "%s: another broker changed the state: leader %d, epoch %d, in-sync replicas %s",
                partition.topic_partition,
                state.leader,
                state.leader_epoch,
                numbers_text(state.isr),
            )
            if partition.adopt_state(state):
                outcomes.wake(partition)
        else:
            settle_newer_state(outcomes, partition, state)

    def _note_written(self, partition: Partition, change: IsrChange, version: int) -> None:
        topic, number = partition.topic_partition
        move = topic, change.is_expansion, partition.isr, change.isr
        self._written.setdefault(move, []).append([number, partition.leader_epoch, version])
        removed = [] if change.is_expansion else sorted(set(partition.isr) - set(change.isr))
        if removed and move not in self._lagging:
            self._lagging[move] = [partition.lag_of(replica, self._clock.monotonic()) for replica in removed]

    def _emit_written(self) -> None:
        """Emit the changes that were written, with one event for the equal changes of a topic."""
        for move, partitions in self._written.items():
            topic, _, before, after = move
            details: dict[str, Plain] = {
                "partitions": partitions,
                "isr_before": before,
                "isr": after,
                "by": "leader",
            }
            if move in self._lagging:
                details["lagging"] = self._lagging[move]
            self._events.emit(EventKind.ISR_CHANGED, {"topic": topic}, details)
        self._written.clear()
        self._lagging.clear()

    async def check_leadership(self, outcomes: IsrOutcomes, partitions: list[Partition]) -> None:
        """Stop leading where ZooKeeper has another leader; called after a session expired and was replaced.

        Raises:
            ZooKeeperError: not everything could be read.
        """
        for start in range(0, len(partitions), CHANGES_PER_WRITE):
            some = {
                partition.topic_partition: partition
                for partition in partitions[start : start + CHANGES_PER_WRITE]
            }
            states = await self.store.states(some)
            for name, state in states.items():
                if some[name].is_leader:
                    settle_newer_state(outcomes, some[name], state)

    async def announce(self) -> None:
        """Notify the controller of changes if it is time to; called every `ANNOUNCE_CHECK_MS`."""
        now = self._clock.monotonic()
        if not self._unannounced or (
            not self._is_urgent
            and now - self._last_change < ANNOUNCE_LINGER_SECONDS
            and now - self._last_notice < ANNOUNCE_DELAY_SECONDS_MAX
        ):
            return
        partitions = frozenset(self._unannounced)
        # What changes again during the write needs another notification.
        self._unannounced.clear()
        self._is_urgent = False
        try:
            await self.store.announce(partitions)
        except ZooKeeperError as error:
            self._unannounced.update(partitions)
            logger.warning(
                "cannot notify the controller of changed in-sync replicas of %d partitions: %s",
                len(partitions),
                error,
            )
            return
        self._last_notice = now


def settle_newer_state(outcomes: IsrOutcomes, partition: Partition, state: PartitionState) -> None:
    """Stop leading if ZooKeeper holds a newer leader epoch with another leader.

    If the newer epoch is this broker's, the controller's request is under way and decides.
    """
    if state.leader_epoch > partition.leader_epoch and state.leader != partition.broker_id:
        outcomes.step_down(partition, state)
