"""Holds the values that admin calls on transactions take and return; names are those of Java's client."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kalda.clients.reprs import fields_html
from kalda.common.public import public
from kalda.common.types import TopicPartition


@public
class TransactionState(StrEnum):
    """The state of a transaction; the values are the protocol's words."""

    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @classmethod
    def of(cls, word: str) -> "TransactionState":
        """Return the state with this name; UNKNOWN for one that Kalda does not know."""
        return _STATES.get(word, cls.UNKNOWN)


_STATES: Final = {each.value: each for each in TransactionState}


@public
@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id and the state of its last transaction."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@public
@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The last transaction of a transactional id."""

    coordinator_id: int
    """The broker that coordinates the transactional id."""
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int | None
    """Milliseconds since the epoch; None while there is no transaction."""
    topic_partitions: frozenset[TopicPartition]
    """The partitions in the transaction; while it ends, those without a marker."""

    _repr_html_ = fields_html


@public
@dataclass(frozen=True, slots=True)
class ProducerState:
    """An idempotent or transactional producer that has written to a partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """-1 if not known."""
    last_timestamp_ms: int
    """-1 if not known."""
    coordinator_epoch: int | None
    """The epoch of the coordinator that wrote the last marker; None without one."""
    current_transaction_start_offset: int | None
    """The first offset of the open transaction; None without one."""


@public
@dataclass(frozen=True, slots=True, order=True)
class AbortTransactionSpec:
    """A hanging transaction to abort, as `AsyncAdmin.describe_producers` describes it."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """The epoch of the marker: that of the producer's last one, or 0 without one."""

    def __str__(self) -> str:
        return f"producer {self.producer_id} in {self.topic_partition}"


@public
@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """A producer id with its epoch."""

    producer_id: int
    epoch: int
