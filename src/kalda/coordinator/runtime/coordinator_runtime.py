"""Runs the operations of a coordinator on its shards: appends their records, replays them, and then answers.

An operation reads a shard and returns records and a response. The runtime appends the records as one batch
and replays them into the shard in the same turn of the event loop. It gives the response when the high
watermark has passed the records:

    write(commit offset 7)   appended at [41]   replayed, waits for 42   <- high watermark 42: answered
    read(fetch offsets)      nothing            sees 7,   waits for 42   <- answered after it

So no client gets a response that could be lost, and nothing is ever rolled back: an append that fails has
changed nothing, and a broker that loses the leadership drops the shard, which the next leader loads from the
log. What is not here: the meaning of records (`CoordinatorShard`), the log (`InternalLog`), elections.

What must not break: only a replayed record changes what a shard would be after loading, and no step between
append and replay may fail or yield.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, TypeVar

from kalda.common import invariants
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.log_text import partitions_text
from kalda.common.pending import Pending
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.runtime.commit_queue import CommitQueue
from kalda.coordinator.runtime.coordinator_shard import CoordinatorShard, InternalLog, Loop, OnWritten, Result
from kalda.coordinator.runtime.load_scheduler import Load, LoadScheduler
from kalda.coordinator.runtime.log_replay import LogReplay
from kalda.coordinator.runtime.shard_context import RuntimeContext
from kalda.coordinator.runtime.timers import make_timers
from kalda.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kalda.records.compression import Compression
from kalda.records.record import RecordBatchBuilder
from kalda.runtime.clock import Clock

logger: Final = logging.getLogger(__name__)

S = TypeVar("S", bound=CoordinatorShard)
T = TypeVar("T")

RELOAD_MS: Final = 5_000
"""The pause between a failed load and the next attempt."""

_APPEND_ERRORS: Final = {
    # The codes of a coordinator, after which clients look the coordinator up again or retry.
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


class PartitionState(Enum):
    """The state of a partition, with the names of Kafka's metric."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """The settings of a runtime."""

    name: str
    """The internal topic, for log lines and error messages."""
    load_buffer_bytes: int = 5 * 1024 * 1024
    compression: Compression = Compression.NONE
    write_timeout_ms: int = 5_000
    """How long reads, and writes that a shard starts itself, wait until they are committed."""


@dataclass(slots=True)
class RuntimeStatistics:
    """Counters of a runtime."""

    loads: int = 0
    load_failures: int = 0
    load_seconds_max: float = 0.0
    records_loaded: int = 0
    records_written: int = 0
    append_failures: int = 0


class _Partition(Generic[S]):
    """One partition that this broker leads."""

    def __init__(
        self, number: int, leader_epoch: int, shard: S, queue: CommitQueue, timers: RuntimeContext
    ) -> None:
        self.number: Final = number
        self.leader_epoch = leader_epoch
        self.shard = shard
        self.queue: Final = queue
        self.timers: Final = timers
        self.state = PartitionState.LOADING
        self.written_offset = -1
        """The end of what the shard has replayed: responses wait until it is committed."""
        self.is_busy = False
        """Whether an operation runs; operations that it starts run after it."""
        self.deferred: Final[deque[Callable[[], None]]] = deque()
        self.load: Load | None = None


