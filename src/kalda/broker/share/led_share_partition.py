"""Runs one share partition that this broker leads: its core, and the writes to the share coordinator.

Changes that arrive while one is being stored are stored together afterwards. One timer ends locks and
waits. Records that are given up are archived after their dead letters are written; what fails is tried again.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from kalda.broker.replicas.partition import Partition
from kalda.broker.share.record_facts import FactsReader
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.common.types import TopicPartition
from kalda.coordinator.runtime.timers import Timer, Timers
from kalda.coordinator.share.delivery_state import PartitionState
from kalda.coordinator.share.in_flight_records import DeadRange
from kalda.coordinator.share.partition_limits import PartitionLimits
from kalda.coordinator.share.record_ranges import Transition
from kalda.coordinator.share.share_partition import SharePartition
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.coordinator.share.share_shard import StateChange
from kalda.runtime.background import BackgroundExecutor
from kalda.storage.unified_log import UnifiedLog

logger: Final = logging.getLogger(__name__)

RETRY_MS: Final = 1_000
"""The pause before a change that could not be stored is tried again by a timer."""

LETTERS_MAX: Final = 500
"""Records whose dead letters are written together at most."""

_LETTER_RETRY_MAX_MS: Final = 30_000
"""Pauses between attempts to write dead letters double up to this one."""

_FENCED: Final = frozenset((ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH))


class PartitionStates(Protocol):
    """Reads and writes the state of share partitions."""

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Pending[PartitionState]:
        """Read the state as the leader."""
        ...

    def write(self, key: SharePartitionKey, change: StateChange) -> Pending[None]:
        """Write a change as the leader."""
        ...


class DeadLetterWriter(Protocol):
    """Writes dead letters to the topics that groups name."""

    def write(
        self, group_id: str, name: TopicPartition, log: UnifiedLog, dead: Sequence[DeadRange]
    ) -> Pending[list[DeadRange]]:
        """Write letters for the first of the records at least; done with those that are written."""
        ...


class _Stored:
    """A change that waits to be stored, and what then completes."""

    __slots__ = ("done", "transition")

    def __init__(self, transition: Transition, done: Pending[None]) -> None:
        self.transition: Final = transition
        self.done: Final = done


class LedSharePartition:
    """A share partition that this broker leads in one leader epoch."""

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        states: PartitionStates,
        letters: DeadLetterWriter,
        timers: Timers,
        monotonic_ms: Callable[[], int],
        background: BackgroundExecutor,
        *,
        limits: Callable[[], PartitionLimits],
        start_offset: Callable[[Partition], Pending[int]],
        on_change: Callable[["LedSharePartition"], None],
        on_end: Callable[["LedSharePartition"], None],
    ) -> None:
        """Read the state.

        `start_offset` chooses where a share partition begins that the group has not read. `on_change` is
        called when records may be available, `on_end` when the state was lost to another leader, or could not
        be read.
        """
        self.key: Final = key
        self.partition: Final = partition
        self.leader_epoch: Final = partition.leader_epoch
        self.core: SharePartition | None = None
        """None while the state, or where to begin, is being read."""
        self.error: ApiError | None = None
        """Why the share partition has ended."""
        self._states: Final = states
        self._letters: Final = letters
        self._timers: Final = timers
        self._monotonic_ms: Final = monotonic_ms
        self._limits: Final = limits
        self._start_offset: Final = start_offset
        self._on_change: Final = on_change
        self._on_end: Final = on_end
        self.facts: Final = FactsReader(background, partial(on_change, self))
        """Reads what decides when records are delivered."""
        self._queue: list[_Stored] = []
        self._is_writing = False
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._is_burying = False
        """Whether dead letters are being written, or it is being stored that they are."""
        self._written: Sequence[DeadRange] = ()
        """Records whose dead letters are written, which is not stored yet."""
        self._letter_failures = 0
        """In a row."""
        self._letter_problem = ""
        self._letter_timer: Timer | None = None
        states.read(key, self.leader_epoch).add_done(self._on_read)

    @property
    def is_storing(self) -> bool:
        """Whether a change is being stored, or dead letters are being written."""
        return self._is_writing or self._is_burying

    @property
    def has_acquired(self) -> bool:
        """Whether a member has records that it has not acknowledged."""
        return self.core is not None and self.core.acquired_count > 0

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads the partition in the same epoch."""
        partition = self.partition
        return (
            self.error is None
            and partition.is_leader
            and not partition.is_gone
            and partition.leader_epoch == self.leader_epoch
        )

    def _on_read(self, done: Pending[PartitionState]) -> None:
        if self.error is not None:
            return
        if done.error is not None:
            self._fail(done.error)
            return
        state = done.value
        if state.start_offset < 0:
            self._start_offset(self.partition).add_done(partial(self._on_start_offset, state))
        else:
            self._begin(state)

    def _on_start_offset(self, state: PartitionState, done: Pending[int]) -> None:
        if self.error is not None:
            return
        if done.error is not None:
            self._fail(done.error)
        else:
            self._begin(state._replace(start_offset=done.value, ranges=()))

    def _fail(self, error: Exception) -> None:
        self.end(error if isinstance(error, ApiError) else ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _begin(self, state: PartitionState) -> None:
        self.core = SharePartition(state, self._limits())
        self._bury()
        self._on_change(self)

    def refresh(self, core: SharePartition) -> None:
        """Apply the group's present settings, and drop records that the log has deleted."""
        core.set_limits(self._limits())
        core.move_start(self.partition.log.log_start_offset)

    def store(self, transition: Transition | None) -> Pending[None]:
        """Store a change and confirm it; the result fails, and the change is taken back, if that fails."""
        done: Pending[None] = Pending()
        if transition is None:
            self.arm()
            done.complete(None)
            return done
        if self.error is not None:
            done.fail(self.error)
            return done
        self._queue.append(_Stored(transition, done))
        if not self._is_writing:
            self._write()
        return done

    def _write(self) -> None:
        core = self.core
        assert core is not None, f"{self.key} changes before its state was read"
        batch, self._queue = self._queue, []
        progress = core.progress(each.transition for each in batch)
        self._is_writing = True
        change = StateChange(core.state_epoch, self.leader_epoch, *progress)
        self._states.write(self.key, change).add_done(partial(self._on_written, core, batch))

    def _on_written(self, core: SharePartition, batch: list[_Stored], done: Pending[None]) -> None:
        self._is_writing = False
        error = done.error
        if error is None:
            for each in batch:
                core.confirm(each.transition)
        else:
            for each in batch:
                core.take_back(each.transition)
            if isinstance(error, ApiError) and error.code in _FENCED:
                error = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
                self.end(error)
            else:
                logger.warning("%s: a change of its state could not be stored: %s", self.key, error)
        lost: list[_Stored] = []
        if self._queue:
            if self.error is None:
                self._write()
            else:
                lost, self._queue = self._queue, []
        self.arm(RETRY_MS if error is not None else 0)
        for each in batch:
            if error is None:
                each.done.complete(None)
            else:
                each.done.fail(error)
        for each in lost:
            # They were not stored, whatever became of those before them.
            each.done.fail(self.error or ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        self._bury()
        self._on_change(self)

    def _bury(self) -> None:
        """Write the next dead letters, and archive their records; not while that is done for some already."""
        core = self.core
        if core is None or self.error is not None or self._is_burying or self._letter_timer is not None:
            return
        if core.dead_ranges(1):
            self.refresh(core)
        dead = core.dead_ranges(LETTERS_MAX)
        if not dead:
            self._written = ()
        elif self._written or not core.limits.has_dead_letters:
            self._is_burying = True
            self.store(core.bury(self._written or dead)).add_done(self._on_buried)
        else:
            self._is_burying = True
            name, log = self.partition.topic_partition, self.partition.log
            self._letters.write(self.key.group_id, name, log, dead).add_done(self._on_letters)

    def _on_letters(self, done: Pending[list[DeadRange]]) -> None:
        self._is_burying = False
        if done.error is None:
            self._letter_failures, self._letter_problem = 0, ""
            self._written = done.value
            self._bury()
        else:
            problem, self._letter_problem = self._letter_problem, str(done.error)
            if problem != self._letter_problem:
                logger.warning("%s: dead letters wait: %s", self.key, done.error)
            self._retry_burying()
            self._on_change(self)

    def _on_buried(self, done: Pending[None]) -> None:
        self._is_burying = False
        if done.error is None:
            self._written = ()
            self._bury()
        else:
            self._retry_burying()

    def _retry_burying(self) -> None:
        if self.error is None:
            pause_ms = min(RETRY_MS << min(self._letter_failures, 10), _LETTER_RETRY_MAX_MS)
            self._letter_failures += 1
            self._letter_timer = self._timers.add(self._on_letter_time, pause_ms)

    def _on_letter_time(self) -> None:
        self._letter_timer = None
        if self.is_current:
            self._bury()
        elif self.error is None:
            self.end(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def arm(self, delay_min_ms: int = 0) -> None:
        """Set the timer for the first lock or wait that ends."""
        core = self.core
        if core is None or self.error is not None:
            return
        deadline_ms = core.next_deadline_ms
        if deadline_ms is None:
            return
        now_ms = self._monotonic_ms()
        deadline_ms = max(deadline_ms, now_ms + delay_min_ms)
        if self._timer is not None and self._timer.is_waiting:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._timers.add(self._on_time, max(deadline_ms - now_ms, 1))

    def _on_time(self) -> None:
        self._timer = None
        core = self.core
        if core is not None and self.error is None:
            if self.is_current:
                now_ms = self._monotonic_ms()
                have_ended = core.end_waits(now_ms)
                self.store(core.expire(now_ms))
                if have_ended:
                    self._on_change(self)
            else:
                self.end(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def end(self, error: ApiError) -> None:
        """Stop, because another broker leads, no member fetches, or the state cannot be read."""
        if self.error is not None:
            return
        self.error = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._letter_timer is not None:
            self._letter_timer.cancel()
            self._letter_timer = None
        self._on_end(self)
        self._on_change(self)
