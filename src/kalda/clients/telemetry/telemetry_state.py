"""Decides when a client asks for its subscription, when it pushes, and what follows from errors (KIP-714).

Sans-IO: `due_in` says how long to wait, `next_request` what to send then; a handler takes each response. The
first push after a new subscription is spread over 50-150 % of the interval, so that clients that were started
together do not push together.

Telemetry never harms the client: an error that a retry cannot cure ends it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from kalda.clients.telemetry.telemetry_collector import selector
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, ZERO_UUID, uuid_to_text
from kalda.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kalda.records.compression import Compression
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

DEFAULT_INTERVAL_S: Final = 300.0
"""How long to wait where no subscription says it, also for a cluster that may be upgraded."""
FIRST_PUSH_SPREAD: Final = (0.5, 1.5)
_RETRY_AT_ONCE: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
_RETRIES_AT_ONCE_MAX: Final = 3
"""After so many in a row the cluster does not agree with itself; the interval is waited for."""
_RETRY_AFTER_INTERVAL: Final = frozenset({ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED})


class TelemetryState(Enum):
    """The next step of the telemetry protocol."""

    SUBSCRIPTION_NEEDED = auto()
    PUSH_NEEDED = auto()
    TERMINATING_PUSH_NEEDED = auto()
    ENDED = auto()
    """The broker refused for good, or the last push is done."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The metrics that the cluster requests from this client, and how often."""

    client_instance_id: UUID
    subscription_id: int
    interval_s: float
    compression: Compression
    bytes_max: int
    is_delta: bool
    wanted: Callable[[str], bool] | None
    """Which names to push; None for no metrics."""


@dataclass(frozen=True, slots=True)
class Push:
    """Metrics are to be pushed now."""

    subscription: Subscription
    is_terminating: bool


class ClientTelemetryState:
    """The telemetry of one client; `uniform` gives a random number between two."""

    def __init__(self, uniform: Callable[[float, float], float]) -> None:
        self._uniform: Final = uniform
        self.state = TelemetryState.SUBSCRIPTION_NEEDED
        self.subscription: Subscription | None = None
        """The last one; its client instance id is kept for all that follow."""
        self.due_at = 0.0
        """The monotonic second before which nothing is sent."""
        self._retries_at_once = 0

    def due_in(self, now: float) -> float | None:
        """Return the seconds until `next_request` has something; None for never."""
        if self.state is TelemetryState.ENDED:
            return None
        if self.state is TelemetryState.TERMINATING_PUSH_NEEDED:
            return 0.0
        return max(self.due_at - now, 0.0)

    def next_request(self) -> GetTelemetrySubscriptionsRequest | Push:
        """Return the request that is due."""
        assert self.state is not TelemetryState.ENDED, "telemetry has ended"
        if self.state is TelemetryState.SUBSCRIPTION_NEEDED:
            known = ZERO_UUID if self.subscription is None else self.subscription.client_instance_id
            return GetTelemetrySubscriptionsRequest(client_instance_id=known)
        assert self.subscription is not None, "a push needs a subscription"
        return Push(self.subscription, self.state is TelemetryState.TERMINATING_PUSH_NEEDED)

    def subscribed(self, response: GetTelemetrySubscriptionsResponse, now: float) -> bool:
        """Take a subscription; return whether totals count differently from now on."""
        if self.state is not TelemetryState.SUBSCRIPTION_NEEDED or self._failed(response.error_code, now):
            return False
        before = self.subscription
        instance_id = response.client_instance_id
        if instance_id == ZERO_UUID and before is not None:
            instance_id = before.client_instance_id
        if instance_id == ZERO_UUID:
            self._end("the broker assigned no client instance id")
            return False
        interval_ms = response.push_interval_ms
        self.subscription = Subscription(
            instance_id,
            response.subscription_id,
            interval_ms / 1000 if interval_ms > 0 else DEFAULT_INTERVAL_S,
            _preferred(response.accepted_compression_types),
            response.telemetry_max_bytes,
            response.delta_temporality,
            selector(response.requested_metrics),
        )
        interval = self.subscription.interval_s
        if self.subscription.wanted is None:
            self.due_at = now + interval
        else:
            self.state = TelemetryState.PUSH_NEEDED
            self.due_at = now + interval * self._uniform(*FIRST_PUSH_SPREAD)
        if before is None:
            logger.info("the cluster knows this client as instance %s", uuid_to_text(instance_id))
        return before is not None and before.is_delta != self.subscription.is_delta

    def pushed(self, error_code: int, now: float) -> None:
        """Take the response to a push."""
        if self.state is TelemetryState.TERMINATING_PUSH_NEEDED:
            self.state = TelemetryState.ENDED
        elif not self._failed(error_code, now):
            self.push_skipped(now)

    def push_skipped(self, now: float) -> None:
        """Wait for the next interval."""
        self._retries_at_once = 0
        assert self.subscription is not None, "a push needs a subscription"
        self.due_at = now + self.subscription.interval_s

    def unanswered(self, now: float) -> None:
        """A request got no response, or no broker knows it now; try again with a new subscription."""
        if self.state is TelemetryState.TERMINATING_PUSH_NEEDED:
            self.state = TelemetryState.ENDED
        elif self.state is not TelemetryState.ENDED:
            self.state = TelemetryState.SUBSCRIPTION_NEEDED
            self.due_at = now + DEFAULT_INTERVAL_S

    def close(self) -> None:
        """Let a last push follow if metrics are pushed at all; then nothing."""
        if self.state is TelemetryState.PUSH_NEEDED:
            self.state = TelemetryState.TERMINATING_PUSH_NEEDED
        else:
            self.state = TelemetryState.ENDED

    def _failed(self, error_code: int, now: float) -> bool:
        """Note an error of a response and return True, or return False for none."""
        if error_code == ErrorCode.NONE:
            return False
        code = ErrorCode.of(error_code)
        if code in _RETRY_AT_ONCE and self._retries_at_once < _RETRIES_AT_ONCE_MAX:
            self._retries_at_once += 1
            self._subscribe_again(now)
        elif code in _RETRY_AT_ONCE or code in _RETRY_AFTER_INTERVAL:
            known = self.subscription
            self._subscribe_again(now + (DEFAULT_INTERVAL_S if known is None else known.interval_s))
        else:
            self._end(f"{code.name}: {code.message}")
        return True

    def _subscribe_again(self, due_at: float) -> None:
        self.state = TelemetryState.SUBSCRIPTION_NEEDED
        self.due_at = due_at

    def _end(self, why: str) -> None:
        logger.warning("client metrics are not pushed any more: %s", why)
        self.state = TelemetryState.ENDED


def _preferred(accepted: list[int]) -> Compression:
    """Return the broker's favourite among the codecs known here."""
    for number in accepted:
        if number in Compression.__members__.values():
            return Compression(number)
    return Compression.NONE