class CoordinatorRuntime(Generic[S]):
    """The shards of the partitions that this broker leads."""

    def __init__(
        self,
        log: InternalLog,
        make_shard: Callable[[int], S],
        clock: Clock,
        loop: Loop,
        config: RuntimeConfig,
    ) -> None:
        """`make_shard` returns the empty state of a partition."""
        self._log: Final = log
        self._make_shard: Final = make_shard
        self._clock: Final = clock
        self._loop: Final = loop
        self._config: Final = config
        self._timers: Final = make_timers(clock, loop)
        self._partitions: Final[dict[int, _Partition[S]]] = {}
        self._epochs: Final[dict[int, int]] = {}
        """The newest leader epoch in which each partition was loaded or resigned."""
        self._loader: Final = LoadScheduler(config.name, clock, loop)
        self._resigned: Final[list[int]] = []
        """The partitions that were resigned since the last log line about it."""
        self.statistics: Final = RuntimeStatistics()

    # Leadership.

    def become_leader(self, partition: int, leader_epoch: int) -> None:
        """Load a partition, unless it is loaded already; epochs that go back are ignored.

        A partition that this broker keeps leading in a new epoch keeps its shard: no other broker has
        written to its log.
        """
        if leader_epoch < self._epochs.get(partition, -1):
            return
        present = self._partitions.get(partition)
        if present is not None:
            present.leader_epoch = self._epochs[partition] = leader_epoch
            if present.state is not PartitionState.FAILED:
                return
            self._unload(present)
        self._epochs[partition] = leader_epoch
        self._load(partition, leader_epoch)

    def resign(self, partition: int, leader_epoch: int | None = None) -> None:
        """Drop a partition, unless this broker leads it in a newer epoch than `leader_epoch`.

        Without an epoch the partition was deleted: if the topic is created again, epochs begin again.
        """
        if leader_epoch is None:
            self._epochs.pop(partition, None)
        else:
            if leader_epoch < self._epochs.get(partition, -1):
                return
            self._epochs[partition] = leader_epoch
        present = self._partitions.get(partition)
        if present is not None:
            self._unload(present)
            if not self._resigned:
                self._loop.call_soon(self._report_resigned)
            self._resigned.append(partition)

    def close(self) -> None:
        """Drop all partitions."""
        for partition in tuple(self._partitions.values()):
            self._unload(partition)
        self._timers.close()

    # Looking.

    def states(self) -> dict[int, PartitionState]:
        """Return the state of each partition that this broker leads."""
        return {number: partition.state for number, partition in self._partitions.items()}

    def leader_epoch(self, partition: int) -> int:
        """The epoch that a partition is led in; -1 if it is not."""
        present = self._partitions.get(partition)
        return -1 if present is None else present.leader_epoch

    def shard(self, partition: int) -> S:
        """Return the state as it is now, committed or not.

        For operations that write no records and wait for none: classic heartbeats, and metrics.

        Raises:
            ApiError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self._active(partition).shard

    def waiting_count(self) -> int:
        """Return how many responses wait for the high watermark."""
        return sum(len(partition.queue) for partition in self._partitions.values())

    # Operations.

    def write(
        self,
        partition: int,
        operation: Callable[[S], Result[T]],
        *,
        timeout_ms: int,
        producer: tuple[int, int] | None = None,
    ) -> Pending[T]:
        """Append the records of `operation` as one batch; give its response when the batch is committed.

        With `producer`, a producer id and epoch, the batch is part of that producer's transaction. Without
        records, the response is given when everything that was written before is committed.

        The result fails with ApiError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, the error that
        `operation` raises, the error of the log, or REQUEST_TIMED_OUT if replication takes longer than
        `timeout_ms`; in the last case the records may still be committed later.
        """
        pending: Pending[T] = Pending()
        run = partial(self._write, partition, operation, timeout_ms, producer, pending)
        self._run(partition, run)
        return pending

    def read(
        self, partition: int, operation: Callable[[S], T], *, timeout_ms: int | None = None
    ) -> Pending[T]:
        """Give the result of `operation` when everything that it could see is committed.

        It fails in the same ways as `write`.
        """
        if timeout_ms is None:
            timeout_ms = self._config.write_timeout_ms
        return self.write(partition, lambda shard: Result((), operation(shard)), timeout_ms=timeout_ms)

    def complete_transaction(
        self, partition: int, producer_id: int, producer_epoch: int, committed: bool
    ) -> Pending[None]:
        """Replay a transaction marker that was appended to a partition; done when it is committed.

        While the partition loads there is nothing to do: the load will read the marker.
        """
        pending: Pending[None] = Pending()
        present = self._partitions.get(partition)
        if present is None or present.state is not PartitionState.ACTIVE:
            if present is not None and present.state is PartitionState.LOADING:
                pending.complete(None)
            else:
                pending.fail(self._not_coordinator(partition))
            return pending

        def complete() -> None:
            if present.state is not PartitionState.ACTIVE:
                pending.fail(self._not_coordinator(partition))
                return
            present.shard.replay_end_transaction(producer_id, producer_epoch, committed)
            if invariants.enabled:
                present.shard.check_invariants(())
            present.written_offset = self._log.end_offset(partition)
            self._answer(present, pending, None, self._config.write_timeout_ms)

        self._run(partition, complete)
        return pending

    def on_high_watermark(self, partition: int) -> None:
        """Give the responses that the high watermark has passed."""
        present = self._partitions.get(partition)
        if present is not None and len(present.queue):
            with suppress(ApiError):
                # This broker does not lead any more: `resign` fails the responses that wait.
                present.queue.advance(self._log.high_watermark(partition))

    # Loading.

    def _load(self, number: int, leader_epoch: int) -> None:
        queue = CommitQueue(self._timers, self._clock.monotonic)
        run = partial(self._write_own, number)
        timers = RuntimeContext(self._timers, self._clock, run)
        partition = _Partition(number, leader_epoch, self._make_shard(number), queue, timers)
        self._partitions[number] = partition
        loading = LogReplay(self._log, number, partition.shard, self._config.load_buffer_bytes)
        partition.load = Load(
            number, loading, partial(self._on_loaded, partition), partial(self._on_load_failed, partition)
        )
        self._loader.add(partition.load)

    def _on_loaded(self, partition: _Partition[S], seconds: float) -> None:
        load = partition.load
        assert load is not None, f"partition {partition.number} was loaded without a load"
        partition.written_offset = self._log.end_offset(partition.number)
        partition.load = None
        partition.state = PartitionState.ACTIVE
        partition.shard.on_loaded(partition.timers)
        if invariants.enabled:
            partition.shard.check_invariants()
        statistics = self.statistics
        statistics.loads += 1
        statistics.load_seconds_max = max(statistics.load_seconds_max, seconds)
        statistics.records_loaded += load.loading.record_count

    def _report_resigned(self) -> None:
        """Log all partitions that other brokers lead now, in one line."""
        logger.info("no longer coordinating %s", partitions_text(self._config.name, self._resigned))
        self._resigned.clear()

    def _on_load_failed(self, partition: _Partition[S], error: Exception) -> None:
        """Retry later with a new shard: a disk or a log directory may come back."""
        if self._partitions.get(partition.number) is not partition:
            return
        partition.state = PartitionState.FAILED
        partition.load = None
        self.statistics.load_failures += 1
        logger.error(
            "%s-%d: cannot be loaded: %s; the next attempt is in %d s",
            self._config.name,
            partition.number,
            error,
            RELOAD_MS // 1000,
        )
        self._timers.add(partial(self._reload, partition), RELOAD_MS)

    def _reload(self, partition: _Partition[S]) -> None:
        if self._partitions.get(partition.number) is partition:
            self._unload(partition)
            self._load(partition.number, partition.leader_epoch)

    def _unload(self, partition: _Partition[S]) -> None:
        del self._partitions[partition.number]
        partition.state = PartitionState.FAILED
        if partition.load is not None:
            partition.load.cancel()
        partition.timers.close()
        # The shard first: the writes that fail must not change a state that goes on without timers.
        try:
            partition.shard.on_unloaded()
        except Exception:
            logger.exception("%s-%d: dropping its state failed", self._config.name, partition.number)
        partition.queue.fail_all(self._not_coordinator(partition.number))
        # Operations that were deferred behind the running one fail, because the partition is gone.
        while partition.deferred:
            partition.deferred.popleft()()

    # One operation.

    def _active(self, partition: int) -> _Partition[S]:
        present = self._partitions.get(partition)
        if present is None or present.state is PartitionState.FAILED:
            raise self._not_coordinator(partition)
        if present.state is PartitionState.LOADING:
            raise ApiError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._config.name}-{partition} is being loaded."
            )
        return present

    def _not_coordinator(self, partition: int) -> ApiError:
        return ApiError(
            ErrorCode.NOT_COORDINATOR, f"This broker does not coordinate {self._config.name}-{partition}."
        )

    def _write_own(self, partition: int, operation: Callable[[], Result[T]]) -> Pending[T]:
        """Run a write that a shard starts itself."""
        return self.write(partition, lambda _: operation(), timeout_ms=self._config.write_timeout_ms)

    def _run(self, number: int, run: Callable[[], None]) -> None:
        """Run an operation; if another one runs in the partition, run it after that."""
        partition = self._partitions.get(number)
        if partition is None:
            run()
            return
        if partition.is_busy:
            partition.deferred.append(run)
            return
        partition.is_busy = True
        try:
            run()
            while partition.deferred:
                partition.deferred.popleft()()
        finally:
            partition.is_busy = False

    def _write(
        self,
        number: int,
        operation: Callable[[S], Result[T]],
        timeout_ms: int,
        producer: tuple[int, int] | None,
        pending: Pending[T],
    ) -> None:
        try:
            partition = self._active(number)
            result = operation(partition.shard)
        except Exception as error:
            # The caller gets every error as the outcome, and logs those that are not ApiErrors.
            pending.fail(error)
            return
        response: object = result.response
        outcome: Pending[Any] = pending
        if isinstance(response, Pending):
            pending.on_abandoned = response.abandon
            response.add_done(partial(_pass_on, pending))
            response, outcome = None, Pending()
        if result.on_written is not None:
            outcome.add_done(partial(_report, result.on_written))
        try:
            if result.records:
                self._append(partition, result.records, producer)
        except Exception as error:
            outcome.fail(error)
            return
        if invariants.enabled and result.records:
            partition.shard.check_invariants(result.records)
        self._answer(partition, outcome, response, timeout_ms)

    def _append(
        self,
        partition: _Partition[S],
        records: Sequence[CoordinatorRecord],
        producer: tuple[int, int] | None,
    ) -> None:
        """Append the records as one batch and replay them."""
        producer_id, producer_epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        builder = RecordBatchBuilder(
            compression=self._config.compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=producer is not None,
        )
        now_ms = self._clock.time_ms()
        for record in records:
            builder.append(record.key, record.value, now_ms)
        try:
            end_offset = self._log.append(partition.number, builder.build())
        except ApiError as error:
            self.statistics.append_failures += 1
            code = _APPEND_ERRORS.get(error.code)
            if code is None:
                raise
            raise ApiError(code, error.message) from error
        first_offset, replayed_offset = end_offset - len(records), partition.written_offset
        partition.written_offset = end_offset
        self.statistics.records_written += len(records)
        replay = partition.shard.replay
        try:
            assert first_offset >= replayed_offset, (
                f"records were appended at offset {first_offset}, below {replayed_offset}, which is replayed"
            )
            for offset, record in enumerate(records, first_offset):
                replay(offset, producer_id, producer_epoch, record)
        except Exception:
            # The shard and the log disagree now, so the shard is loaded again.
            logger.exception("%s-%d: replaying failed", self._config.name, partition.number)
            self._reload(partition)
            raise

    def _answer(
        self, partition: _Partition[S], pending: Pending[Any], response: object, timeout_ms: int
    ) -> None:
        """Give a response as soon as everything written so far is committed."""
        end_offset = partition.written_offset
        try:
            is_committed = self._log.high_watermark(partition.number) >= end_offset
        except ApiError:
            pending.fail(self._not_coordinator(partition.number))
            return
        if is_committed and not len(partition.queue):
            pending.complete(response)
        else:
            partition.queue.add(end_offset, timeout_ms, pending, partial(pending.complete, response))


def _pass_on(pending: Pending[T], response: Pending[T]) -> None:
    if response.error is not None:
        pending.fail(response.error)
    else:
        pending.complete(response.value)


def _report(on_written: OnWritten, outcome: Pending[Any]) -> None:
    error = outcome.error
    if error is None:
        on_written(ErrorCode.NONE)
    else:
        on_written(error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR)
