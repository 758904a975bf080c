"""Decides what a coordinator's response means: done, retry, abort the transaction, or give the producer up.

Pure: it reads a request and its response and changes neither. A code that no table names is fatal, since an
unknown failure may have lost the transaction; the tables follow Java's client with KIP-360, KIP-588, KIP-654
and KIP-1050.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from kalda.clients.producer.transaction_requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    EndTxn,
    InitProducerId,
    TransactionRequest,
    TxnOffsetCommit,
)
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from kalda.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from kalda.protocol.messages.end_txn import EndTxnResponse
from kalda.protocol.messages.init_producer_id import InitProducerIdResponse
from kalda.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from kalda.protocol.schema import Message


class Verdict(Enum):
    """The consequence of a response."""

    DONE = auto()
    RETRY = auto()
    """Send the request again after a back-off."""
    LOOK_UP = auto()
    """Look the coordinator up, then send the request again."""
    UNAUTHORIZED = auto()
    """The producer may not initialize; it can try again once it has the right."""
    ABORT = auto()
    """The transaction cannot be committed; after an abort the producer continues."""
    ABORT_AND_BUMP = auto()
    """As ABORT, and the producer needs another epoch, or id, to continue (KIP-360)."""
    FENCED = auto()
    """Another producer took the transactional id over, or the coordinator ended the transaction."""
    FATAL = auto()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict on a response, with the code behind it and the partition or group it concerns."""

    verdict: Verdict
    code: ErrorCode = ErrorCode.NONE
    subject: str = ""


DONE: Final = Outcome(Verdict.DONE)

_EVERY_REQUEST: Final[Mapping[ErrorCode, Verdict]] = {
    ErrorCode.NONE: Verdict.DONE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.LOOK_UP,
    ErrorCode.NOT_COORDINATOR: Verdict.LOOK_UP,
    # Coordinators before version 2 of these requests answer with the first code where later ones fence.
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.FENCED,
    ErrorCode.PRODUCER_FENCED: Verdict.FENCED,
    ErrorCode.TRANSACTION_ABORTABLE: Verdict.ABORT,
}
_LOST_PRODUCER_ID: Final[Mapping[ErrorCode, Verdict]] = {
    ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.ABORT_AND_BUMP,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Verdict.ABORT_AND_BUMP,
}
_INIT_PRODUCER_ID: Final[Mapping[ErrorCode, Verdict]] = {
    **_EVERY_REQUEST,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.UNAUTHORIZED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Verdict.UNAUTHORIZED,
}
_ADD_PARTITIONS: Final[Mapping[ErrorCode, Verdict]] = {
    **_EVERY_REQUEST,
    **_LOST_PRODUCER_ID,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.FATAL,
    ErrorCode.INVALID_TXN_STATE: Verdict.FATAL,
}
"""What it does not name concerns single partitions and is cured by aborting."""
_ADD_OFFSETS: Final[Mapping[ErrorCode, Verdict]] = {
    **_EVERY_REQUEST,
    **_LOST_PRODUCER_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Verdict.ABORT,
}
_OFFSET_COMMIT: Final[Mapping[ErrorCode, Verdict]] = {
    **_ADD_OFFSETS,
    ErrorCode.REQUEST_TIMED_OUT: Verdict.LOOK_UP,
    ErrorCode.FENCED_INSTANCE_ID: Verdict.ABORT,
    ErrorCode.UNKNOWN_MEMBER_ID: Verdict.ABORT,
    ErrorCode.ILLEGAL_GENERATION: Verdict.ABORT,
    ErrorCode.STALE_MEMBER_EPOCH: Verdict.ABORT,
    ErrorCode.REBALANCE_IN_PROGRESS: Verdict.ABORT,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Verdict.ABORT,
    ErrorCode.OFFSET_METADATA_TOO_LARGE: Verdict.ABORT,
}
_COMMIT: Final[Mapping[ErrorCode, Verdict]] = {**_EVERY_REQUEST, **_LOST_PRODUCER_ID}
_ABORT: Final[Mapping[ErrorCode, Verdict]] = {
    **_COMMIT,
    # An abort that asks for an abort would never end.
    ErrorCode.TRANSACTION_ABORTABLE: Verdict.FATAL,
}
_FIND_COORDINATOR: Final[Mapping[ErrorCode, Verdict]] = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.RETRY,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Verdict.ABORT,
    ErrorCode.TRANSACTION_ABORTABLE: Verdict.ABORT,
}
_SEVERITY: Final = (
    Verdict.FATAL,
    Verdict.FENCED,
    Verdict.ABORT_AND_BUMP,
    Verdict.ABORT,
    Verdict.LOOK_UP,
    Verdict.RETRY,
    Verdict.DONE,
)


def outcome_of(request: TransactionRequest, response: Message) -> Outcome:
    """Return the outcome of a request, given its response."""
    match request, response:
        case InitProducerId(), InitProducerIdResponse():
            return _outcome(_INIT_PRODUCER_ID, response.error_code)
        case EndTxn(), EndTxnResponse():
            return _outcome(_COMMIT if request.is_commit else _ABORT, response.error_code)
        case AddOffsetsToTxn(), AddOffsetsToTxnResponse():
            return _outcome(_ADD_OFFSETS, response.error_code, f"group {request.group.group_id}")
        case AddPartitionsToTxn(), AddPartitionsToTxnResponse():
            return _worst(
                _outcome(_ADD_PARTITIONS, code, str(partition), otherwise=Verdict.ABORT)
                for partition, code in added_partitions(response).items()
            )
        case TxnOffsetCommit(), TxnOffsetCommitResponse():
            return _worst(
                _outcome(_OFFSET_COMMIT, code, f"{partition} of group {request.group.group_id}")
                for partition, code in committed_partitions(response).items()
            )
    raise AssertionError(f"{type(response).__name__} does not answer {type(request).__name__}")


def coordinator_outcome(code: ErrorCode, subject: str) -> Outcome:
    """Return the outcome of a request whose coordinator was not found."""
    return _outcome(_FIND_COORDINATOR, code, subject)


def added_partitions(response: AddPartitionsToTxnResponse) -> dict[TopicPartition, int]:
    """Return the error code of each partition."""
    return {
        TopicPartition(topic.name, result.partition_index): result.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for result in topic.results_by_partition
    }


def committed_partitions(response: TxnOffsetCommitResponse) -> dict[TopicPartition, int]:
    """Return the error code of each partition."""
    return {
        TopicPartition(topic.name, result.partition_index): result.error_code
        for topic in response.topics
        for result in topic.partitions
    }


def _outcome(
    table: Mapping[ErrorCode, Verdict], number: int, subject: str = "", otherwise: Verdict = Verdict.FATAL
) -> Outcome:
    code = ErrorCode.of(number)
    verdict = table.get(code)
    if verdict is None:
        verdict = Verdict.RETRY if code.retriable else otherwise
    return DONE if verdict is Verdict.DONE else Outcome(verdict, code, subject)


def _worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the gravest outcome; a permanent failure of a partition outweighs a retriable one.

    OPERATION_NOT_ATTEMPTED only says that another partition failed, so it is named last.
    """
    return min(
        outcomes,
        key=lambda each: (
            _SEVERITY.index(each.verdict),
            each.code is ErrorCode.OPERATION_NOT_ATTEMPTED,
        ),
        default=DONE,
    )
