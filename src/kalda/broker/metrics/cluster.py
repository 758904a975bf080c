"""Publishes the number of live brokers, and the address of this one."""

from collections.abc import Callable

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.common.metrics import Column, Metrics


def register_cluster_metrics(
    metrics: Metrics, cache: MetadataCache, is_controller: Callable[[], bool]
) -> None:
    """Publish the number of live brokers, on the controller only."""
    metrics.table(
        lambda: [((), (len(cache.brokers),))] if is_controller() else [],
        Column("kafka_brokers", "gauge", "Live brokers of the cluster; published by the controller."),
    )


def register_broker_info(metrics: Metrics, broker_id: int, address: str) -> None:
    """Publish the address of this broker, ``host:port``."""
    labels = ("id", str(broker_id)), ("address", address)
    metrics.table(
        lambda: [(labels, (1,))],
        Column("kafka_broker_info", "gauge", "Always 1; the labels name the broker and its address."),
    )
