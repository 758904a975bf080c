"""Defines the requests to coordinators: their fields, their order and their versions.

A request carries the producer's identity at the time it was queued; the identity changes only when nothing is
queued for the old one. It knows no error codes (`transaction_outcomes` does) and sends nothing
(`TransactionDriver` does). A `TransactionResult` completes exactly once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, Final

from kalda.clients.coordinator_lookup import CoordinatorType
from kalda.clients.producer.producer_identity import NO_PRODUCER, ProducerIdAndEpoch
from kalda.clients.values import ConsumerGroupMetadata, OffsetAndMetadata
from kalda.common.overriding import override
from kalda.common.types import TopicPartition, by_topic
from kalda.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kalda.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kalda.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kalda.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kalda.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kalda.protocol.schema import Message

TIMEOUT_NEVER_MS: Final = 2**31 - 1
"""The transaction time-out of producers without transactions and with two-phase commit."""
ADD_PARTITIONS_VERSION_MAX: Final = 3
"""From version 4 on, AddPartitionsToTxn is for brokers."""
END_TXN_VERSION_MAX_V1: Final = 4
TXN_OFFSET_COMMIT_VERSION_MAX_V1: Final = 4
TXN_OFFSET_COMMIT_VERSION_MAX: Final = 5
"""The last versions before a coordinator raises the epoch with each end (KIP-890)."""
TWO_PHASE_COMMIT_VERSION_MIN: Final = 6
"""The first version of InitProducerId with two-phase commit (KIP-939)."""


class RequestPriority(IntEnum):
    """The order in which pending requests are sent: the end of a transaction after all that is in it."""

    INIT_PRODUCER_ID = 1
    ADD_PARTITIONS_OR_OFFSETS = 2
    END_TXN = 3
    EPOCH_BUMP = 4
    """An InitProducerId that follows the abort of the same call (KIP-360)."""


class TransactionResult:
    """The outcome of one call of the transactional API: pending, done, or failed with an exception.

    Callbacks run once, in the call that completes the result. Not thread-safe: the event loop owns it.
    """

    __slots__ = ("_callbacks", "error", "is_acked", "is_completed", "operation")

    def __init__(self, operation: str) -> None:
        self.operation: Final = operation
        self.is_completed = False
        self.error: Exception | None = None
        self.is_acked = False
        """Whether the caller has seen the outcome; until then the same call continues to wait for it."""
        self._callbacks: list[Callable[[TransactionResult], object]] = []

    def complete(self) -> None:
        """The operation succeeded; ignored after the first outcome."""
        self._finish(None)

    def fail(self, error: Exception) -> None:
        """The operation failed; ignored after the first outcome."""
        self._finish(error)

    def add_done_callback(self, callback: Callable[["TransactionResult"], object]) -> None:
        """Call `callback` with this result when it is completed, at once if it is."""
        if self.is_completed:
            callback(self)
        else:
            self._callbacks.append(callback)

    def _finish(self, error: Exception | None) -> None:
        if self.is_completed:
            return
        self.is_completed = True
        self.error = error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


@dataclass(slots=True, kw_only=True)
class TransactionRequest:
    """Base of the pending requests; created by `TransactionManager` only."""

    response_class: ClassVar[type[Message]]
    result: TransactionResult
    attempts: int = 0
    """How many times it was sent and has to be sent again."""
    coordinator_is_stale: bool = False
    """Whether the coordinator has to be looked up before the next attempt."""
    retries_at_once: bool = False
    """Whether the previous transaction is only just being completed: a short back-off suffices."""

    @property
    def priority(self) -> RequestPriority:
        """When it is sent."""
        return RequestPriority.ADD_PARTITIONS_OR_OFFSETS

    @property
    def coordinator_type(self) -> CoordinatorType | None:
        """The coordinator it goes to; None for any broker."""
        return CoordinatorType.TRANSACTION

    @property
    def coordinator_key(self) -> str:
        """The transactional id or group whose coordinator it goes to."""
        raise NotImplementedError

    @property
    def version_max(self) -> int | None:
        """The highest version allowed, None for the highest that both sides know."""
        return None

    @property
    def version_min(self) -> int:
        """The lowest version that supports this request's fields."""
        return 0

    def message(self) -> Message:
        """Return the message, the same for every version."""
        raise NotImplementedError


