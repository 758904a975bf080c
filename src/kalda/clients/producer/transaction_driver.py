"""Sends the requests of the transaction manager to coordinators, one at a time. It decides nothing.

`Sender` calls `poll` in each of its rounds and drains no batch while it returns True: in V1 a batch must not
overtake the AddPartitionsToTxn before it, nor EndTxn a batch. `on_idle` wakes the sender when a request is
done. `close` leaves no task.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from kalda.clients.coordinator_lookup import CoordinatorType
from kalda.clients.errors import BrokerConnectionError, ClientError, RequestTimedOutError
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.clients.producer.transaction_requests import TransactionRequest
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.api_keys import ApiKey
from kalda.common.backoff import ExponentialBackoff
from kalda.net.client.api_versions import NodeApiVersions
from kalda.protocol.schema import Message
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

CONCURRENT_TRANSACTIONS_BACKOFF_S: Final = 0.02
"""The wait before a transaction's first request is repeated while the previous one is being completed."""
_RETRIES_AT_ONCE: Final = 10
"""After so many of these waits, the usual back-off begins."""
EPOCH_BUMP_VERSION: Final = 3
"""The version of InitProducerId from which a producer can raise its epoch (KIP-360)."""
TRANSACTION_VERSION: Final = "transaction.version"


R = TypeVar("R", bound=Message)


class CoordinatorNetwork(Protocol):
    """The part of a `NetworkClient` that the driver uses."""

    @property
    def retry_backoff(self) -> ExponentialBackoff:
        """The waits between attempts."""
        ...

    async def coordinator(self, key: str, kind: CoordinatorType) -> int:
        """Return the node of a coordinator."""
        ...

    def forget_coordinator(self, key: str, kind: CoordinatorType) -> None:
        """Ask for the coordinator again before its next use."""
        ...

    async def ready(self, node_id: int) -> NodeApiVersions:
        """Connect where needed; return what the node offers."""
        ...

    async def send(self, node_id: int, request: VersionedRequest, response_class: type[R]) -> R:
        """Send a request to a node; return the response."""
        ...

    async def send_to_any(self, request: VersionedRequest, response_class: type[R]) -> R:
        """Send a request to some node; return the response."""
        ...


class TransactionDriver:
    """The task that carries one coordinator request at a time."""

    def __init__(
        self, manager: TransactionManager, network: CoordinatorNetwork, on_idle: Callable[[], None]
    ) -> None:
        self._manager: Final = manager
        self._network: Final = network
        self._on_idle: Final = on_idle
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way; no batch may be drained."""
        return self._task is not None

    def poll(self, has_incomplete_batches: bool) -> bool:
        """Start the next request, if any; return whether one is under way.

        `has_incomplete_batches`: a batch of the accumulator or in flight is not complete.
        """
        if self._task is not None:
            return True
        request = self._manager.next_request(has_incomplete_batches)
        if request is None:
            return False
        self._task = asyncio.get_running_loop().create_task(
            self._carry(request), name=f"kalda-producer-{type(request).__name__}"
        )
        self._task.add_done_callback(self._ended)
        return True

    async def close(self) -> None:
        """Cancel the request under way."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _carry(self, request: TransactionRequest) -> None:
        try:
            await self._send(request)
        except Exception as error:
            logger.exception("%s failed in an unexpected way", type(request).__name__)
            self._manager.handle_internal_error(request, error)

    def _ended(self, _: asyncio.Task[None]) -> None:
        """Called also for a task that was cancelled before it ran."""
        self._task = None
        self._on_idle()

    async def _send(self, request: TransactionRequest) -> None:
        manager = self._manager
        if request.attempts:
            await asyncio.sleep(self._backoff(request))
        try:
            node_id = await self._find_node(request)
        except ClientError as error:
            manager.handle_coordinator_error(request, error)
            return
        try:
            response = await self._exchange(request, node_id)
        except (BrokerConnectionError, RequestTimedOutError) as error:
            logger.info("%s will be sent again: %s", type(request).__name__, error)
            manager.handle_failure(request, error)
        except ClientError as error:
            manager.handle_failure(request, error)
        else:
            manager.handle_response(request, response)

    def _backoff(self, request: TransactionRequest) -> float:
        if request.retries_at_once and request.attempts <= _RETRIES_AT_ONCE:
            return CONCURRENT_TRANSACTIONS_BACKOFF_S
        return self._network.retry_backoff.seconds(request.attempts)

    async def _find_node(self, request: TransactionRequest) -> int | None:
        """Return the node of the coordinator, None for any broker."""
        kind = request.coordinator_type
        if kind is None:
            return None
        if request.coordinator_is_stale:
            self._network.forget_coordinator(request.coordinator_key, kind)
            request.coordinator_is_stale = False
        return await self._network.coordinator(request.coordinator_key, kind)

    async def _exchange(self, request: TransactionRequest, node_id: int | None) -> Message:
        message = request.message()
        api_key = message.SCHEMA.api_key
        assert api_key is not None, f"{message.SCHEMA.name} is not a request"
        versioned = VersionedRequest(
            api_key, lambda _: message, version_max=request.version_max, version_min=request.version_min
        )
        if node_id is None:
            return await self._network.send_to_any(versioned, request.response_class)
        versions = await self._network.ready(node_id)
        self._note(versions, is_coordinator=request.coordinator_type is CoordinatorType.TRANSACTION)
        return await self._network.send(node_id, versioned, request.response_class)

    def _note(self, versions: NodeApiVersions, *, is_coordinator: bool) -> None:
        bumps = versions.supports(ApiKey.INIT_PRODUCER_ID, EPOCH_BUMP_VERSION) if is_coordinator else None
        self._manager.note_node_versions(
            coordinator_bumps_epochs=bumps,
            features_epoch=versions.finalized_features_epoch,
            transaction_version=versions.finalized_features.get(TRANSACTION_VERSION, 0),
        )
