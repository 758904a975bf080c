"""Asks the controller to move the leaderships of a stopping broker to other replicas (controlled shutdown).

Clients then lose milliseconds per partition instead of a session time-out. The shutdown does not depend on
success: the broker stops after ``controlled.shutdown.max.retries`` attempts, and at once when no other broker
is left or when the controller or ZooKeeper does not answer at all.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.cluster import paths
from kalda.common.errors import ApiError, ErrorCode
from kalda.controller.driver import ControllerDriver
from kalda.net.peer.dialer import Dialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from kalda.runtime.network import address_text
from kalda.settings import BrokerConfig
from kalda.zookeeper.errors import ZooKeeperError
from kalda.zookeeper.port import ZooKeeperClient

logger: Final = logging.getLogger(__name__)

SILENCE_SECONDS_MAX: Final = 1.5
"""How long a stopping broker waits for any answer of ZooKeeper or of the controller's process. Both answer
within milliseconds under load, and a broker should stop within 3 s."""

_PROBE_SECONDS: Final = 0.25
"""The pause between two reads that test whether ZooKeeper answers."""

_NAMES_MAX: Final = 5
"""The number of partitions that a log line names."""


class _NotYetError(Exception):
    """An attempt failed; the message says why."""


class _SilentControllerError(Exception):
    """The controller's process does not answer, so asking it again is of no use."""


class ControlledShutdown:
    """Hands the leaderships of one stopping broker over."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        cache: MetadataCache,
        controller: ControllerDriver,
        dialer: Dialer,
        *,
        broker_epoch: Callable[[], int],
        stop_following: Callable[[], None],
    ) -> None:
        """`stop_following` makes this broker fetch from no leader any more."""
        self._broker_id: Final = broker_id
        self._config: Final = config
        self._cache: Final = cache
        self._controller: Final = controller
        self._dialer: Final = dialer
        self._broker_epoch: Final = broker_epoch
        self._stop_following: Final = stop_following

    async def run(self) -> str:
        """Make the controller move the leaderships of this broker; return why it may still lead, or ``""``.

        Raises nothing unless it is cancelled. The retries, the pause between them and
        ``controller.socket.timeout.ms`` bound the time that it takes.
        """
        if not self._config.controlled_shutdown_enable:
            return ""
        self._stop_following()
        changed = asyncio.Event()
        self._cache.on_change(lambda _: changed.set())
        left = max(1, self._config.controlled_shutdown_max_retries)
        while not self._is_alone():
            controller_id = self._controller_id()
            try:
                await self._ask(controller_id)
            except _SilentControllerError as error:
                return str(error)
            except (_NotYetError, ConnectionError, TimeoutError, ZooKeeperError, ApiError) as error:
                left -= 1
                reason = str(error) or "no answer in time"
                if left == 0:
                    return reason
                logger.info(
                    "controlled shutdown of broker %d, attempts left: %d; %s", self._broker_id, left, reason
                )
            else:
                logger.info("broker %d leads no partition any more", self._broker_id)
                return ""
            await self._pause(changed, controller_id)
        return "no other broker is left"

    async def _ask(self, controller_id: int) -> None:
        """Send one ControlledShutdown request.

        Raises:
            _SilentControllerError: the controller does not complete the connection.
            _NotYetError, ConnectionError, TimeoutError, ZooKeeperError, ApiError: the attempt failed.
        """
        timeout_seconds = self._config.controller_socket_timeout_ms / 1000
        broker_id, broker_epoch = self._broker_id, self._broker_epoch()
        if controller_id == broker_id:
            async with asyncio.timeout(timeout_seconds):
                led = await self._controller.controlled_shutdown(broker_id, broker_epoch)
            names = [str(each) for each in led]
        else:
            connection = await self._dial(controller_id, timeout_seconds)
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

    async def _dial(self, controller_id: int, timeout_seconds: float) -> PeerConnection:
        endpoint = self._cache.endpoint(controller_id, self._config.inter_broker_listener_name)
        if endpoint is None:
            raise _NotYetError("no controller is known")
        try:
            async with asyncio.timeout(SILENCE_SECONDS_MAX):
                return await self._dialer.dial(
                    endpoint.host,
                    endpoint.port,
                    DialOptions(client_id=str(self._broker_id), timeout_seconds=timeout_seconds),
                )
        except TimeoutError:
            raise _SilentControllerError(
                f"controller {controller_id} at {address_text(endpoint.host, endpoint.port)} has not "
                f"answered for {SILENCE_SECONDS_MAX:g} s"
            ) from None

    async def _pause(self, changed: asyncio.Event, controller_id: int) -> None:
        """Wait before the next attempt, unless the controller changes or no other broker is left."""
        try:
            async with asyncio.timeout(self._config.controlled_shutdown_retry_backoff_ms / 1000):
                while not self._is_alone() and self._controller_id() == controller_id:
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            pass

    def _controller_id(self) -> int:
        """Return the controller as ZooKeeper names it, or as the last metadata named it; -1 for none."""
        watched = self._controller.controller_id
        return self._cache.controller_id if watched is None else watched

    def _is_alone(self) -> bool:
        return set(self._cache.brokers) <= {self._broker_id}


def report_leaderships(broker_id: int, replicas: ReplicaManager, reason: str) -> None:
    """Log the partitions with other replicas that a stopping broker still leads, and the reason."""
    led = sorted(
        str(partition.topic_partition)
        for partition in replicas.partitions.values()
        if partition.is_leader and len(partition.replicas) > 1
    )
    if led:
        shown = ", ".join(led[:_NAMES_MAX]) + (", ..." if len(led) > _NAMES_MAX else "")
        count = "1 partition" if len(led) == 1 else f"{len(led)} partitions"
        logger.warning("broker %d stops while it leads %s (%s): %s", broker_id, count, shown, reason)


async def wait_zookeeper_silent(
    zookeeper: ZooKeeperClient, seconds: float = SILENCE_SECONDS_MAX, probe_seconds: float = _PROBE_SECONDS
) -> None:
    """Return when ZooKeeper has answered nothing for `seconds`, whether it was connected or not."""
    loop = asyncio.get_running_loop()
    answered = loop.time()
    while True:
        try:
            async with asyncio.timeout_at(answered + seconds):
                await zookeeper.exists(paths.CONTROLLER)
            answered = loop.time()
        except TimeoutError:
            return
        except ZooKeeperError:
            if loop.time() >= answered + seconds:
                return
        await asyncio.sleep(probe_seconds)
