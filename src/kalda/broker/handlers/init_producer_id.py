"""InitProducerId (key 22), versions 0-5: an id for an idempotent producer (KIP-98).

v3 lets a producer ask for a new epoch of the id it has (KIP-360). A producer without a transactional id gets
a new id instead: that is as good, and what Kafka answers; an id without an epoch, or an epoch without an
id, is an invalid request. Transactions are not built: a transactional id is
refused with an error that producers do not retry, as FindCoordinator does.
"""

from collections.abc import Coroutine
from typing import Any, Final

from kalda.broker.api import ApiHandler, RequestContext
from kalda.broker.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.coordination.errors import CoordinationError
from kalda.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kalda.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


def handle(
    services: BrokerServices, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Coroutine[Any, Any, InitProducerIdResponse]:
    """Answer with a new id, at once while the broker's block of ids lasts."""
    if request.transactional_id is not None:
        refusal = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return error_response(request, refusal if request.transactional_id else ErrorCode.INVALID_REQUEST)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return error_response(request, ErrorCode.INVALID_REQUEST)
    producer_id = services.producer_ids.take_nowait()
    if producer_id is None:
        return _take(services, request)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _take(services: BrokerServices, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        producer_id = await services.producer_ids.take()
    except CoordinationError:
        # Retriable: the next try may find coordination well again.
        return error_response(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def error_response(request: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:
    """Answer with an error."""
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


HANDLER: Final = ApiHandler(
    key=ApiKey.INIT_PRODUCER_ID, versions=(0, 5), handle=handle, error_response=error_response
)
