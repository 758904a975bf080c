"""Decides what clients push and whether a push is accepted (KIP-714), as Kafka's ``ClientMetricsManager``.

Sans-IO: the caller passes what the request and its connection say, and `Receiver` takes accepted metrics.

    client                       broker
    get(no id)            ->     id A, subscription 7, every 10 s
    push(A, 7)            ->     taken; another within 10 s is throttled
    (a subscription changes)
    push(A, 7)            ->     UNKNOWN_SUBSCRIPTION_ID
    get(A)                ->     subscription 9, at once
    push(A, 9, last)      ->     taken; nothing is taken behind it

Equal subscriptions have equal ids on all brokers, because a client may ask one broker and push to another,
which then does not know it.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from kalda.broker.config.client_metrics import (
    ALL_METRICS,
    ENTITY_TYPE,
    INTERVAL_MS_DEFAULT,
    ClientMetricsConfig,
)
from kalda.broker.telemetry.client_instance import INSTANCES_MAX, ClientInstance, ClientInstances
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.sanitizer import desanitize
from kalda.common.types import UUID, ZERO_UUID
from kalda.protocol.otlp import InvalidMetricsError
from kalda.records.compression import Compression
from kalda.records.crc import crc32c
from kalda.runtime.clock import Clock

logger: Final = logging.getLogger(__name__)

ACCEPTED_COMPRESSION: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""The favourite first, as in Kafka. Metrics that are not compressed are taken as well."""

_RESERVED_IDS: Final = frozenset({ZERO_UUID, UUID(int=1)})
_FREE_GETS: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""After these a client must ask again, so that it may at once (KIP-714). Kafka's code means to allow it too,
but its condition never holds; its clients then wait for another interval."""
_MILLISECONDS: Final = 1000.0
_UINT32: Final = 0xFFFFFFFF
_INT32_MAX: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Push:
    """The metrics that a client pushes."""

    client_instance_id: UUID
    subscription_id: int
    is_terminating: bool
    compression_type: int
    metrics: bytes | memoryview


class Receiver(Protocol):
    """A receiver of clients' metrics."""

    def receive(
        self,
        client_instance_id: UUID,
        attributes: Mapping[str, str],
        compression: Compression,
        metrics: bytes | memoryview,
    ) -> None:
        """Receive the metrics that a client pushed.

        Raises:
            InvalidMetricsError: it cannot be read.
        """
        ...

    def forget(self, client_instance_id: UUID) -> None:
        """Drop the metrics of a client that has left."""
        ...


