"""Sends work to other brokers in batches, over one connection and with one request in flight per broker.

Work that arrives while a request is in flight goes out in the next one. `PeerBatches` retries nothing: work
for a broker that cannot be reached is returned as failed, because another broker may be responsible for it by
then. After a failure, the same address is not dialled again before a back-off is over; work for it fails at
once meanwhile.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from kalda.common.backoff import ExponentialBackoff
from kalda.common.types import BrokerEndpoint
from kalda.net.peer.dialer import Dialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.runtime.random import Random

logger: Final = logging.getLogger(__name__)

BATCH_MAX: Final = 500
"""Pieces of work in one request: the receiver decodes so many within milliseconds."""

_BACKOFF_MS: Final = (50, 1_000)
"""The times in which a broker is not dialled again: those of a client's `reconnect.backoff.ms`."""

T = TypeVar("T")


class _Failure(NamedTuple):
    """Failures in a row at one address, and the loop's time from which it may be dialled again."""

    endpoint: BrokerEndpoint
    failures: int
    not_before: float


class _BackOffError(ConnectionError):
    """A broker is not dialled, because it failed a moment ago."""


class PeerEndpoints(Protocol):
    """Where the other brokers are reached; the broker's metadata cache."""

    def endpoint(self, broker_id: int, listener: str) -> BrokerEndpoint | None:
        """Return where a live broker is reached on a listener, or None."""
        ...

    def on_change(self, listener: Callable[[object], None]) -> None:
        """Call the listener after each change."""
        ...


class PeerBatches(Generic[T]):
    """Sends one kind of work to all brokers while `run` is running."""

    def __init__(
        self,
        name: str,
        dialer: Dialer,
        broker_id: int,
        endpoints: PeerEndpoints,
        random: Random,
        *,
        listener: str,
        timeout_ms: int,
        request: Callable[[PeerConnection, list[T]], Awaitable[None]],
        failed: Callable[[list[T]], None],
    ) -> None:
        """`request` sends a batch and handles its response; `failed` gets the work that could not be sent."""
        self._name: Final = name
        self._dialer: Final = dialer
        self._endpoints: Final = endpoints
        self._listener: Final = listener
        self._options: Final = DialOptions(client_id=str(broker_id), timeout_seconds=timeout_ms / 1000)
        self._request: Final = request
        self._failed: Final = failed
        self._backoff: Final = ExponentialBackoff(*_BACKOFF_MS, random.uniform)
        self._queues: Final[dict[int, list[T]]] = {}
        self._wakers: Final[dict[int, asyncio.Event]] = {}
        self._connections: Final[dict[int, tuple[PeerConnection, BrokerEndpoint]]] = {}
        """The open ones, and the address that each was opened for."""
        self._failures: Final[dict[int, _Failure]] = {}
        """By broker, since its last response."""
        self._tasks: asyncio.TaskGroup | None = None
        endpoints.on_change(lambda _: self.drop_gone())

    def drop_gone(self) -> None:
        """Close the connections to brokers that are no longer alive at the address that was dialled.

        A request in flight there fails at once instead of at its time-out: a broker that has stopped
        responding never closes the connection itself.
        """
        for broker_id, (connection, opened_for) in self._connections.items():
            if self._endpoints.endpoint(broker_id, self._listener) != opened_for:
                connection.close()

    def submit(self, broker_id: int, work: T) -> None:
        """Send a piece of work to a broker, with the next request that has room for it."""
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = []
            self._wakers[broker_id] = asyncio.Event()
            if self._tasks is not None:
                self._start(self._tasks, broker_id)
        queue.append(work)
        self._wakers[broker_id].set()

    async def run(self) -> None:
        """Send until cancelled; work that was submitted before `run` waits for it."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for broker_id in self._queues:
                self._start(tasks, broker_id)
            # A task group without tasks ends at once, and most tasks start later.
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
                endpoint = self._endpoints.endpoint(broker_id, self._listener)
                try:
                    await self._request(await self._connection(broker_id, endpoint), batch)
                    self._failures.pop(broker_id, None)
                except _BackOffError:
                    self._failed(batch)
                except ConnectionError as error:
                    logger.info("%s to broker %d failed: %s", self._name, broker_id, error)
                    self._note_failure(broker_id, endpoint)
                    self._failed(batch)
        finally:
            present = self._connections.pop(broker_id, None)
            if present is not None:
                present[0].close()

    def _note_failure(self, broker_id: int, endpoint: BrokerEndpoint | None) -> None:
        if endpoint is None:
            return
        before = self._failures.get(broker_id)
        count = 1 if before is None or before.endpoint != endpoint else before.failures + 1
        not_before = asyncio.get_running_loop().time() + self._backoff.seconds(count)
        self._failures[broker_id] = _Failure(endpoint, count, not_before)

    async def _connection(self, broker_id: int, endpoint: BrokerEndpoint | None) -> PeerConnection:
        """Return the connection to a broker's current address; open it if there is none."""
        present = self._connections.get(broker_id)
        if present is not None:
            if not present[0].is_closed and present[1] == endpoint:
                return present[0]
            present[0].close()
            del self._connections[broker_id]
        if endpoint is None:
            raise ConnectionError(f"broker {broker_id} is not known to be alive")
        failure = self._failures.get(broker_id)
        now = asyncio.get_running_loop().time()
        if failure is not None and failure.endpoint == endpoint and now < failure.not_before:
            raise _BackOffError(f"broker {broker_id} failed a moment ago")
        connection = await self._dialer.dial(endpoint.host, endpoint.port, self._options)
        self._connections[broker_id] = connection, endpoint
        return connection
