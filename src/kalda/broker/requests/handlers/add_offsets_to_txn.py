"""AddOffsetsToTxn (key 25), versions 0-4: adds a group's offsets to a transaction (KIP-98).

It adds the partition of ``__consumer_offsets`` that the group belongs to. Versions below 2 return
INVALID_PRODUCER_EPOCH for a fenced producer. v3 is flexible. v4 may return TRANSACTION_ABORTABLE (KIP-890),
which this broker never does.
"""

from functools import partial
from typing import Final

from kalda.broker.internal_topics.internal_topics import InternalTopics
from kalda.broker.requests.api import ApiHandler, Pending, RequestContext
from kalda.broker.requests.checks import groups as group_checks
from kalda.broker.requests.checks import transactions as transaction_checks
from kalda.broker.requests.checks.check import in_turn
from kalda.broker.transactions.previous_transaction import add_for_client
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.coordinator.transaction.decisions import Decision
from kalda.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from kalda.coordinator.transaction.transaction_metadata import Identity
from kalda.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

FENCED_FROM: Final = 2
"""The first version with PRODUCER_FENCED."""


def handle(
    coordinator: TransactionCoordinator,
    internal_topics: InternalTopics,
    request: AddOffsetsToTxnRequest,
    context: RequestContext,
) -> Pending[AddOffsetsToTxnResponse]:
    """Add the group's partition to the transaction."""

    def answer(done: Pending[Decision]) -> AddOffsetsToTxnResponse:
        code = done.value.code
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_FROM:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        return AddOffsetsToTxnResponse(error_code=code)

    decided = add_for_client(
        coordinator,
        context.connection,
        request.transactional_id,
        Identity(request.producer_id, request.producer_epoch),
        [internal_topics.offsets_partition(request.group_id)],
    )
    return decided.then(answer)


def error_response(request: AddOffsetsToTxnRequest, code: ErrorCode) -> AddOffsetsToTxnResponse:
    """Return a response with the error."""
    return AddOffsetsToTxnResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.ADD_OFFSETS_TO_TXN,
    versions=(0, 4),
    build=lambda services: partial(handle, services.transaction_coordinator, services.internal_topics),
    error_response=error_response,
    access=in_turn(transaction_checks.of_request(), group_checks.MEMBERS),
)