class ClientMetricsManager:
    """The subscriptions of the cluster and the clients that one broker knows."""

    def __init__(
        self,
        clock: Clock,
        telemetry_max_bytes: int,
        receiver: Receiver,
        *,
        new_id: Callable[[], UUID],
        instances_max: int = INSTANCES_MAX,
    ) -> None:
        self._clock: Final = clock
        self._receiver: Final = receiver
        self._new_id: Final = new_id
        self.telemetry_max_bytes: Final = telemetry_max_bytes
        self._subscriptions: Final[dict[str, ClientMetricsConfig]] = {}
        self._version = 0
        """Grows with each change of a subscription; instances made before are made again."""
        self._instances: Final = ClientInstances(receiver.forget, instances_max)
        self.unknown_subscriptions = 0
        self.throttles = 0
        self.exports = 0
        self.export_errors = 0

    @property
    def instance_count(self) -> int:
        """How many clients are known."""
        return len(self._instances)

    # Subscriptions.

    def on_entity_change(self, entity_type: str, entity_name: str, settings: Mapping[str, str]) -> None:
        """Take the settings of a subscription as they are stored; empty ones remove it."""
        if entity_type != ENTITY_TYPE:
            return
        name = desanitize(entity_name)
        if not settings:
            if self._subscriptions.pop(name, None) is not None:
                self._version += 1
            return
        try:
            self._subscriptions[name] = ClientMetricsConfig.parse(name, settings)
        except ApiError as error:
            logger.error("subscription %s to client metrics stays as it is: %s", name, error)
            return
        self._version += 1

    # Requests.

    def subscription(
        self, wanted_id: UUID, attributes_of: Callable[[UUID], Mapping[str, str]]
    ) -> tuple[UUID, ClientInstance]:
        """Return the id of a client and what it shall push; a client without an id gets a new one.

        `attributes_of` returns what the client with an id is, for the patterns of subscriptions.

        Raises:
            ApiError: THROTTLING_QUOTA_EXCEEDED, it has asked or pushed less than an interval ago.
        """
        client_instance_id = wanted_id if wanted_id != ZERO_UUID else self._unused_id()
        now = self._now()
        instance = self._instance(client_instance_id, attributes_of, now)
        if not instance.accept_get(now, is_free=instance.last_error in _FREE_GETS):
            raise self._throttled()
        instance.last_error = ErrorCode.NONE
        return client_instance_id, instance

    def push(self, push: Push, attributes_of: Callable[[UUID], Mapping[str, str]]) -> None:
        """Handle a push of a client.

        Raises:
            ApiError: it is refused.
        """
        if push.client_instance_id in _RESERVED_IDS:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The client instance id is not valid.")
        now = self._now()
        instance = self._instance(push.client_instance_id, attributes_of, now)
        try:
            self._check(push, instance, now)
            # What nobody subscribed to is not worth its decoding: everybody may push.
            if push.metrics and instance.metrics:
                self._export(push, attributes_of(push.client_instance_id))
        except ApiError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.is_terminating = push.is_terminating
        instance.last_error = ErrorCode.NONE

    def expire(self) -> None:
        """Forget clients that have been silent for three intervals and at least a minute."""
        self._instances.expire(self._now())

    def _check(self, push: Push, instance: ClientInstance, now: float) -> None:
        if instance.is_terminating:
            raise ApiError(ErrorCode.INVALID_REQUEST, "The client has sent its last push before.")
        if not instance.accept_push(now) and not push.is_terminating:
            raise self._throttled()
        if push.subscription_id != instance.subscription_id:
            self.unknown_subscriptions += 1
            raise ApiError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if push.compression_type not in Compression.__members__.values():
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if len(push.metrics) > self.telemetry_max_bytes:
            raise ApiError(ErrorCode.TELEMETRY_TOO_LARGE)

    def _export(self, push: Push, attributes: Mapping[str, str]) -> None:
        compression = Compression(push.compression_type)
        try:
            self._receiver.receive(push.client_instance_id, attributes, compression, push.metrics)
        except InvalidMetricsError as error:
            self.export_errors += 1
            logger.debug("a push of metrics is refused: %s", error)
            raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None
        self.exports += 1

    def _throttled(self) -> ApiError:
        self.throttles += 1
        return ApiError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The request arrived before the next push interval."
        )

    def _unused_id(self) -> UUID:
        while (made := self._new_id()) in self._instances:
            pass
        return made

    def _instance(
        self, client_instance_id: UUID, attributes_of: Callable[[UUID], Mapping[str, str]], now: float
    ) -> ClientInstance:
        instance = self._instances.get(client_instance_id, now)
        if instance is None or instance.subscription_version < self._version:
            instance = self._made(client_instance_id, attributes_of(client_instance_id))
            instance.touch(now)
            self._instances.put(client_instance_id, instance)
        else:
            instance.touch(now)
        return instance

    def _made(self, client_instance_id: UUID, attributes: Mapping[str, str]) -> ClientInstance:
        interval_ms = INTERVAL_MS_DEFAULT
        metrics: set[str] = set()
        for subscription in self._subscriptions.values():
            if subscription.matches(attributes):
                metrics |= subscription.metrics
                interval_ms = min(interval_ms, subscription.interval_ms)
        wanted = [ALL_METRICS] if ALL_METRICS in metrics else sorted(metrics)
        made_id = subscription_id(wanted, interval_ms, client_instance_id)
        return ClientInstance(made_id, self._version, wanted, interval_ms)

    def _now(self) -> float:
        return self._clock.monotonic() * _MILLISECONDS


def subscription_id(metrics: list[str], interval_ms: int, client_instance_id: UUID) -> int:
    """Return the id of a subscription of one client: the CRC-32C of its text, mixed with the client's id.

    The text is Kafka's, ``[a, b]300000``, but sorted: Kafka's order is that of a hash table.
    """
    text = f"[{', '.join(metrics)}]{interval_ms}"
    halves = (client_instance_id.int >> 64) ^ (client_instance_id.int & 0xFFFFFFFFFFFFFFFF)
    unsigned = crc32c(text.encode("utf-8")) ^ (halves >> 32) ^ (halves & _UINT32)
    return unsigned - (_UINT32 + 1) if unsigned > _INT32_MAX else unsigned
