"""Delays transactional batches until the coordinator has verified their transaction (KIP-890).

Most batches pass at once, because the log has the transaction open already. The first batch of a transaction
waits for the coordinator, and later batches of the producer wait behind it, because sequence numbers do not
allow reordering. A marker that is written before the batch is appended voids the guard that the log gave for
the batch: without `adds`, the batch is refused. A request may be appended in steps, or later when its batches
are opened, so each batch is checked when it is appended, and the request keeps its place until the last one.

A batch for a partition that this broker does not lead when the request arrives is not verified. It is refused
even if the broker becomes the leader while the request waits: the coordinator does not know the partition,
so no marker would end the transaction there.

In transactions V2 a producer sends the first batch of a transaction once the end of the previous transaction
is decided, before its markers are written. The coordinator answers CONCURRENT_TRANSACTIONS until the last
marker is written, and the marker of this log may be written between the answer NONE and the append. In both
cases the gate asks again with a new guard for a short time: clients would retry only after their whole
``retry.backoff.ms``. A batch of the transaction that ended is then refused because of its epoch.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from typing import Final, NamedTuple

from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.transactions.previous_transaction import (
    PRODUCE_SECONDS,
    Later,
    ask_while_ending,
    loop_later,
    pauses,
)
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

_ATTRIBUTES: Final = Struct(">h")

Refusals = dict[TopicPartition, tuple[ErrorCode, str]]

_NOT_LED: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    "This broker did not lead the partition when the request arrived.",
)


class _Batches(NamedTuple):
    """The partitions of a request's transactional batches."""

    producer: Identity
    unverified: dict[TopicPartition, Partition]
    """Those led here whose logs do not have the transaction open."""
    opened: dict[TopicPartition, Partition]
    """Those led here whose logs have it open."""
    not_led: list[TopicPartition]


class Admission:
    """A produce request with transactional batches, from its arrival to the append of its last batch."""

    __slots__ = (
        "_guards",
        "_on_end",
        "_opened",
        "has_ended",
        "is_ready",
        "is_resumed",
        "producer",
        "refusals",
        "resume",
        "unverified",
        "version",
        "waits",
    )

    def __init__(self, batches: _Batches, version: int, *, waits: bool) -> None:
        self.producer: Final = batches.producer
        self.version: Final = version
        self.waits: Final = waits
        """Whether the request waits for its turn before any of its batches is appended."""
        self.refusals: Final[Refusals] = dict.fromkeys(batches.not_led, _NOT_LED)
        self.unverified: Final = batches.unverified
        self._opened: Final = batches.opened
        self._guards: Final[dict[TopicPartition, tuple[Partition, VerificationGuard]]] = {}
        """The guards that logs gave for the partitions of the request."""
        self._on_end: Callable[[], None] | None = None
        self.resume: Callable[[], None] | None = None
        self.is_ready = False
        self.is_resumed = False
        self.has_ended = False

    @property
    def adds(self) -> bool:
        """Whether the question adds the partitions to the transaction."""
        return self.version >= ADDS_FROM

    def queue(self, resume: Callable[[], None], on_end: Callable[[], None]) -> None:
        """Note what to call when it is the turn of the request, and when its last batch is appended."""
        self.resume, self._on_end = resume, on_end

    def guard(self, partitions: dict[TopicPartition, Partition]) -> None:
        """Take guards for partitions: markers of the producer that are written from now on void them."""
        for topic_partition, partition in partitions.items():
            guard = partition.log.producer_state.begin_verification(self.producer.producer_id)
            self._guards[topic_partition] = partition, guard

    def voided(self) -> list[TopicPartition]:
        """Return the partitions whose guards a marker of the producer voided."""
        return [each for each, (partition, _) in self._guards.items() if self._is_void(partition)]

    def refusal(self, partition: Partition) -> tuple[ErrorCode, str] | None:
        """Return why the request's batch may not be appended to a partition now; None if it may."""
        refused = self.refusals.get(partition.topic_partition)
        if refused is not None or not self._is_void(partition):
            return refused
        if self.adds:
            return _refusal(ErrorCode.CONCURRENT_TRANSACTIONS, self.version)
        return ErrorCode.INVALID_TXN_STATE, "The transaction ended before the batch was appended."

    def _is_void(self, partition: Partition) -> bool:
        guarded = self._guards.get(partition.topic_partition)
        if guarded is not None:
            return _is_void(partition.log.producer_state, self.producer, guarded[1])
        # From version 12 on, the epoch that a marker raises makes the log refuse the batch.
        return (
            not self.adds
            and partition.topic_partition in self._opened
            and not partition.log.producer_state.is_in_transaction(
                self.producer.producer_id, self.producer.epoch
            )
        )

    def release(self) -> None:
        """Return the guards to their logs."""
        for partition, guard in self._guards.values():
            partition.log.producer_state.end_verification(self.producer.producer_id, guard)
        self._guards.clear()

    def end(self) -> None:
        """Return the guards and admit the next request, because this one appends no more batches."""
        if not self.has_ended:
            self.has_ended = True
            self.release()
            if self._on_end is not None:
                self._on_end()


