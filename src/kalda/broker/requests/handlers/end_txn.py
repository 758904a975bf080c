"""EndTxn (key 26), versions 0-5: commits or aborts a transaction (KIP-98).

The response follows the durable decision, before the markers are written. Versions below 2 return
INVALID_PRODUCER_EPOCH for a fenced producer. v3 is flexible. v4 may return TRANSACTION_ABORTABLE. From v5 the
end of a transaction raises the producer's epoch, which the response carries (KIP-890).
"""

from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, Pending, RequestContext
from kalda.broker.requests.checks import transactions as transaction_checks
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.coordinator.transaction.decisions import Decision
from kalda.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from kalda.coordinator.transaction.transaction_metadata import EPOCH_BUMP_FROM, Identity
from kalda.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

FENCED_FROM: Final = 2
"""The first version with PRODUCER_FENCED."""
RAISES_EPOCH_FROM: Final = 5


def handle(
    coordinator: TransactionCoordinator, request: EndTxnRequest, context: RequestContext
) -> Pending[EndTxnResponse]:
    """Commit or abort the transaction."""
    version = context.api_version

    def answer(done: Pending[Decision]) -> EndTxnResponse:
        decision = done.value
        code = decision.code
        if code is ErrorCode.PRODUCER_FENCED and version < FENCED_FROM:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        if code is ErrorCode.NONE and version >= RAISES_EPOCH_FROM:
            identity = decision.identity
            return EndTxnResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)
        return EndTxnResponse(error_code=code)

    decided = coordinator.end(
        request.transactional_id,
        Identity(request.producer_id, request.producer_epoch),
        is_commit=request.committed,
        client_version=EPOCH_BUMP_FROM if version >= RAISES_EPOCH_FROM else 0,
    )
    return decided.then(answer)


def error_response(request: EndTxnRequest, code: ErrorCode) -> EndTxnResponse:
    """Return a response with the error."""
    return EndTxnResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.END_TXN,
    versions=(0, 5),
    build=lambda services: partial(handle, services.transaction_coordinator),
    error_response=error_response,
    access=transaction_checks.of_request(),
)
