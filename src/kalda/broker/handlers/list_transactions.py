"""ListTransactions (key 66), versions 0-1: the transactions that this broker coordinates (KIP-664).

v1 filters by how long they have been open (KIP-994). Version 2, which filters by a pattern, is not served.
While partitions are being loaded the list would have holes, so there is none.
"""

from typing import Final

from kalda.broker.api import ApiHandler, RequestContext
from kalda.broker.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.coordinator.transaction.metadata import TransactionMetadata
from kalda.coordinator.transaction.states import STATES_BY_TITLE
from kalda.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


def handle(
    services: BrokerServices, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    """List what passes every filter."""
    if services.transactions.is_loading:
        return error_response(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    now_ms = services.clock.time_ms()
    return ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each not in STATES_BY_TITLE],
        transaction_states=[
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.title,
            )
            for each in services.transaction_coordinator.transactions()
            if _passes(each, request, now_ms)
        ],
    )


def _passes(metadata: TransactionMetadata, request: ListTransactionsRequest, now_ms: int) -> bool:
    if request.producer_id_filters and metadata.producer_id not in request.producer_id_filters:
        return False
    if request.state_filters and metadata.state.title not in request.state_filters:
        return False
    return request.duration_filter < 0 or now_ms - metadata.start_ms > request.duration_filter


def error_response(request: ListTransactionsRequest, code: ErrorCode) -> ListTransactionsResponse:
    """Answer with an error and no list."""
    return ListTransactionsResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.LIST_TRANSACTIONS, versions=(0, 1), handle=handle, error_response=error_response
)
