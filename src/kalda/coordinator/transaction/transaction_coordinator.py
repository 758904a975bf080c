"""The transaction coordinator of one broker: decides requests, and has markers written after decisions.

It owns no state: the state is in the shards, one for each partition of ``__transaction_state`` that this
broker leads. Responses are pending values, which complete when the records they depend on are replicated.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending, gather
from kalda.common.types import TopicPartition
from kalda.coordinator.runtime.coordinator_runtime import CoordinatorRuntime, PartitionState
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.coordinator.transaction import decisions, transaction_log
from kalda.coordinator.transaction.decisions import Begin, Decision
from kalda.coordinator.transaction.transaction_metadata import TIMEOUT_NEVER, Identity, TransactionMetadata
from kalda.coordinator.transaction.transaction_shard import NOTHING, TransactionShard
from kalda.coordinator.transaction.transaction_state import TransactionState
from kalda.events.event import NO_EVENTS, EventKind, EventSink, Plain
from kalda.runtime.clock import Clock

logger: Final = logging.getLogger(__name__)

EXPIRED_PER_WRITE: Final = 1000
"""The most expired ids that one batch deletes: some 100 kB, far below any limit of a batch."""

T = TypeVar("T")
Decide = Callable[[TransactionMetadata | None, int], Decision]
"""Decides from the current state of an id and a new producer id, or -1."""


NO_AUTHOR: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """The settings of the transaction coordinator, under Kafka's names."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    two_phase_commit_enable: bool = False
    request_timeout_ms: int = 30_000
    """How long a record may take to be replicated before the response is an error."""


@dataclass(eq=False, slots=True)
class MarkerWork:
    """The markers to write for one transaction; `remaining` shrinks as they are written."""

    state_partition: int
    """The partition of ``__transaction_state`` that the transaction belongs to."""
    coordinator_epoch: int
    """The leader epoch of that partition: logs refuse markers of an earlier one."""
    metadata: TransactionMetadata
    on_done: Callable[["MarkerWork"], None]
    """Called once, when no partition remains; never for a transaction that another coordinator took over."""
    remaining: set[TopicPartition] = field(init=False)

    def __post_init__(self) -> None:
        self.remaining = set(self.metadata.partitions)


class MarkerSender(Protocol):
    """Writes markers to the leaders of partitions, and retries until it succeeds."""

    def send(self, work: MarkerWork) -> None:
        """Begin to write the markers; returns at once."""
        ...

    def drop(self, state_partition: int) -> None:
        """Drop the markers of a partition that this broker does not coordinate any more."""
        ...


class ProducerIdSource(Protocol):
    """Allocates producer ids."""

    def take(self, on_done: Callable[[int | None], None]) -> None:
        """Call `on_done` with a new id, at once or later; with None if none can be allocated now."""
        ...


