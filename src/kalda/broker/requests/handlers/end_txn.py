"""EndTxn (key 26), versions 0-5: commit or abort a transaction (KIP-98).

The answer comes when the outcome is decided for good, before it is written everywhere. Before v2 a fenced
producer is told INVALID_PRODUCER_EPOCH. v4 may answer TRANSACTION_ABORTABLE. From v5 every end raises the
producer's epoch, which is in the answer (KIP-890).
"""

from typing import Final

from kalda.broker.requests.api import ApiHandler, Pending, RequestContext
from kalda.broker.requests.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.coordinator.transaction.decisions import Decision
from kalda.coordinator.transaction.transaction_metadata import EPOCH_BUMP_FROM, Identity
from kalda.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

FENCED_FROM: Final = 2
"""The first version whose producers know PRODUCER_FENCED."""
RAISES_EPOCH_FROM: Final = 5


def handle(
    services: BrokerServices, request: EndTxnRequest, context: RequestContext
) -> Pending[EndTxnResponse]:
    """Decide the outcome."""
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

    decided = services.transaction_coordinator.end(
        request.transactional_id,
        Identity(request.producer_id, request.producer_epoch),
        is_commit=request.committed,
        client_version=EPOCH_BUMP_FROM if version >= RAISES_EPOCH_FROM else 0,
    )
    return decided.then(answer)


def error_response(request: EndTxnRequest, code: ErrorCode) -> EndTxnResponse:
    """Answer with an error."""
    return EndTxnResponse(error_code=code)


HANDLER: Final = ApiHandler(key=ApiKey.END_TXN, versions=(0, 5), handle=handle, error_response=error_response)