class ProduceGate:
    """Holds the transactional produce requests that wait for the coordinator."""

    def __init__(
        self,
        replicas: ReplicaManager,
        verification: TransactionVerification,
        *,
        is_verifying: Callable[[], bool],
        later: Later = loop_later,
    ) -> None:
        """`is_verifying` is ``transaction.partition.verification.enable``."""
        self._replicas: Final = replicas
        self._verification: Final = verification
        self._is_verifying: Final = is_verifying
        self._later: Final = later
        self._queues: Final[dict[int, deque[Admission]]] = {}
        """By producer id, in the order of arrival."""
        self._advancing: Final[set[int]] = set()
        """Producers whose requests are being resumed: what ends meanwhile must not begin that once more."""

    @property
    def waiting_count(self) -> int:
        """The number of requests that wait."""
        return sum(map(len, self._queues.values()))

    def admit(self, fields: ProduceRequestFields, version: int) -> Admission | None:
        """Return the admission of a request; None if it has no transactional batches.

        The caller calls `wait` if the request waits, and `end` of the admission after its last append.
        """
        found = self._find(fields, version)
        if found is None:
            return None
        waits = bool(found.unverified or found.not_led or found.producer.producer_id in self._queues)
        return Admission(found, version, waits=waits)

    def wait(self, admission: Admission, transactional_id: bytes, resume: Callable[[], None]) -> None:
        """Call `resume` when it is the request's turn.

        The caller must copy the records before: the frame is reused by then.
        """
        producer_id = admission.producer.producer_id
        admission.queue(resume, partial(self._on_end, producer_id))
        self._queues.setdefault(producer_id, deque()).append(admission)
        if admission.unverified:
            self._ask(transactional_id.decode(errors="replace"), admission, pauses(PRODUCE_SECONDS))
        else:
            admission.is_ready = True
            self._advance(producer_id)

    def verify(
        self, transactional_id: str, producer: Identity, topic_partition: TopicPartition, *, adds: bool
    ) -> Pending[ErrorCode]:
        """Return whether a producer may write to one partition in its transaction.

        NOT_LEADER_OR_FOLLOWER concerns the partition; every other code is the transaction coordinator's. The
        caller must append in the turn of the event loop in which the answer completes.
        """
        ask = partial(self._verify, transactional_id, producer, topic_partition, adds)
        if not adds:
            return ask()
        return ask_while_ending(ask, lambda code: code, PRODUCE_SECONDS, self._later)

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

    def _find(self, fields: ProduceRequestFields, version: int) -> _Batches | None:
        """Return the partitions of a request's transactional batches; None without such batches."""
        producer: Identity | None = None
        unverified: dict[TopicPartition, Partition] = {}
        opened: dict[TopicPartition, Partition] = {}
        not_led: list[TopicPartition] = []
        asks = version >= ADDS_FROM or self._is_verifying()
        for name, partitions in fields.topics:
            for index, records in partitions:
                if records is None or len(records) < HEADER_SIZE:
                    continue
                if not _ATTRIBUTES.unpack_from(records, ATTRIBUTES_POSITION)[0] & TRANSACTIONAL_FLAG:
                    continue
                identity = Identity(*read_producer(records)[:2])
                producer = producer or identity
                if not asks:
                    continue
                partition = self._replicas.find(name, index)
                if partition is None or not partition.is_leader:
                    not_led.append(TopicPartition(name.decode(errors="replace"), index))
                elif partition.log.producer_state.is_in_transaction(identity.producer_id, identity.epoch):
                    opened[partition.topic_partition] = partition
                else:
                    unverified[partition.topic_partition] = partition
        return None if producer is None else _Batches(producer, unverified, opened, not_led)

    def _ask(
        self,
        transactional_id: str,
        entry: Admission,
        left: Iterator[float],
    ) -> None:
        producer, unverified = entry.producer, entry.unverified
        entry.guard(unverified)

        def answered(pending: Pending[dict[TopicPartition, ErrorCode]]) -> None:
            codes = pending.value
            pause = next(left, None) if entry.adds else None
            if pause is not None and (
                ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
                or any(codes[each] is ErrorCode.NONE for each in entry.voided())
            ):
                # Markers of the previous transaction void these guards; the next question gets new ones.
                entry.release()
                self._later(pause, partial(self._ask, transactional_id, entry, left))
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
        """Resume the requests at the front of the queue that have their answer, one after the other."""
        if producer_id in self._advancing:
            return
        self._advancing.add(producer_id)
        try:
            while (queue := self._queues.get(producer_id)) and queue[0].is_ready and not queue[0].is_resumed:
                entry = queue[0]
                entry.is_resumed = True
                assert entry.resume is not None, "a request in the queue waits"
                try:
                    entry.resume()
                except BaseException:
                    entry.end()
                    raise
        finally:
            self._advancing.discard(producer_id)

    def _on_end(self, producer_id: int) -> None:
        # Only now, so that a request that arrives meanwhile cannot overtake the one that ends.
        queue = self._queues[producer_id]
        queue.popleft()
        if not queue:
            del self._queues[producer_id]
        self._advance(producer_id)


def _is_void(state: ProducerStateManager, producer: Identity, guard: VerificationGuard) -> bool:
    """Return whether a transaction of the producer ended after the guard was given, and none is open."""
    return not (
        state.is_being_verified(producer.producer_id, guard)
        or state.is_in_transaction(producer.producer_id, producer.epoch)
    )


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
