"""Changes of in-sync replicas on their way to coordination, and the notice of them to the controller.

A partition has one change under way at most, so the queue is never longer than there are partitions; what is
queued while a write is under way goes out together with the next. An error of coordination settles nothing:
the write may have taken effect, so the change stays pending (which is the safe side, see
`kalda.broker.replicas.partition`) and is asked for again.

    queued  --written-->  committed in the partition, announced to the controller in a while
            --somebody wrote first, our leader epoch-->   what coordination holds is taken over
            --somebody wrote first, a newer leader-->     this broker steps down at once
"""

import asyncio
import logging
from typing import Final, Protocol, TypeAlias

from kalda.broker.replicas.in_sync import IsrChange
from kalda.broker.replicas.partition import Partition
from kalda.common.clock import Clock
from kalda.common.log_text import numbers_text, partitions_text
from kalda.common.types import TopicPartition
from kalda.zk.client.isr_store import IsrConflict, IsrOutcome, IsrStore, IsrWritten
from kalda.zk.client.schema import PartitionState
from kalda.zk.client.zookeeper_errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)

CHANGES_PER_WRITE: Final = 500
"""Pipelined in one go. At a few hundred bytes each that is a small write for any server."""

RETRY_SECONDS: Final = 0.2
"""Pause after an error of coordination. It is short, since acks=all waits for a shrink."""

ANNOUNCE_CHECK_MS: Final = 2500
"""How often to look whether changes are to be announced; this and the two below are Kafka's."""
ANNOUNCE_LINGER_SECONDS: Final = 5.0
"""Changes are announced once none has come for so long, so that many go in one notice ..."""
ANNOUNCE_DELAY_SECONDS_MAX: Final = 60.0
"""... or when the last notice is this old."""

_Move: TypeAlias = tuple[str, bool, tuple[int, ...], tuple[int, ...]]
"""Topic, whether the change is an expansion, the in-sync replicas before and after it."""


class IsrOutcomes(Protocol):
    """Whoever acts on what became of changes: the replica manager."""

    def wake(self, partition: Partition) -> None:
        """Complete what can be: the high watermark moved."""
        ...

    def step_down(self, partition: Partition, state: PartitionState) -> None:
        """Stop leading: coordination says that another leader was elected."""
        ...


class IsrChanges:
    """The queue of changes of one broker."""

    def __init__(self, store: IsrStore, clock: Clock) -> None:
        self._store: Final = store
        self._clock: Final = clock
        self._queue: dict[TopicPartition, tuple[Partition, IsrChange]] = {}
        self._is_queued: Final = asyncio.Event()
        self._unlogged: Final[dict[_Move, list[int]]] = {}
        """Partitions whose changes have not been logged: a broker that comes back moves dozens alike."""
        self._is_failing = False
        """Whether the last write failed: coordination may be away for long, and one line says so."""
        self._unannounced: Final[set[TopicPartition]] = set()
        self._last_change = clock.monotonic()
        self._last_notice = clock.monotonic()
        self._is_urgent = False
        """Whether the controller should hear at once: a leader that cannot write may hand over now."""
        self.shrinks = 0
        self.expansions = 0
        self.failures = 0

    def __len__(self) -> int:
        return len(self._queue)

    def submit(self, partition: Partition, change: IsrChange) -> None:
        """Have a change written that the partition has just made pending."""
        topic, number = partition.topic_partition
        move = topic, change.is_expansion, partition.isr, change.isr
        self._unlogged.setdefault(move, []).append(number)
        self._queue[partition.topic_partition] = partition, change
        self._is_queued.set()

    async def run(self, outcomes: IsrOutcomes) -> None:
        """Write changes as they come, until cancelled."""
        while True:
            await self._is_queued.wait()
            if not await self.write_some(outcomes):
                await asyncio.sleep(RETRY_SECONDS)

    async def write_some(self, outcomes: IsrOutcomes) -> bool:
        """Write what is queued, up to a bound; return False where something has to be tried again."""
        self._log_submitted()
        batch = list(self._queue.values())[:CHANGES_PER_WRITE]
        for partition, _ in batch:
            del self._queue[partition.topic_partition]
        if not self._queue:
            self._is_queued.clear()
        # A partition that got a new role has dropped its change.
        batch = [(partition, change) for partition, change in batch if partition.pending_isr is change]
        if not batch:
            return True
        results: list[IsrOutcome]
        try:
            results = await self._store.write(
                [(change.topic_partition, change.wanted) for _, change in batch]
            )
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
        if self._queue:
            self._is_queued.set()
        if errors and not self._is_failing:
            logger.warning("%d changes of in-sync replicas are tried again: %s", len(errors), errors[0])
        elif batch and not errors and self._is_failing:
            logger.info("changes of in-sync replicas are written again")
        self._is_failing = bool(errors)
        return not errors

    def _log_submitted(self) -> None:
        """Log what was submitted since the last write, like changes of a topic in one line."""
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
            self._unannounced.add(change.topic_partition)
            self._last_change = self._clock.monotonic()
            if partition.commit_isr(change, result.version):
                outcomes.wake(partition)
            return
        self.failures += 1
        state = result.state
        if state is None:
            # The topic is being deleted; what stays pending ends with the replica.
            logger.info("%s: no state to change the in-sync replicas of", partition.topic_partition)
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

    async def check_leadership(self, outcomes: IsrOutcomes, partitions: list[Partition]) -> None:
        """Step down where coordination has another leader; for a session that was lost and is anew.

        Raises:
            ZooKeeperError: not everything could be read.
        """
        for start in range(0, len(partitions), CHANGES_PER_WRITE):
            some = {
                partition.topic_partition: partition
                for partition in partitions[start : start + CHANGES_PER_WRITE]
            }
            states = await self._store.states(some)
            for name, state in states.items():
                if some[name].is_leader:
                    settle_newer_state(outcomes, some[name], state)

    async def announce(self) -> None:
        """Tell the controller what changed, if it is time; called every `ANNOUNCE_CHECK_MS`."""
        now = self._clock.monotonic()
        if not self._unannounced or (
            not self._is_urgent
            and now - self._last_change < ANNOUNCE_LINGER_SECONDS
            and now - self._last_notice < ANNOUNCE_DELAY_SECONDS_MAX
        ):
            return
        partitions = frozenset(self._unannounced)
        # What changes again while the notice is under way needs another one.
        self._unannounced.clear()
        self._is_urgent = False
        try:
            await self._store.announce(partitions)
        except ZooKeeperError as error:
            self._unannounced.update(partitions)
            logger.warning("in-sync replicas of %d partitions not announced: %s", len(partitions), error)
            return
        self._last_notice = now


def settle_newer_state(outcomes: IsrOutcomes, partition: Partition, state: PartitionState) -> None:
    """Act on a state that coordination holds: a newer leader ends our leadership, ours changes nothing.

    Where the newer epoch is our own the controller's request is on its way and decides.
    """
    if state.leader_epoch > partition.leader_epoch and state.leader != partition.broker_id:
        outcomes.step_down(partition, state)
