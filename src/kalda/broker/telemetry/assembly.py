"""Builds the client metrics of one broker and publishes them."""

from kalda.broker.config import ConfigStore
from kalda.broker.telemetry.client_metrics_manager import ClientMetricsManager
from kalda.broker.telemetry.received_metrics import ReceivedMetrics
from kalda.common.metrics import Metrics, metric_name
from kalda.common.types import random_uuid
from kalda.runtime.clock import Clock
from kalda.runtime.random import Random
from kalda.settings import BrokerConfig

EXPIRY_CHECK_INTERVAL_MS = 10_000
"""How often silent clients are looked for; what a client pushed stays so much longer at most."""


def build_client_metrics(
    config: BrokerConfig, config_store: ConfigStore, clock: Clock, random: Random, metrics: Metrics
) -> ClientMetricsManager:
    """Make the manager, which follows the subscriptions, and publish what clients push."""
    received = ReceivedMetrics(config.telemetry_max_bytes, config.kalda_client_metrics_series_max)
    manager = ClientMetricsManager(
        clock, config.telemetry_max_bytes, received, new_id=lambda: random_uuid(random)
    )
    config_store.on_entity_change(manager.on_entity_change)
    _register(metrics, manager, received)
    return manager


def _register(metrics: Metrics, manager: ClientMetricsManager, received: ReceivedMetrics) -> None:
    def name(attribute: str) -> str:
        return metric_name("kafka.server", "client-metrics", attribute)

    metrics.gauge(
        name("instance-count"), "Clients that ask for subscriptions here.", lambda: manager.instance_count
    )
    metrics.gauge(
        name("series-count"), "Series of clients' metrics that are kept.", lambda: received.series_count
    )
    for attribute, text, read in (
        (
            "unknown-subscription-request-count",
            "Pushes for subscriptions that have changed.",
            lambda: manager.unknown_subscriptions,
        ),
        (
            "throttle-count",
            "Requests of clients before their interval had passed.",
            lambda: manager.throttles,
        ),
        ("plugin-export-count", "Pushes that were taken.", lambda: manager.exports),
        ("plugin-error-count", "Pushes that could not be read.", lambda: manager.export_errors),
        ("dropped-points", "Values that were left out because of a bound.", lambda: received.dropped),
    ):
        metrics.counter_function(name(attribute), text, read)
    metrics.source(received.families)
