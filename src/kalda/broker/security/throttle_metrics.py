"""Publishes how clients use their quotas, under the names of Kafka's MBeans.

A client id or user without a part in a quota has an empty label, as in Kafka.
"""

from collections.abc import Iterator
from typing import Final

from kalda.common.metrics import Column, Labels, Metrics, metric_name
from kalda.runtime.clock import Clock
from kalda.security.quota.client_quotas import ClientQuotas
from kalda.security.quota.settings import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

_MILLISECONDS: Final = 1000.0

_KINDS: Final = {
    PRODUCER_BYTE_RATE: ("Produce", "byte-rate", "Bytes a second that the client writes."),
    CONSUMER_BYTE_RATE: ("Fetch", "byte-rate", "Bytes a second that the client reads."),
    REQUEST_PERCENTAGE: ("Request", "request-time", "Percent of the broker's time for the client."),
    CONTROLLER_MUTATION_RATE: ("ControllerMutation", "tokens", "Changes of the cluster that are left."),
}


def register(metrics: Metrics, quotas: ClientQuotas, clock: Clock) -> None:
    """Publish one row for each share of each quota."""
    for name, (kind, measure, text) in _KINDS.items():
        metrics.table(
            lambda name=name: _rows(quotas, clock, name),  # type: ignore[misc]
            Column(metric_name("kafka.server", kind, measure), "gauge", text),
            Column(
                metric_name("kafka.server", kind, "throttle-time"),
                "gauge",
                "Milliseconds that requests of the client were throttled, the mean of a second.",
            ),
        )


def _rows(quotas: ClientQuotas, clock: Clock, name: str) -> Iterator[tuple[Labels, tuple[float, ...]]]:
    now = clock.monotonic()
    for share in quotas.shares(name):
        user, client_id = share.key
        waited = share.throttled_seconds.per_second(now) * _MILLISECONDS
        used = share.left(now) if name == CONTROLLER_MUTATION_RATE else share.rate.per_second(now)
        yield (("client_id", client_id or ""), ("user", user or "")), (used, waited)