class TransactionCoordinator:
    """Coordinates the transactional ids whose partitions this broker leads."""

    def __init__(
        self,
        config: TransactionConfig,
        clock: Clock,
        markers: MarkerSender,
        producer_ids: ProducerIdSource,
        make_runtime: Callable[[Callable[[int], TransactionShard]], CoordinatorRuntime[TransactionShard]],
        *,
        partition_for: Callable[[str], int],
        transaction_version: Callable[[], int] = lambda: 0,
        events: EventSink = NO_EVENTS,
    ) -> None:
        """`make_runtime` returns a runtime that makes its shards with the given function.

        `partition_for` maps a transactional id to its partition of ``__transaction_state``.
        """
        self._config: Final = config
        self._clock: Final = clock
        self._events: Final = events
        self._markers: Final = markers
        self._producer_ids: Final = producer_ids
        self._partition_for: Final = partition_for
        self._transaction_version: Final = transaction_version
        self._shards: Final[dict[int, TransactionShard]] = {}
        """The loaded partitions."""
        self._works: Final[dict[str, MarkerWork]] = {}
        """The markers that are being written, by transactional id."""
        self._runtime: Final = make_runtime(self._make_shard)

    def _make_shard(self, partition: int) -> TransactionShard:
        """Return the empty state of a partition, which the runtime loads."""
        return TransactionShard(partition, self, self._clock, self._transaction_version)

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition of ``__transaction_state`` that an id belongs to."""
        return self._partition_for(transactional_id)

    # Requests.

    def begin(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        expected: Identity | None = None,
        enables_two_phase_commit: bool = False,
        keeps_prepared: bool = False,
        author: Mapping[str, str] = NO_AUTHOR,
    ) -> Pending[Decision]:
        """Give a producer its id and epoch (InitProducerId); `author` are details of who asks for it."""
        config = self._config
        if not transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST)
        if (enables_two_phase_commit or keeps_prepared) and not config.two_phase_commit_enable:
            return _refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if enables_two_phase_commit:
            timeout_ms = TIMEOUT_NEVER
        elif not 0 < timeout_ms <= config.transaction_max_timeout_ms:
            return _refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        request = Begin(transactional_id, timeout_ms, expected, keeps_prepared)

        def decide(current: TransactionMetadata | None, new_producer_id: int) -> Decision:
            return decisions.begin(
                current,
                request,
                new_producer_id=new_producer_id,
                now_ms=self._clock.time_ms(),
                transaction_version=self._transaction_version(),
            )

        return self._decide(transactional_id, decide, "begin", author=author)

    def add_partitions(
        self,
        transactional_id: str,
        producer: Identity,
        partitions: Collection[TopicPartition],
        *,
        client_version: int = 0,
    ) -> Pending[Decision]:
        """Add partitions to a producer's transaction (AddPartitionsToTxn, AddOffsetsToTxn)."""
        if not transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST)

        def decide(current: TransactionMetadata | None, _: int) -> Decision:
            return decisions.add_partitions(
                current,
                producer,
                partitions,
                client_version=self._in_force(current, client_version),
                now_ms=self._clock.time_ms(),
            )

        return self._decide(transactional_id, decide, "add", producer)

    def verify_partitions(
        self, transactional_id: str, producer: Identity, partitions: Collection[TopicPartition]
    ) -> Pending[dict[TopicPartition, ErrorCode]]:
        """Return for each partition whether it is in a producer's transaction."""
        if not transactional_id:
            return Pending.of(dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST))

        def look(shard: TransactionShard) -> dict[TopicPartition, ErrorCode]:
            return decisions.verify_partitions(shard.get(transactional_id), producer, partitions)

        def found(done: Pending[dict[TopicPartition, ErrorCode]]) -> dict[TopicPartition, ErrorCode]:
            if done.error is not None:
                return dict.fromkeys(partitions, coordinator_error(done.error))
            return done.value

        return self._runtime.read(self._partition_for(transactional_id), look).then(found)

    def end(
        self, transactional_id: str, producer: Identity, *, is_commit: bool, client_version: int = 0
    ) -> Pending[Decision]:
        """Commit or abort (EndTxn); the response comes before the markers are written, as in Kafka."""
        if not transactional_id:
            return _refused(ErrorCode.INVALID_REQUEST)

        def decide(current: TransactionMetadata | None, new_producer_id: int) -> Decision:
            return decisions.end(
                current,
                producer,
                is_commit=is_commit,
                client_version=self._in_force(current, client_version),
                new_producer_id=new_producer_id,
                now_ms=self._clock.time_ms(),
            )

        return self._decide(transactional_id, decide, "commit" if is_commit else "abort", producer)

    def _in_force(self, current: TransactionMetadata | None, client_version: int) -> int:
        """Return the transaction version of a step.

        A request of a later version has no effect beyond the finalized one, so that no record of it is
        written. A producer that used it before a downgrade keeps it until it begins again.
        """
        begun = 0 if current is None else current.client_version
        return min(client_version, max(self._transaction_version(), begun))

    def describe(self, transactional_id: str) -> Pending[tuple[ErrorCode, TransactionMetadata | None]]:
        """Return the state of one id, or an error code."""
        if not transactional_id:
            return Pending.of((ErrorCode.INVALID_REQUEST, None))

        def found(
            done: Pending[TransactionMetadata | None],
        ) -> tuple[ErrorCode, TransactionMetadata | None]:
            if done.error is not None:
                return coordinator_error(done.error), None
            if done.value is None:
                return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None
            return ErrorCode.NONE, done.value

        read = self._runtime.read(
            self._partition_for(transactional_id), lambda shard: shard.get(transactional_id)
        )
        return read.then(found)

    def remaining_partitions(self, metadata: TransactionMetadata) -> frozenset[TopicPartition]:
        """Return the partitions of a transaction; while it ends, those without a marker."""
        work = self._works.get(metadata.transactional_id)
        if work is None or not metadata.state.is_prepared:
            return metadata.partitions
        return frozenset(work.remaining)

    def transactions(self) -> list[TransactionMetadata]:
        """Return all transactional ids that this broker coordinates."""
        return [each for shard in self._shards.values() for each in shard.transactions.values()]

    @property
    def is_loading(self) -> bool:
        """Return whether this broker is still loading a partition that it leads."""
        return PartitionState.LOADING in self._runtime.states().values()

    # Periodic work.

    def abort_timed_out(self) -> int:
        """Abort transactions that have timed out; return how many there were."""
        overdue = [(shard, name) for shard in tuple(self._shards.values()) for name in shard.timed_out()]
        for shard, transactional_id in overdue:
            logger.info('transaction of "%s" is aborted: it timed out', transactional_id)
            self._decide(transactional_id, partial(self._time_out, shard, transactional_id), "time-out")
        return len(overdue)

    def _time_out(
        self, shard: TransactionShard, transactional_id: str, current: TransactionMetadata | None, _: int
    ) -> Decision:
        return decisions.time_out(
            current,
            open_ms=shard.open_ms(transactional_id),
            now_ms=self._clock.time_ms(),
            transaction_version=self._transaction_version(),
        )

    def forget_expired(self) -> int:
        """Delete transactional ids that have expired; return how many there were."""
        now_ms, expiration_ms = self._clock.time_ms(), self._config.transactional_id_expiration_ms
        count = 0
        for partition, shard in tuple(self._shards.items()):
            expired = [
                each.transactional_id
                for each in shard.transactions.values()
                if each.is_expired(now_ms, expiration_ms)
            ]
            count += len(expired)
            for start in range(0, len(expired), EXPIRED_PER_WRITE):
                names = expired[start : start + EXPIRED_PER_WRITE]
                self._runtime.write(
                    partition, partial(self._forget, names), timeout_ms=self._config.request_timeout_ms
                )
        return count

    def forget(self, transactional_ids: Collection[str]) -> Pending[None]:
        """Delete transactional ids that have no open transaction, whether they have expired or not."""
        by_partition: dict[int, list[str]] = {}
        for transactional_id in transactional_ids:
            by_partition.setdefault(self._partition_for(transactional_id), []).append(transactional_id)

        def tombstones(names: list[str], shard: TransactionShard) -> Result[None]:
            found = [shard.get(name) for name in names]
            return Result(
                [
                    transaction_log.encode_tombstone(each.transactional_id)
                    for each in found
                    if each is not None and each.state.may_expire
                ],
                None,
            )

        writes = [
            self._runtime.write(
                partition,
                partial(tombstones, names[start : start + EXPIRED_PER_WRITE]),
                timeout_ms=self._config.request_timeout_ms,
            )
            for partition, names in by_partition.items()
            for start in range(0, len(names), EXPIRED_PER_WRITE)
        ]
        return gather(writes, lambda _: None)

    def _forget(self, transactional_ids: list[str], shard: TransactionShard) -> Result[None]:
        """Check the ids again, with their current state, and write the tombstones."""
        now_ms, expiration_ms = self._clock.time_ms(), self._config.transactional_id_expiration_ms
        records = []
        for transactional_id in transactional_ids:
            current = shard.get(transactional_id)
            if current is not None and current.is_expired(now_ms, expiration_ms):
                records.append(transaction_log.encode_tombstone(transactional_id))
        return Result(records, None)

    # Callbacks of shards (`ShardOwner`).

    def on_shard_loaded(self, shard: TransactionShard) -> None:
        """Start to coordinate a partition."""
        self._shards[shard.partition] = shard

    def on_shard_unloaded(self, shard: TransactionShard) -> None:
        """Stop to coordinate a partition, and drop its markers."""
        if self._shards.get(shard.partition) is shard:
            del self._shards[shard.partition]
        self._markers.drop(shard.partition)
        for transactional_id, work in tuple(self._works.items()):
            if work.state_partition == shard.partition:
                del self._works[transactional_id]

    def on_prepared(self, shard: TransactionShard, metadata: TransactionMetadata) -> None:
        """Send the markers of a transaction whose outcome is replicated."""
        assert metadata.state.is_prepared, f"markers of {metadata}, whose outcome is not decided"
        epoch = self._runtime.leader_epoch(shard.partition)
        work = MarkerWork(shard.partition, epoch, metadata, self._on_markers_written)
        self._works[metadata.transactional_id] = work
        if work.remaining:
            self._markers.send(work)
        else:
            self._on_markers_written(work)

    def _on_markers_written(self, work: MarkerWork) -> None:
        prepared = work.metadata
        transactional_id = prepared.transactional_id
        shard = self._shards.get(work.state_partition)
        if self._works.get(transactional_id) is not work or shard is None:
            return
        assert not work.remaining, f"{prepared} has partitions without a marker: {work.remaining}"
        del self._works[transactional_id]

        def operation() -> Result[None]:
            decision = decisions.complete(shard.get(transactional_id), prepared, now_ms=self._clock.time_ms())
            if decision.after is None:
                return NOTHING
            return Result((shard.record(decision.after),), None)

        shard.write_complete(transactional_id, operation)

    # Deciding.

    def _decide(
        self,
        transactional_id: str,
        decide: Decide,
        request: str,
        producer: Identity | None = None,
        author: Mapping[str, str] = NO_AUTHOR,
    ) -> Pending[Decision]:
        answer: Pending[Decision] = Pending()
        self._try(transactional_id, decide, decisions.NO_NEW_ID, answer)
        return answer.then(partial(self._noted, transactional_id, request, producer, author))

    def _noted(
        self,
        transactional_id: str,
        request: str,
        producer: Identity | None,
        author: Mapping[str, str],
        done: Pending[Decision],
    ) -> Decision:
        """Emit what a decision means for producers that did not ask for it."""
        decision = done.value
        after = decision.after
        if after is not None and after.state is TransactionState.PREPARE_ABORT:
            reason = _ABORTS.get(request, request)
            subject: dict[str, str | int] = {
                "transactional_id": transactional_id,
                "producer": after.producer_id,
            }
            details: dict[str, Plain] = {
                "reason": reason,
                "timeout_ms": after.timeout_ms,
                "producer_epoch": after.producer_epoch,
                "partitions_of": sorted(map(str, after.partitions))[:_PARTITIONS_MAX],
                **author,
            }
            self._events.emit(EventKind.TRANSACTION_ABORTED, subject, details)
        elif request == "begin" and after is not None and after.producer_epoch > 0:
            self._events.emit(
                EventKind.PRODUCER_FENCED,
                {"transactional_id": transactional_id, "producer": after.producer_id},
                {
                    "producer_epoch": after.producer_epoch,
                    "reason": "another producer began with this id",
                    **author,
                },
            )
        elif decision.code in _FENCED:
            subject = {"transactional_id": transactional_id}
            if producer is not None:
                subject["producer"] = producer.producer_id
            epoch = None if producer is None else producer.epoch
            refusal: dict[str, Plain] = {
                "reason": decision.code.name,
                "producer_epoch": epoch,
                "request": request,
            }
            self._events.emit_seldom(EventKind.PRODUCER_REFUSED, subject, refusal)
        return decision

    def _try(
        self, transactional_id: str, decide: Decide, new_producer_id: int, answer: Pending[Decision]
    ) -> None:
        """Decide and write; decide again if a new producer id was needed."""

        def operation(shard: TransactionShard) -> Result[Decision]:
            decision = decide(shard.get(transactional_id), new_producer_id)
            if decision.after is None:
                return Result((), decision)
            return Result((shard.record(decision.after),), decision)

        def written(pending: Pending[Decision]) -> None:
            if pending.error is not None:
                answer.complete(Decision(coordinator_error(pending.error)))
            elif pending.value.needs_producer_id and new_producer_id == decisions.NO_NEW_ID:
                self._producer_ids.take(with_id)
            else:
                answer.complete(pending.value)

        def with_id(producer_id: int | None) -> None:
            if producer_id is None:
                # Producers retry this code; by then ZooKeeper may be reachable again.
                answer.complete(Decision(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            else:
                self._try(transactional_id, decide, producer_id, answer)

        self._runtime.write(
            self._partition_for(transactional_id), operation, timeout_ms=self._config.request_timeout_ms
        ).add_done(written)


_ABORTS: Final = {
    "time-out": "time-out",
    "begin": "another producer began with this id",
    "abort": "its producer aborted it",
}
"""Why a transaction was aborted, by the request."""

_FENCED: Final = frozenset((ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH))

_PARTITIONS_MAX: Final = 20
"""Partitions that an event lists."""

_CODES: Final = {
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The codes that producers handle, for errors of the runtime."""


def coordinator_error(error: Exception) -> ErrorCode:
    """Return the code to send a producer for an error of the log or of the runtime."""
    if not isinstance(error, ApiError):
        logger.error("a decision on a transaction failed", exc_info=error)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return _CODES.get(error.code, error.code)


def _refused(code: ErrorCode) -> Pending[Decision]:
    return Pending.of(Decision(code))
