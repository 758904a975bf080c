"""Work for other brokers, in batches: one connection and one request in flight per broker.

What piles up while a request is under way goes out in the next one. Nothing is retried here: work whose
broker cannot be reached comes back as failed, since its place may be elsewhere by then.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from kalda.common.types import BrokerEndpoint
from kalda.net.peer.dialer import Dialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection

logger: Final = logging.getLogger(__name__)

BATCH_MAX: Final = 500
"""Pieces of work in one request, so that no request is decoded in one go for longer than milliseconds."""

T = TypeVar("T")


class PeerBatches(Generic[T]):
    """One kind of work for all brokers; `run` does it for as long as the broker lives."""

    def __init__(
        self,
        name: str,
        dialer: Dialer,
        *,
        client_id: str,
        endpoint: Callable[[int], BrokerEndpoint | None],
        timeout_ms: int,
        request: Callable[[PeerConnection, list[T]], Awaitable[None]],
        failed: Callable[[list[T]], None],
    ) -> None:
        """`request` sends a batch and takes its answer in; `failed` gets back what could not be sent."""
        self._name: Final = name
        self._dialer: Final = dialer
        self._client_id: Final = client_id
        self._endpoint: Final = endpoint
        self._timeout_seconds: Final = timeout_ms / 1000
        self._request: Final = request
        self._failed: Final = failed
        self._queues: Final[dict[int, list[T]]] = {}
        self._wakers: Final[dict[int, asyncio.Event]] = {}
        self._connections: Final[dict[int, tuple[PeerConnection, BrokerEndpoint]]] = {}
        """The open ones, and the address that each was opened for."""
        self._tasks: asyncio.TaskGroup | None = None

    def drop_gone(self) -> None:
        """Close the connections to brokers that are gone, or elsewhere now.

        What is under way there fails at once, instead of when its time is up: a broker that stands still
        takes no end of a request.
        """
        for broker_id, (connection, opened_for) in self._connections.items():
            if self._endpoint(broker_id) != opened_for:
                connection.close()

    def submit(self, broker_id: int, work: T) -> None:
        """Have a piece of work sent to a broker."""
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = []
            self._wakers[broker_id] = asyncio.Event()
            if self._tasks is not None:
                self._start(self._tasks, broker_id)
        queue.append(work)
        self._wakers[broker_id].set()

    async def run(self) -> None:
        """Send until cancelled; what was submitted before waits for this."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for broker_id in self._queues:
                self._start(tasks, broker_id)
            # The group ends with its tasks, and they come later.
            await asyncio.Event().wait()

    def _start(self, tasks: asyncio.TaskGroup, broker_id: int) -> None:
        tasks.create_task(self._serve(broker_id), name=f"{self._name} to broker {broker_id}")

    async def _serve(self, broker_id: int) -> None:
        queue, waker = self._queues[broker_id], self._wakers[broker_id]
        try:
            while True:
                await waker.wait()
                batch = queue[:BATCH_MAX]
                del queue[: len(batch)]
                if not queue:
                    waker.clear()
                try:
                    await self._request(await self._connection(broker_id), batch)
                except ConnectionError as error:
                    logger.info("%s to broker %d failed: %s", self._name, broker_id, error)
                    self._failed(batch)
        finally:
            present = self._connections.pop(broker_id, None)
            if present is not None:
                present[0].close()

    async def _connection(self, broker_id: int) -> PeerConnection:
        """The connection to a broker where it is now, opened if there is none."""
        endpoint = self._endpoint(broker_id)
        present = self._connections.get(broker_id)
        if present is not None:
            if not present[0].is_closed and present[1] == endpoint:
                return present[0]
            present[0].close()
            del self._connections[broker_id]
        if endpoint is None:
            raise ConnectionError(f"broker {broker_id} is not known to be alive")
        connection = await self._dialer.dial(
            endpoint.host,
            endpoint.port,
            DialOptions(client_id=self._client_id, timeout_seconds=self._timeout_seconds),
        )
        self._connections[broker_id] = connection, endpoint
        return connection