@dataclass(slots=True, kw_only=True)
class InitProducerId(TransactionRequest):
    """Asks for a producer id and epoch."""

    response_class: ClassVar[type[Message]] = InitProducerIdResponse
    transactional_id: str | None
    transaction_timeout_ms: int
    identity: ProducerIdAndEpoch = NO_PRODUCER
    """The identity whose epoch shall be raised (KIP-360)."""
    is_epoch_bump: bool = False
    enables_two_phase_commit: bool = False
    keeps_prepared: bool = False

    @property
    def priority(self) -> RequestPriority:
        """An epoch bump waits for the end of the transaction."""
        return RequestPriority.EPOCH_BUMP if self.is_epoch_bump else RequestPriority.INIT_PRODUCER_ID

    @property
    def coordinator_type(self) -> CoordinatorType | None:
        """Any broker gives an id to a producer without transactions."""
        return None if self.transactional_id is None else CoordinatorType.TRANSACTION

    @property
    def version_min(self) -> int:
        """Two-phase commit needs version 6."""
        return TWO_PHASE_COMMIT_VERSION_MIN if self.enables_two_phase_commit else 0

    @property
    def version_max(self) -> int | None:
        """Without two-phase commit, a version that every broker with KIP-360 knows."""
        return None if self.enables_two_phase_commit else TWO_PHASE_COMMIT_VERSION_MIN - 1

    @property
    @override
    def coordinator_key(self) -> str:
        assert self.transactional_id is not None, "any broker gives an id without transactions"
        return self.transactional_id

    @override
    def message(self) -> Message:
        return InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.transaction_timeout_ms,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            enable2_pc=self.enables_two_phase_commit,
            keep_prepared_txn=self.keeps_prepared,
        )


@dataclass(slots=True, kw_only=True)
class AddPartitionsToTxn(TransactionRequest):
    """Adds partitions to a V1 transaction before the first batch for them is sent."""

    response_class: ClassVar[type[Message]] = AddPartitionsToTxnResponse
    transactional_id: str
    identity: ProducerIdAndEpoch
    partitions: tuple[TopicPartition, ...]

    @property
    def version_max(self) -> int | None:
        """The last version for clients."""
        return ADD_PARTITIONS_VERSION_MAX

    @property
    @override
    def coordinator_key(self) -> str:
        return self.transactional_id

    @override
    def message(self) -> Message:
        return AddPartitionsToTxnRequest(
            transactions=[],
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=[each.partition for each in partitions])
                for topic, partitions in by_topic(self.partitions).items()
            ],
        )


@dataclass(slots=True, kw_only=True)
class AddOffsetsToTxn(TransactionRequest):
    """Adds a group's positions to a V1 transaction; a `TxnOffsetCommit` with the same result follows."""

    response_class: ClassVar[type[Message]] = AddOffsetsToTxnResponse
    transactional_id: str
    identity: ProducerIdAndEpoch
    group: ConsumerGroupMetadata
    offsets: Mapping[TopicPartition, OffsetAndMetadata]

    @property
    @override
    def coordinator_key(self) -> str:
        return self.transactional_id

    @override
    def message(self) -> Message:
        return AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            group_id=self.group.group_id,
        )


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommit(TransactionRequest):
    """Writes a group's positions as part of the transaction."""

    response_class: ClassVar[type[Message]] = TxnOffsetCommitResponse
    transactional_id: str
    identity: ProducerIdAndEpoch
    group: ConsumerGroupMetadata
    is_v2: bool
    pending: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    """The positions that the group coordinator has not confirmed."""

    @property
    def coordinator_type(self) -> CoordinatorType | None:
        """The group's."""
        return CoordinatorType.GROUP

    @property
    def version_max(self) -> int | None:
        """Version 5 adds the group to the transaction by itself; version 6 names topics by id."""
        return TXN_OFFSET_COMMIT_VERSION_MAX if self.is_v2 else TXN_OFFSET_COMMIT_VERSION_MAX_V1

    @property
    def version_min(self) -> int:
        """Member and generation have a place from version 3 on; before, no zombie is fenced."""
        group = self.group
        has_member = group.member_id or group.generation_id >= 0 or group.group_instance_id is not None
        return 3 if has_member else 0

    @property
    def coordinator_key(self) -> str:
        """The group."""
        return self.group.group_id

    @override
    def message(self) -> Message:
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group.group_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            generation_id=self.group.generation_id,
            member_id=self.group.member_id,
            group_instance_id=self.group.group_instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic, partitions=[self._position(partition) for partition in partitions]
                )
                for topic, partitions in by_topic(self.pending).items()
            ],
        )

    def _position(self, partition: TopicPartition) -> TxnOffsetCommitRequestPartition:
        position = self.pending[partition]
        return TxnOffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=position.offset,
            committed_leader_epoch=-1 if position.leader_epoch is None else position.leader_epoch,
            committed_metadata=position.metadata,
        )


@dataclass(slots=True, kw_only=True)
class EndTxn(TransactionRequest):
    """Commits or aborts; sent when no batch of the transaction is left."""

    response_class: ClassVar[type[Message]] = EndTxnResponse
    transactional_id: str
    identity: ProducerIdAndEpoch
    is_commit: bool
    is_v2: bool

    @property
    def priority(self) -> RequestPriority:
        """After everything that belongs to the transaction."""
        return RequestPriority.END_TXN

    @property
    def version_max(self) -> int | None:
        """From version 5 on, the coordinator raises the epoch."""
        return None if self.is_v2 else END_TXN_VERSION_MAX_V1

    @property
    @override
    def coordinator_key(self) -> str:
        return self.transactional_id

    @override
    def message(self) -> Message:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            committed=self.is_commit,
        )
