"""Runs the telemetry of one client: a task that asks for the subscription and pushes metrics until the end.

It decides nothing; `ClientTelemetryState` does. It never opens a first connection: it starts when the client
has metadata, and a cluster that does not know the requests is asked again every five minutes.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

from kalda.clients.errors import (
    ClientError,
    IllegalStateError,
    RequestTimedOutError,
)
from kalda.clients.metadata import ClusterMetadata, Metadata
from kalda.clients.metrics.registry import ClientMetrics
from kalda.clients.telemetry.telemetry_collector import TelemetryCollector
from kalda.clients.telemetry.telemetry_state import (
    ClientTelemetryState,
    Push,
    Subscription,
    TelemetryState,
)
from kalda.common.types import UUID
from kalda.protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from kalda.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from kalda.protocol.otlp import encode_metrics
from kalda.protocol.schema import Message
from kalda.records.compression import Compression, compress
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

CLOSE_TIMEOUT_S: Final = 1.0
"""How long a client that closes waits for the last push."""

R = TypeVar("R", bound=Message)


class TelemetryNetwork(Protocol):
    """The part of a `NetworkClient` that telemetry uses."""

    @property
    def metadata(self) -> Metadata:
        """The metadata whose first snapshot starts telemetry."""
        ...

    async def send_to_any(self, request: Message, response_class: type[R]) -> R:
        """Send a request to some broker; return the response."""
        ...


class TelemetryReporter:
    """The telemetry task of one client.

    Args:
        network: The client's connections.
        metrics: The metrics to push.
        resource: Returns what the cluster should know of the client besides its client id:
            ``transactional_id``, ``group_id``, ``group_instance_id``, ``group_member_id``, ``client_rack``.
        uniform: Returns a random number between two.
    """

    def __init__(
        self,
        network: TelemetryNetwork,
        metrics: ClientMetrics,
        resource: Callable[[], Mapping[str, str]],
        uniform: Callable[[float, float], float],
    ) -> None:
        self._network: Final = network
        self._clock: Final = metrics.clock
        self._collector: Final = TelemetryCollector(metrics)
        self._resource: Final = resource
        self._state: Final = ClientTelemetryState(uniform)
        self._task: asyncio.Task[None] | None = None
        self._has_metadata: Final = asyncio.Event()
        self._has_subscription: Final = asyncio.Event()
        self._is_closing: Final = asyncio.Event()

    def start(self) -> None:
        """Start the task; needs the running loop."""
        if self._network.metadata.snapshot.version:
            self._has_metadata.set()
        self._network.metadata.on_update.append(self._on_metadata)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="kalda-telemetry")

    async def client_instance_id(self, timeout_s: float) -> UUID:
        """Return the id by which the cluster's metrics name this client (KIP-714).

        Raises:
            RequestTimedOutError: the cluster assigned none in time; it may not collect metrics of clients.
            IllegalStateError: the client is closed.
        """
        if self._is_closing.is_set():
            raise IllegalStateError("the client is closed")
        try:
            async with asyncio.timeout(timeout_s):
                await self._has_subscription.wait()
        except TimeoutError:
            raise RequestTimedOutError(
                f"the cluster assigned no client instance id within {timeout_s:g} s; "
                "it may not collect metrics of clients"
            ) from None
        subscription = self._state.subscription
        assert subscription is not None, "the event is set with the subscription"
        return subscription.client_instance_id

    async def close(self, timeout_s: float) -> None:
        """Push a last time if metrics are pushed, then end the task; takes `timeout_s` at most."""
        task = self._task
        if task is None or self._is_closing.is_set():
            return
        if self._state.state is TelemetryState.SUBSCRIPTION_NEEDED:
            timeout_s = 0.0  # nothing will be pushed, so there is no response worth a wait
        self._network.metadata.on_update.remove(self._on_metadata)
        self._is_closing.set()
        self._has_metadata.set()
        try:
            await asyncio.wait((task,), timeout=timeout_s)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))

    def _on_metadata(self, _: ClusterMetadata) -> None:
        self._has_metadata.set()

    async def _run(self) -> None:
        await self._has_metadata.wait()
        while True:
            if self._is_closing.is_set():
                self._state.close()
            due_in = self._state.due_in(self._clock.monotonic())
            if due_in is None:
                return
            if due_in and await self._closes_within(due_in):
                continue
            try:
                await self._exchange()
            except ClientError as error:
                logger.debug("client metrics were not pushed: %s", error)
                self._state.unanswered(self._clock.monotonic())

    async def _closes_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._is_closing.wait()
        except TimeoutError:
            return False
        return True

    async def _exchange(self) -> None:
        request = self._state.next_request()
        if isinstance(request, Push):
            await self._push(request)
            return
        response = await self._network.send_to_any(request, GetTelemetrySubscriptionsResponse)
        if self._state.subscribed(response, self._clock.monotonic()):
            self._collector.reset()
        if self._state.subscription is not None:
            self._has_subscription.set()

    async def _push(self, push: Push) -> None:
        subscription = push.subscription
        payload = self._payload(subscription)
        if payload is None:
            logger.warning(
                "client metrics take more than the %d bytes that the cluster accepts; not pushed",
                subscription.bytes_max,
            )
            if push.is_terminating:
                self._state.unanswered(self._clock.monotonic())
            else:
                self._state.push_skipped(self._clock.monotonic())
            return
        response = await self._network.send_to_any(
            PushTelemetryRequest(
                client_instance_id=subscription.client_instance_id,
                subscription_id=subscription.subscription_id,
                terminating=push.is_terminating,
                compression_type=subscription.compression,
                metrics=payload,
            ),
            PushTelemetryResponse,
        )
        self._state.pushed(response.error_code, self._clock.monotonic())

    def _payload(self, subscription: Subscription) -> bytes | None:
        """Return the metrics, without those of single topics and brokers if need be; None if too large."""
        assert subscription.wanted is not None, "nothing is pushed without a subscription"
        for only_untagged in (False, True):
            collected = self._collector.collect(
                subscription.wanted, is_delta=subscription.is_delta, only_untagged=only_untagged
            )
            data = encode_metrics(self._resource().items(), collected.points)
            if subscription.compression is not Compression.NONE:
                data = compress(subscription.compression, data)
            if len(data) <= subscription.bytes_max:
                # Also if no response comes: the broker may have it, and nothing must be counted twice.
                self._collector.pushed(collected)
                return data
        return None
