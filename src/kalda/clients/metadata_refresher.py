"""Keeps a client's metadata up to date: one task that asks a broker when `Metadata` wants it.

What to ask is decided in `metadata`. The task asks at most once at a time, waits with back-off between
updates, and never ends before `close`.
"""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final, Protocol

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.errors import BrokerConnectionError, ClientError, RequestTimedOutError
from kalda.clients.metadata import ClusterMetadata, Metadata
from kalda.clients.missing_topics import MissingTopics
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.api_keys import ApiKey
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kalda.runtime.runtime import Runtime
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

_HOUSEKEEPING_SECONDS: Final = 30.0
"""How often idle connections are looked for, at least."""

_RELIABLE_EPOCHS_VERSION: Final = 9
"""The first version of Metadata whose leader epochs are right during a reassignment."""


class MetadataPort(Protocol):
    """The part of a network client that the refresher uses."""

    async def send_to_any(
        self,
        request: VersionedRequest,
        response_class: type[MetadataResponse],
        *,
        timeout_ms: int | None = None,
    ) -> MetadataResponse:
        """Send a request to some broker."""
        ...

    def rebootstrap(self) -> None:
        """Ask the bootstrap servers first from now on."""
        ...

    def close_idle(self) -> None:
        """Close the connections that were not used for long."""
        ...


class MetadataRefresher:
    """The task that updates the metadata of one client."""

    def __init__(
        self, port: MetadataPort, config: CommonClientConfig, metadata: Metadata, runtime: Runtime
    ) -> None:
        self._port: Final = port
        self._metadata: Final = metadata
        self._clock: Final = runtime.clock
        self._max_age_seconds: Final = config.metadata_max_age_ms / 1000
        self._backoff: Final = ExponentialBackoff(
            config.retry_backoff_ms, config.retry_backoff_max_ms, runtime.random.uniform
        )
        self._bootstrap_servers: Final = ",".join(config.bootstrap_servers)
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Event | None = None
        self._waiters: list[asyncio.Future[ClusterMetadata]] = []
        self.last_failure: ClientError | None = None
        """Why the last attempt failed; None when it succeeded."""
        self.missing_topics: Final = MissingTopics(self._topic_names)
        self._rebootstrap_seconds: Final = config.metadata_recovery_rebootstrap_trigger_ms / 1000
        self._failing_since: float | None = None
        """When the first of the attempts in a row that failed was made."""
        idle_seconds = config.connections_max_idle_ms / 1000
        self._housekeeping_seconds: Final = (
            _HOUSEKEEPING_SECONDS
            if idle_seconds < 0
            else min(_HOUSEKEEPING_SECONDS, max(idle_seconds / 2, 0.1))
        )

    def start(self) -> None:
        """Start the task on the running loop; harmless when it runs."""
        if self._task is not None:
            return
        loop = asyncio.get_running_loop()
        wake = self._wake = asyncio.Event()

        def wake_up() -> None:
            # A producer's caller may be here while another thread closes the client and its loop.
            with contextlib.suppress(RuntimeError):
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
        waiters, self._waiters = self._waiters, []
        _fail(waiters, BrokerConnectionError("this client was closed"))

    async def refresh(self, timeout_seconds: float) -> ClusterMetadata:
        """Wait for metadata that a broker sent after this call.

        Raises:
            RequestTimedOutError: none came in time; chained to the last failure.
            BrokerConnectionError: the client was closed.
            ClientError: a broker answered with a failure that another attempt would not change.
        """
        self.start()
        waiter: asyncio.Future[ClusterMetadata] = asyncio.get_running_loop().create_future()
        self._metadata.request_update(is_urgent=True)
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await waiter
        except TimeoutError:
            last = self.last_failure
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
            self._port.close_idle()
            wait = min(next_due - self._clock.monotonic(), self._housekeeping_seconds)
            if not metadata.is_update_requested and wait > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await wake.wait()
                wake.clear()
                continue
            began = self._clock.monotonic()
            if await self._update():
                await self.missing_topics.updated(metadata.snapshot, self._clock.monotonic())
                next_due = self._clock.monotonic() + self._max_age_seconds
                attempts = attempts + 1 if metadata.has_retriable_errors() else 0
                if attempts:
                    metadata.request_update()
                # Also without errors: callers that find stale leaders must not ask without a pause.
                await self._pause(wake, self._backoff.seconds(max(attempts, 1)))
            else:
                attempts += 1
                self._check_rebootstrap(began)
                metadata.request_update()
                await asyncio.sleep(self._backoff.seconds(attempts))

    async def _update(self) -> bool:
        """Ask once and complete the waiters; return whether there is new metadata."""
        # A waiter that arrives while the request is under way waits for the next one.
        waiters, self._waiters = self._waiters, []
        try:
            snapshot = await self._ask()
        except ClientError as error:
            self._log_failure(error)
            if error.is_retriable:
                self._waiters = waiters + self._waiters
            else:
                _fail(waiters, error)
                if self._metadata.on_failure is not None:
                    self._metadata.on_failure(error)
            return False
        except asyncio.CancelledError:
            self._waiters = waiters + self._waiters
            raise
        except Exception as error:
            # A fault of this program. The task goes on, since a client without metadata would only hang.
            logger.exception("The answer to a Metadata request could not be processed.")
            _fail(waiters, ClientError(f"metadata could not be processed: {error!r}"))
            return False
        self.last_failure = self._failing_since = None
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(snapshot)
        return True

    def _check_rebootstrap(self, began: float) -> None:
        if self._failing_since is None:
            self._failing_since = began
        if self._clock.monotonic() - self._failing_since >= self._rebootstrap_seconds:
            self._port.rebootstrap()

    async def _pause(self, wake: asyncio.Event, seconds: float) -> None:
        """Wait before the next update, unless it is urgent.

        Those who ask for urgent updates again and again, until one says what they hope for, wait in between.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._metadata.is_update_urgent:
                    wake.clear()
                    await wake.wait()

    async def _ask(self) -> ClusterMetadata:
        request = self._metadata.next_request(self._clock.monotonic())
        versions = [_RELIABLE_EPOCHS_VERSION]

        def build(version: int) -> MetadataRequest:
            versions.append(version)
            return request

        response = await self._port.send_to_any(VersionedRequest(ApiKey.METADATA, build), MetadataResponse)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._port.rebootstrap()
            raise BrokerConnectionError("a broker asks this client to use its bootstrap servers again")
        if not response.brokers:
            # A broker that has just started does not know the cluster yet.
            raise BrokerConnectionError("a broker answered with metadata that lists no broker")
        # More than one broker may have been asked; the oldest decides.
        is_reliable = min(versions) >= _RELIABLE_EPOCHS_VERSION
        return self._metadata.received(response, has_reliable_epochs=is_reliable)

    async def _topic_names(self) -> Iterable[str]:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response = await self._port.send_to_any(
            VersionedRequest(ApiKey.METADATA, lambda _: request), MetadataResponse
        )
        return ClusterMetadata.from_response(response).topics

    def _log_failure(self, error: ClientError) -> None:
        # While no broker has answered, `FirstContact` logs.
        if self.last_failure is None and self._metadata.snapshot.brokers:
            logger.warning("No broker of %s answers: %s; retrying.", self._bootstrap_servers, error)
        self.last_failure = error


def _fail(waiters: list[asyncio.Future[ClusterMetadata]], error: ClientError) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error)
