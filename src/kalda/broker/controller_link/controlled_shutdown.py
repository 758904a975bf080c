"""A broker's way out: the controller moves its leaderships to others before it stops serving.

So clients lose milliseconds per partition instead of a session time-out. What it is not: a condition for
stopping. When the controller cannot be found or asked, or partitions stay because nobody else has them, the
broker stops all the same after ``controlled.shutdown.max.retries`` attempts; its logs are closed in order.
"""

import asyncio
import logging
from typing import Final

from kalda.broker.services import BrokerServices
from kalda.common.errors import ApiError, ErrorCode
from kalda.coordination.errors import CoordinationError
from kalda.net.peer.dialer import Dialer
from kalda.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse

logger: Final = logging.getLogger(__name__)


class _NotYetError(Exception):
    """An attempt failed; the message says why."""


async def shut_down_gracefully(services: BrokerServices, dialer: Dialer) -> bool:
    """Have the controller move what this broker leads; tell whether nothing is left.

    Never raises but when cancelled; bounded by the retries, the pause between them and
    ``controller.socket.timeout.ms``.
    """
    config = services.config
    if not config.controlled_shutdown_enable:
        return False
    services.controller_requests.follow_no_more(services.replica_fetchers.unfollow)
    changed = asyncio.Event()
    services.metadata_cache.on_change(lambda _: changed.set())
    left = max(1, config.controlled_shutdown_max_retries)
    while True:
        if _is_alone(services):
            logger.info("broker %d is the last one: there is nobody to lead in its place", services.broker_id)
            return True
        controller_id = _controller_id(services)
        try:
            await _ask(services, dialer, controller_id)
        except (_NotYetError, ConnectionError, TimeoutError, CoordinationError, ApiError) as error:
            left -= 1
            reason = str(error) or "no answer in time"
            if left == 0:
                logger.warning("broker %d stops while it still leads: %s", services.broker_id, reason)
                return False
            logger.info(
                "controlled shutdown of broker %d, attempts left: %d; %s", services.broker_id, left, reason
            )
        else:
            logger.info("broker %d leads nothing any more", services.broker_id)
            return True
        await _pause(services, changed, controller_id)


async def _ask(services: BrokerServices, dialer: Dialer, controller_id: int) -> None:
    """Ask the controller once.

    Raises:
        _NotYetError, ConnectionError, TimeoutError, CoordinationError, ApiError: it did not succeed.
    """
    config = services.config
    timeout_seconds = config.controller_socket_timeout_ms / 1000
    broker_id, broker_epoch = services.broker_id, services.registration.broker_epoch
    if controller_id == broker_id:
        async with asyncio.timeout(timeout_seconds):
            led = await services.controller.controlled_shutdown(broker_id, broker_epoch)
        names = [str(each) for each in led]
    else:
        endpoint = services.metadata_cache.endpoint(controller_id, config.inter_broker_listener_name)
        if endpoint is None:
            raise _NotYetError("no controller is known")
        connection = await dialer.dial(
            endpoint.host, endpoint.port, client_id=str(broker_id), timeout_seconds=timeout_seconds
        )
        try:
            response = await connection.request(
                ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch),
                timeout_seconds=timeout_seconds,
            )
        finally:
            connection.close()
        assert isinstance(response, ControlledShutdownResponse), f"a {type(response).__name__}"
        if response.error_code != ErrorCode.NONE:
            raise _NotYetError(f"controller {controller_id} answered error {response.error_code}")
        names = [f"{each.topic_name}-{each.partition_index}" for each in response.remaining_partitions]
    if names:
        shown = ", ".join(names[:5])
        raise _NotYetError(f"{len(names)} partitions have no other replica in sync, such as {shown}")


async def _pause(services: BrokerServices, changed: asyncio.Event, controller_id: int) -> None:
    """Wait before the next attempt; not if another controller, or nobody at all, is left to ask."""
    try:
        async with asyncio.timeout(services.config.controlled_shutdown_retry_backoff_ms / 1000):
            while not _is_alone(services) and _controller_id(services) == controller_id:
                changed.clear()
                await changed.wait()
    except TimeoutError:
        pass


def _controller_id(services: BrokerServices) -> int:
    """The controller as this broker knows it, -1 for none: what it watches before what it was told."""
    watched = services.controller.controller_id
    return services.metadata_cache.controller_id if watched is None else watched


def _is_alone(services: BrokerServices) -> bool:
    return set(services.metadata_cache.brokers) <= {services.broker_id}
