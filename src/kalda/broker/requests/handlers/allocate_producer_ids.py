"""AllocateProducerIds (key 67), version 0: a broker of Apache Kafka gets a block of producer ids (KIP-730).

Only the controller serves it. Without it no producer that is idempotent could begin at such a broker.
"""

from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import CLUSTER_ACTION
from kalda.broker.transactions.producer_ids import ProducerIds
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.controller.driver import ControllerDriver
from kalda.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from kalda.zookeeper.errors import ZooKeeperError


async def handle(
    controller: ControllerDriver,
    producer_ids: ProducerIds,
    request: AllocateProducerIdsRequest,
    context: RequestContext,
) -> AllocateProducerIdsResponse:
    """Allocate a block for the broker."""
    await controller.check_registration(request.broker_id, request.broker_epoch)
    try:
        block = await producer_ids.block_for(request.broker_id)
    except ZooKeeperError:
        # The broker asks again.
        return error_response(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return AllocateProducerIdsResponse(
        producer_id_start=block.first, producer_id_len=block.last - block.first + 1
    )


def error_response(request: AllocateProducerIdsRequest, code: ErrorCode) -> AllocateProducerIdsResponse:
    """Return a response with the error."""
    return AllocateProducerIdsResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.ALLOCATE_PRODUCER_IDS,
    versions=(0, 0),
    build=lambda services: partial(handle, services.controller, services.producer_ids),
    error_response=error_response,
    access=CLUSTER_ACTION,
    is_of_brokers=True,
    is_throttled=False,
)
