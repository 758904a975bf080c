"""Delays transactional batches until the coordinator has verified their transaction (KIP-890).

Most batches pass at once, because the log has the transaction open already. The first batch of a transaction
waits for the coordinator, and later batches of the producer wait behind it, because sequence numbers do not
allow reordering. A marker that is written while a batch waits voids the guard that the log gave for the
batch: without `adds`, the batch is refused.

In transactions V2 a producer sends the first batch of a transaction once the end of the previous transaction
is decided, before its markers are written. The coordinator answers CONCURRENT_TRANSACTIONS until the last
marker is written, and the marker of this log may be written between the answer NONE and the append. In both
cases the gate asks again with a new guard for a short time: clients would retry only after their whole
``retry.backoff.ms``. A batch of the transaction that ended is then refused because of its epoch.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from typing import Final

from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.transactions.verification import PASSING, TransactionVerification
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.common.types import TopicPartition
from kalda.coordinator.transaction.transaction_metadata import Identity
from kalda.protocol.fast.produce import ProduceRequestFields
from kalda.records.batch import ATTRIBUTES_POSITION, HEADER_SIZE, TRANSACTIONAL_FLAG, read_producer
from kalda.storage.producer_state_manager import ProducerStateManager, VerificationGuard

logger: Final = logging.getLogger(__name__)

ADDS_FROM: Final = 12
"""The Produce version from which the broker adds partitions to the transaction (transactions V2)."""
ABORTABLE_FROM: Final = 11
"""The first version whose producers handle TRANSACTION_ABORTABLE."""

PATIENCE_SECONDS: Final = 0.1
"""How long the gate asks again while the previous transaction is incomplete or its marker voids the guard."""
RETRY_SECONDS: Final = 0.002
RETRY_SECONDS_MAX: Final = 0.02
"""The first and the longest pause between two such questions; each pause doubles the previous one. A
transaction completes within milliseconds unless a partition has no leader."""

_ATTRIBUTES: Final = Struct(">h")

Refusals = dict[TopicPartition, tuple[ErrorCode, str]]
Later = Callable[[float, Callable[[], None]], object]
"""Schedules a call after some seconds."""


def _loop_later(seconds: float, call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, call)


class _Entry:
    """A produce request that waits."""

    __slots__ = ("guards", "is_ready", "producer", "refusals", "resume", "version")

    def __init__(self, producer: Identity, version: int, resume: Callable[[Refusals], None]) -> None:
        self.producer: Final = producer
        self.version: Final = version
        self.resume: Final = resume
        self.refusals: Refusals = {}
        self.guards: list[tuple[TopicPartition, ProducerStateManager, VerificationGuard]] = []
        """The guards that logs gave for the partitions that are being verified."""
        self.is_ready = False

    @property
    def adds(self) -> bool:
        """Whether the question adds the partitions to the transaction."""
        return self.version >= ADDS_FROM

    def voided(self) -> list[TopicPartition]:
        """Return the partitions whose guards a marker of the producer voided."""
        return [
            topic_partition
            for topic_partition, state, guard in self.guards
            if _is_void(state, self.producer, guard)
        ]

    def refuse_voided(self) -> None:
        """Refuse the partitions in which a transaction of the producer ended meanwhile."""
        refusal = (
            _refusal(ErrorCode.CONCURRENT_TRANSACTIONS, self.version)
            if self.adds
            else (ErrorCode.INVALID_TXN_STATE, "The transaction ended before the batch was appended.")
        )
        for topic_partition in self.voided():
            self.refusals.setdefault(topic_partition, refusal)

    def release(self) -> None:
        """Return the guards to their logs."""
        for _, state, guard in self.guards:
            state.end_verification(self.producer.producer_id, guard)
        self.guards.clear()


class ProduceGate:
    """Holds the transactional produce requests that wait for the coordinator."""

    def __init__(
        self,
        replicas: ReplicaManager,
        verification: TransactionVerification,
        *,
        is_verifying: Callable[[], bool],
        later: Later = _loop_later,
    ) -> None:
        """`is_verifying` is ``transaction.partition.verification.enable``."""
        self._replicas: Final = replicas
        self._verification: Final = verification
        self._is_verifying: Final = is_verifying
        self._later: Final = later
        self._queues: Final[dict[int, deque[_Entry]]] = {}
        """By producer id, in the order of arrival."""

    @property
    def waiting_count(self) -> int:
        """The number of requests that wait."""
        return sum(map(len, self._queues.values()))

    def admit(
        self, fields: ProduceRequestFields, version: int
    ) -> "Callable[[Callable[[Refusals], None]], None] | None":
        """Return None if a request may be appended at once, else a function that makes it wait.

        The function takes a callback, which is called with the refused partitions when the wait is over. The
        caller must copy the records before: the frame is reused by then.
        """
        found = self._unverified(fields, version)
        if found is None:
            return None
        producer, unverified = found
        if not unverified and producer.producer_id not in self._queues:
            return None
        transactional_id = (fields.transactional_id or b"").decode(errors="replace")

        def wait(resume: Callable[[Refusals], None]) -> None:
            self._wait(transactional_id, unverified, _Entry(producer, version, resume))

        return wait

    def verify(
        self, transactional_id: str, producer: Identity, topic_partition: TopicPartition, *, adds: bool
    ) -> Pending[ErrorCode]:
        """Return whether a producer may write to one partition in its transaction.

        NOT_LEADER_OR_FOLLOWER concerns the partition; every other code is the transaction coordinator's. The
        caller must append in the turn of the event loop in which the answer completes.
        """
        answer: Pending[ErrorCode] = Pending()
        pauses = _pauses()

        def ask() -> None:
            self._verify(transactional_id, producer, topic_partition, adds).add_done(answered)

        def answered(pending: Pending[ErrorCode]) -> None:
            pause = next(pauses, None) if adds else None
            if pending.value is ErrorCode.CONCURRENT_TRANSACTIONS and pause is not None:
                self._later(pause, ask)
            else:
                answer.complete(pending.value)

        ask()
        return answer

    def _verify(
        self, transactional_id: str, producer: Identity, topic_partition: TopicPartition, adds: bool
    ) -> Pending[ErrorCode]:
        answer: Pending[ErrorCode] = Pending()
        partition = self._replicas.partitions.get(topic_partition)
        if partition is None or not partition.is_leader:
            answer.complete(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return answer
        state = partition.log.producer_state
        if not (adds or self._is_verifying()) or state.is_in_transaction(
            producer.producer_id, producer.epoch
        ):
            answer.complete(ErrorCode.NONE)
            return answer
        guard = state.begin_verification(producer.producer_id)

        def answered(pending: Pending[dict[TopicPartition, ErrorCode]]) -> None:
            code = pending.value[topic_partition]
            if code is ErrorCode.NONE and _is_void(state, producer, guard):
                code = ErrorCode.CONCURRENT_TRANSACTIONS if adds else ErrorCode.INVALID_TXN_STATE
            try:
                answer.complete(code)
            finally:
                state.end_verification(producer.producer_id, guard)

        self._verification.ask(transactional_id, producer, (topic_partition,), adds=adds).add_done(answered)
        return answer

    def _unverified(
        self, fields: ProduceRequestFields, version: int
    ) -> tuple[Identity, dict[TopicPartition, Partition]] | None:
        """Return the producer and its partitions whose logs do not have its transaction open.

        Returns None if the request has no transactional batch that could wait.
        """
        producer: Identity | None = None
        unverified: dict[TopicPartition, Partition] = {}
        asks = version >= ADDS_FROM or self._is_verifying()
        for name, partitions in fields.topics:
            for index, records in partitions:
                if records is None or len(records) < HEADER_SIZE:
                    continue
                if not _ATTRIBUTES.unpack_from(records, ATTRIBUTES_POSITION)[0] & TRANSACTIONAL_FLAG:
                    continue
                identity = Identity(*read_producer(records)[:2])
                producer = producer or identity
                partition = self._replicas.find(name, index)
                if (
                    asks
                    and partition is not None
                    and partition.is_leader
                    and not partition.log.producer_state.is_in_transaction(
                        identity.producer_id, identity.epoch
                    )
                ):
                    unverified[partition.topic_partition] = partition
        return None if producer is None else (producer, unverified)

    def _wait(
        self, transactional_id: str, unverified: dict[TopicPartition, Partition], entry: _Entry
    ) -> None:
        producer = entry.producer
        queue = self._queues.setdefault(producer.producer_id, deque())
        queue.append(entry)
        if not unverified:
            entry.is_ready = True
            self._advance(producer.producer_id)
            return
        self._ask(transactional_id, unverified, entry, _pauses())

    def _ask(
        self,
        transactional_id: str,
        unverified: dict[TopicPartition, Partition],
        entry: _Entry,
        pauses: Iterator[float],
    ) -> None:
        producer = entry.producer
        for topic_partition, partition in unverified.items():
            state = partition.log.producer_state
            entry.guards.append((topic_partition, state, state.begin_verification(producer.producer_id)))

        def answered(pending: Pending[dict[TopicPartition, ErrorCode]]) -> None:
            codes = pending.value
            pause = next(pauses, None) if entry.adds else None
            if pause is not None and (
                ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
                or any(codes[each] is ErrorCode.NONE for each in entry.voided())
            ):
                # Markers of the previous transaction void these guards; the next question gets new ones.
                entry.release()
                self._later(pause, partial(self._ask, transactional_id, unverified, entry, pauses))
                return
            for topic_partition, code in codes.items():
                if code is not ErrorCode.NONE:
                    entry.refusals[topic_partition] = _refusal(code, entry.version)
            entry.is_ready = True
            self._advance(producer.producer_id)

        self._verification.ask(transactional_id, producer, tuple(unverified), adds=entry.adds).add_done(
            answered
        )

    def _advance(self, producer_id: int) -> None:
        """Resume the requests at the front of the queue that have their answer."""
        queue = self._queues.get(producer_id)
        while queue and queue[0].is_ready:
            entry = queue[0]
            entry.refuse_voided()
            try:
                entry.resume(entry.refusals)
            finally:
                entry.release()
                # Only now, so that a request that arrives meanwhile cannot overtake this one.
                queue.popleft()
        if queue is not None and not queue:
            self._queues.pop(producer_id, None)


def _is_void(state: ProducerStateManager, producer: Identity, guard: VerificationGuard) -> bool:
    """Return whether a transaction of the producer ended after the guard was given, and none is open."""
    return not (
        state.is_being_verified(producer.producer_id, guard)
        or state.is_in_transaction(producer.producer_id, producer.epoch)
    )


def _pauses() -> Iterator[float]:
    """Yield the pause before each further question, until `PATIENCE_SECONDS` have passed."""
    pause, left = RETRY_SECONDS, PATIENCE_SECONDS
    while left > 0:
        yield min(pause, left)
        left -= pause
        pause = min(2 * pause, RETRY_SECONDS_MAX)


def _refusal(code: ErrorCode, version: int) -> tuple[ErrorCode, str]:
    """Return the error in a form that producers of this version handle."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE, "The partition was not added to the transaction."
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH, "The producer was fenced by a newer one."
    if code in PASSING:
        return (
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"The partition could not be verified with the transaction coordinator: {code.name}.",
        )
    return code, code.message
