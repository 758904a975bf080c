"""InitProducerId (key 22), versions 0-6: gives an id to an idempotent or transactional producer (KIP-98).

v3 lets a producer request a new epoch for its id (KIP-360). A producer without a transactional id gets a new
id instead, as in Kafka. A request with an id and no epoch, or an epoch and no id, is invalid. Versions below
4 return INVALID_PRODUCER_EPOCH for a fenced producer. v6 adds two-phase commit, which may keep a prepared
transaction open (KIP-939).
"""

from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from kalda.broker.requests.api import ApiHandler, Pending, RequestContext
from kalda.broker.requests.checks import transactions as transaction_checks
from kalda.broker.transactions.producer_ids import ProducerIds
from kalda.cluster.history.author import author_details
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.coordinator.transaction.decisions import Decision
from kalda.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from kalda.coordinator.transaction.transaction_metadata import Identity
from kalda.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kalda.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kalda.zookeeper.errors import ZooKeeperError

FENCED_FROM: Final = 4
"""The first version with PRODUCER_FENCED."""


def handle(
    coordinator: TransactionCoordinator,
    producer_ids: ProducerIds,
    request: InitProducerIdRequest,
    context: RequestContext,
) -> InitProducerIdResponse | Pending[InitProducerIdResponse] | Coroutine[Any, Any, InitProducerIdResponse]:
    """Return a producer id: at once if a new one is requested and this broker's block has one."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return error_response(request, ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _begin(coordinator, request, request.transactional_id, context)
    producer_id = producer_ids.take_nowait()
    if producer_id is None:
        return _take(producer_ids, request)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _begin(
    coordinator: TransactionCoordinator,
    request: InitProducerIdRequest,
    transactional_id: str,
    context: RequestContext,
) -> Pending[InitProducerIdResponse]:
    """Initialize a transactional producer."""
    expected = None
    if request.producer_id != NO_PRODUCER_ID:
        expected = Identity(request.producer_id, request.producer_epoch)

    def answer(done: Pending[Decision]) -> InitProducerIdResponse:
        decision = done.value
        code = decision.code
        if code is not ErrorCode.NONE:
            if code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_FROM:
                code = ErrorCode.INVALID_PRODUCER_EPOCH
            return error_response(request, code)
        return InitProducerIdResponse(
            producer_id=decision.identity.producer_id,
            producer_epoch=decision.identity.epoch,
            ongoing_txn_producer_id=decision.ongoing.producer_id,
            ongoing_txn_producer_epoch=decision.ongoing.epoch,
        )

    decided = coordinator.begin(
        transactional_id,
        request.transaction_timeout_ms,
        expected=expected,
        enables_two_phase_commit=request.enable2_pc,
        keeps_prepared=request.keep_prepared_txn,
        author=author_details(context.author()),
    )
    return decided.then(answer)


async def _take(producer_ids: ProducerIds, request: InitProducerIdRequest) -> InitProducerIdResponse:
    try:
        producer_id = await producer_ids.take()
    except ZooKeeperError:
        # A retriable code: ZooKeeper may be available at the next attempt.
        return error_response(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def error_response(request: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:
    """Return a response with the error."""
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


HANDLER: Final = ApiHandler(
    key=ApiKey.INIT_PRODUCER_ID,
    versions=(0, 6),
    build=lambda services: partial(handle, services.transaction_coordinator, services.producer_ids),
    error_response=error_response,
    access=transaction_checks.init_producer_id,
)
