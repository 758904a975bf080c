"""AddOffsetsToTxn (key 25), versions 0-4: a group's offsets become part of a transaction (KIP-98).

What becomes part is the partition of ``__consumer_offsets`` that the group belongs to. Before v2 a fenced
producer is told INVALID_PRODUCER_EPOCH. v4 may answer TRANSACTION_ABORTABLE, which never comes up here.
"""

from typing import Final

from kalda.broker.requests.api import ApiHandler, Pending, RequestContext
from kalda.broker.requests.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.coordinator.transaction.decisions import Decision
from kalda.coordinator.transaction.transaction_metadata import Identity
from kalda.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FENCED_FROM: Final = 2
"""The first version whose producers know PRODUCER_FENCED."""


def handle(
    services: BrokerServices, request: AddOffsetsToTxnRequest, context: RequestContext
) -> Pending[AddOffsetsToTxnResponse]:
    """Take the group's partition into the transaction."""

    def answer(done: Pending[Decision]) -> AddOffsetsToTxnResponse:
        code = done.value.code
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_FROM:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return AddOffsetsToTxnResponse(error_code=code)

    decided = services.transaction_coordinator.add_partitions(
        request.transactional_id,
        Identity(request.producer_id, request.producer_epoch),
        [services.internal_topics.offsets_partition(request.group_id)],
    )
    return decided.then(answer)


def error_response(request: AddOffsetsToTxnRequest, code: ErrorCode) -> AddOffsetsToTxnResponse:
    """Answer with an error."""
    return AddOffsetsToTxnResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4), handle=handle, error_response=error_response
)
