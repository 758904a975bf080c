"""TxnOffsetCommit (key 28), versions 0-5: a group's positions as part of a transaction (KIP-98).

The group coordinator writes them; they count when the transaction's marker follows. Before the first of a
transaction the transaction's coordinator is asked whether it is open (KIP-890). v3 adds what fences members
that are no longer in the group (KIP-447). Before v4 a transaction that is not open is INVALID_TXN_STATE, then
TRANSACTION_ABORTABLE. From v5 the group becomes part of the transaction by this request (transactions V2).
"""

from typing import Final

from kalda.broker.requests.api import ApiHandler, Pending, RequestContext
from kalda.broker.requests.requested_partitions import merge_answers, take_known
from kalda.broker.requests.services import BrokerServices
from kalda.broker.transactions.verification import PASSING
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.transaction.transaction_metadata import Identity
from kalda.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

LOADING_FROM: Final = 2
"""Producers of before Kafka 2.3 may crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
ABORTABLE_FROM: Final = 4
ADDS_FROM: Final = 5


def handle(
    services: BrokerServices, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]:
    """Commit, once the transaction is known to be open; unknown partitions are refused one by one."""
    version = context.api_version
    refused = _refuse_unknown(services, request)
    if refused and not request.topics:
        return TxnOffsetCommitResponse(topics=refused)
    answer: Pending[TxnOffsetCommitResponse] = Pending()

    def complete(response: TxnOffsetCommitResponse) -> None:
        if version < LOADING_FROM:
            _replace(response, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answer.complete(TxnOffsetCommitResponse(topics=merge_answers(response.topics, refused)))

    def verified(pending: Pending[ErrorCode]) -> None:
        code = _translated(pending.value, version)
        if code is not ErrorCode.NONE:
            complete(error_response(request, code))
            return
        try:
            result = services.group_coordinator.txn_offset_commit(request, version)
        except ApiError as error:
            complete(error_response(request, error.code))
            return
        if isinstance(result, Pending):
            result.add_done(committed)
        else:
            complete(result)

    def committed(pending: Pending[TxnOffsetCommitResponse]) -> None:
        if isinstance(pending.error, ApiError):
            complete(error_response(request, pending.error.code))
        elif pending.error is not None:
            answer.fail(pending.error)
        else:
            complete(pending.value)

    if not request.group_id:
        complete(error_response(request, ErrorCode.INVALID_GROUP_ID))
        return answer
    services.produce_gate.verify(
        request.transactional_id,
        Identity(request.producer_id, request.producer_epoch),
        services.internal_topics.offsets_partition(request.group_id),
        adds=version >= ADDS_FROM,
    ).add_done(verified)
    return answer


def _refuse_unknown(
    services: BrokerServices, request: TxnOffsetCommitRequest
) -> list[TxnOffsetCommitResponseTopic]:
    """Take partitions that do not exist out of the request; return what to answer for them."""
    request.topics, refused = take_known(
        services.metadata_cache,
        request.topics,
        lambda name, partitions: TxnOffsetCommitRequestTopic(name=name, partitions=partitions),
        lambda name, partitions: _answer(name, partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    )
    return refused


def _replace(response: TxnOffsetCommitResponse, code: ErrorCode, by: ErrorCode) -> None:
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code == code:
                partition.error_code = by


def _translated(code: ErrorCode, version: int) -> ErrorCode:
    if code in PASSING:
        # No reason to look for another group coordinator.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        # It is here that the group is not coordinated; told anything else, producers would ask here for ever.
        return ErrorCode.NOT_COORDINATOR
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _answer(
    topic: str, partitions: list[TxnOffsetCommitRequestPartition], code: ErrorCode
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in partitions
        ],
    )


def error_response(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """Answer every partition with one error."""
    return TxnOffsetCommitResponse(
        topics=[_answer(topic.name, topic.partitions, code) for topic in request.topics]
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 5), handle=handle, error_response=error_response
)
