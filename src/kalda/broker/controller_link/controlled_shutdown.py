"""A broker's way out: the controller moves its leaderships to others before it stops serving.

So clients lose milliseconds per partition instead of a session time-out. What it is not: a condition for
stopping. The broker stops all the same after ``controlled.shutdown.max.retries`` attempts, and without
further attempts when no other broker is left, or when the controller or coordination does not answer at all:
then waiting serves nobody. Its logs are closed in order either way.
"""

import asyncio
import logging
from typing import Final

from kalda.broker.services import BrokerServices
from kalda.common.errors import ApiError, ErrorCode
from kalda.net.peer.connection import PeerConnection
from kalda.net.peer.dialer import Dialer
from kalda.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from kalda.zk.client import paths
from kalda.zk.client.port import ZooKeeperClient
from kalda.zk.client.zookeeper_errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)

SILENCE_SECONDS_MAX: Final = 1.5
"""How long coordination, or the controller's process, may leave a broker that stops without any answer. Both
answer in milliseconds, however much they have to do, and a broker should be down within 3 s."""

_PROBE_SECONDS: Final = 0.25
"""Between two reads that only show whether coordination answers."""

_NAMES_MAX: Final = 5
"""Partitions that a line of the log names."""


class _NotYetError(Exception):
    """An attempt failed; the message says why."""


class _SilentControllerError(Exception):
    """The controller's process does not answer, so asking it again is of no use."""


async def shut_down_gracefully(services: BrokerServices, dialer: Dialer) -> str:
    """Have the controller move what this broker leads; return why it may lead something still, or ``""``.

    Never raises but when cancelled; bounded by the retries, the pause between them and
    ``controller.socket.timeout.ms``.
    """
    config = services.config
    if not config.controlled_shutdown_enable:
        return ""
    services.controller_requests.follow_no_more(services.replica_fetchers.unfollow)
    changed = asyncio.Event()
    services.metadata_cache.on_change(lambda _: changed.set())
    left = max(1, config.controlled_shutdown_max_retries)
    while not _is_alone(services):
        controller_id = _controller_id(services)
        try:
            await _ask(services, dialer, controller_id)
        except _SilentControllerError as error:
            return str(error)
        except (_NotYetError, ConnectionError, TimeoutError, ZooKeeperError, ApiError) as error:
            left -= 1
            reason = str(error) or "no answer in time"
            if left == 0:
                return reason
            logger.info(
                "controlled shutdown of broker %d, attempts left: %d; %s", services.broker_id, left, reason
            )
        else:
            logger.info("broker %d leads nothing any more", services.broker_id)
            return ""
        await _pause(services, changed, controller_id)
    return "no other broker is left"


def report_leaderships(services: BrokerServices, reason: str) -> None:
    """Log which partitions a broker stops as the leader of although other brokers have replicas, and why."""
    led = sorted(
        str(partition.topic_partition)
        for partition in services.replica_manager.partitions.values()
        if partition.is_leader and len(partition.replicas) > 1
    )
    if led:
        shown = ", ".join(led[:_NAMES_MAX]) + (", ..." if len(led) > _NAMES_MAX else "")
        count = "1 partition" if len(led) == 1 else f"{len(led)} partitions"
        logger.warning("broker %d stops while it leads %s (%s): %s", services.broker_id, count, shown, reason)


async def wait_coordination_silent(
    zookeeper: ZooKeeperClient, seconds: float = SILENCE_SECONDS_MAX, probe_seconds: float = _PROBE_SECONDS
) -> None:
    """Return when coordination has answered nothing for `seconds`, whether it was connected or not."""
    loop = asyncio.get_running_loop()
    heard = loop.time()
    while True:
        try:
            async with asyncio.timeout_at(heard + seconds):
                await zookeeper.exists(paths.CONTROLLER)
            heard = loop.time()
        except TimeoutError:
            return
        except ZooKeeperError:
            if loop.time() >= heard + seconds:
                return
        await asyncio.sleep(probe_seconds)


async def _ask(services: BrokerServices, dialer: Dialer, controller_id: int) -> None:
    """Ask the controller once.

    Raises:
        _SilentControllerError: it does not even agree on versions.
        _NotYetError, ConnectionError, TimeoutError, ZooKeeperError, ApiError: it did not succeed.
    """
    config = services.config
    timeout_seconds = config.controller_socket_timeout_ms / 1000
    broker_id, broker_epoch = services.broker_id, services.registration.broker_epoch
    if controller_id == broker_id:
        async with asyncio.timeout(timeout_seconds):
            led = await services.controller.controlled_shutdown(broker_id, broker_epoch)
        names = [str(each) for each in led]
    else:
        connection = await _dial(services, dialer, controller_id, timeout_seconds)
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
        shown = ", ".join(names[:_NAMES_MAX])
        raise _NotYetError(f"{len(names)} partitions have no other replica in sync, such as {shown}")


async def _dial(
    services: BrokerServices, dialer: Dialer, controller_id: int, timeout_seconds: float
) -> PeerConnection:
    endpoint = services.metadata_cache.endpoint(controller_id, services.config.inter_broker_listener_name)
    if endpoint is None:
        raise _NotYetError("no controller is known")
    try:
        async with asyncio.timeout(SILENCE_SECONDS_MAX):
            return await dialer.dial(
                endpoint.host,
                endpoint.port,
                client_id=str(services.broker_id),
                timeout_seconds=timeout_seconds,
            )
    except TimeoutError:
        raise _SilentControllerError(
            f"controller {controller_id} at {endpoint.host}:{endpoint.port} has not answered "
            f"for {SILENCE_SECONDS_MAX:g} s"
        ) from None


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
