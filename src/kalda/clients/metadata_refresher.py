"""Keeps a client's metadata up to date: one task that asks a broker when `Metadata` wants it.

What to ask is decided in `metadata`. The task asks at most once at a time, waits with back-off between
updates, and never ends before `close`.
"""

import asyncio
import logging
from typing import Final, Protocol

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.errors import ClientError, RequestTimedOutError
from kalda.clients.metadata import ClusterMetadata, Metadata
from kalda.clients.retry import ExponentialBackoff
from kalda.common.clock import Clock
from kalda.protocol.messages.metadata import MetadataRequest, MetadataResponse

logger: Final = logging.getLogger(__name__)

_HOUSEKEEPING_SECONDS: Final = 30.0
"""How often idle connections are looked for, at least."""


class MetadataPort(Protocol):
    """The part of a network client that the refresher uses."""

    async def send_to_any(
        self,
        request: MetadataRequest,
        response_class: type[MetadataResponse],
        *,
        timeout_ms: int | None = None,
    ) -> MetadataResponse:
        """Send a request to some broker."""
        ...

    def close_idle(self) -> None:
        """Close the connections that were not used for long."""
        ...


class MetadataRefresher:
    """The task that updates the metadata of one client."""

    def __init__(
        self, port: MetadataPort, config: CommonClientConfig, metadata: Metadata, clock: Clock
    ) -> None:
        self._port: Final = port
        self._metadata: Final = metadata
        self._clock: Final = clock
        self._max_age_seconds: Final = config.metadata_max_age_ms / 1000
        self._backoff: Final = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._bootstrap_servers: Final = ",".join(config.bootstrap_servers)
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Event | None = None
        self._waiters: list[asyncio.Future[ClusterMetadata]] = []
        self._last_failure: ClientError | None = None

    def start(self) -> None:
        """Start the task on the running loop; harmless when it runs."""
        if self._task is not None:
            return
        loop = asyncio.get_running_loop()
        wake = self._wake = asyncio.Event()

        def wake_up() -> None:
            loop.call_soon_threadsafe(wake.set)

        self._metadata.on_update_requested = wake_up
        self._task = loop.create_task(self._run(wake), name="metadata refresher")

    async def close(self) -> None:
        """End the task; waiting callers get an error."""
        self._metadata.on_update_requested = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        for waiter in self._waiters:
            if not waiter.done():
                waiter.cancel()
        self._waiters.clear()

    async def refresh(self, timeout_seconds: float) -> ClusterMetadata:
        """Wait for metadata that a broker sent after this call.

        Raises:
            RequestTimedOutError: none came in time; chained to the last failure.
        """
        self.start()
        waiter: asyncio.Future[ClusterMetadata] = asyncio.get_running_loop().create_future()
        self._metadata.request_update(is_urgent=True)
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await waiter
        except TimeoutError:
            last = self._last_failure
            raise RequestTimedOutError(
                f"no metadata from {self._bootstrap_servers} within {timeout_seconds:g} s"
                + ("" if last is None else f"; last: {last}")
            ) from last
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    async def _run(self, wake: asyncio.Event) -> None:
        metadata = self._metadata
        attempts = 0
        """Updates in a row that failed, or that left a topic without a leader."""
        next_due = 0.0
        while True:
            if not metadata.is_update_requested:
                wait = min(next_due - self._clock.monotonic(), _HOUSEKEEPING_SECONDS)
                if wait > 0:
                    try:
                        async with asyncio.timeout(wait):
                            await wake.wait()
                    except TimeoutError:
                        self._port.close_idle()
                    wake.clear()
                    continue
            # A waiter that arrives while the request is under way waits for the next one.
            waiters, self._waiters = self._waiters, []
            try:
                snapshot = await self._ask()
            except ClientError as error:
                self._waiters = waiters + self._waiters
                self._failed(error, attempts)
                attempts += 1
                metadata.request_update()
                await asyncio.sleep(self._backoff.seconds(attempts))
                continue
            except BaseException:
                self._waiters = waiters + self._waiters
                raise
            self._last_failure = None
            next_due = self._clock.monotonic() + self._max_age_seconds
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(snapshot)
            if metadata.has_retriable_errors():
                attempts += 1
                metadata.request_update()
            else:
                attempts = 0
            # Also without errors: callers that find stale leaders must not ask without a pause.
            await self._pause(wake, self._backoff.seconds(max(attempts, 1)))

    async def _pause(self, wake: asyncio.Event, seconds: float) -> None:
        """Wait before the next update, unless it is urgent."""
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            async with asyncio.timeout_at(deadline):
                while not self._metadata.is_update_urgent:
                    wake.clear()
                    await wake.wait()
        except TimeoutError:
            pass

    async def _ask(self) -> ClusterMetadata:
        request = self._metadata.next_request(self._clock.monotonic())
        response = await self._port.send_to_any(request, MetadataResponse)
        return self._metadata.received(response)

    def _failed(self, error: ClientError, attempts: int) -> None:
        self._last_failure = error
        if attempts == 0:
            logger.warning("No broker of %s answers: %s; retrying.", self._bootstrap_servers, error)
