"""Declares the metrics of share consumers, under the names of Kafka's share consumer.

Groups: ``consumer-share-metrics``, ``consumer-share-fetch-manager-metrics`` and
``consumer-share-coordinator-metrics``. Connections are in ``consumer-metrics``, as in Kafka.
"""

from typing import Final

from kalda.clients.metrics.consumer_metrics import HeartbeatMetrics, add_hourly
from kalda.clients.metrics.registry import ClientMetrics

GROUP: Final = "consumer-share-metrics"
FETCH_GROUP: Final = "consumer-share-fetch-manager-metrics"
COORDINATOR_GROUP: Final = "consumer-share-coordinator-metrics"


class ShareFetchMetrics:
    """What share sessions record: once for each request."""

    def __init__(self, metrics: ClientMetrics) -> None:
        self._metrics: Final = metrics
        self._latency: Final = metrics.sensor()
        self._throttle: Final = metrics.sensor()
        self._bytes: Final = metrics.sensor()
        self._records: Final = metrics.sensor()
        self._sent: Final = metrics.sensor()
        self._failed: Final = metrics.sensor()
        meter, spread, group = metrics.add_meter, metrics.add_average_and_max, FETCH_GROUP
        meter(group, "fetch", "fetch requests", self._latency, counts=True)
        spread(group, "fetch-latency", "time taken for a fetch request in ms", self._latency)
        spread(group, "fetch-throttle-time", "throttle time in ms", self._throttle)
        spread(group, "fetch-size", "number of bytes fetched per request", self._bytes)
        meter(group, "bytes-consumed", "bytes consumed", self._bytes)
        spread(group, "records-per-request", "number of records in each request", self._records)
        meter(group, "records-consumed", "records consumed", self._records)
        meter(group, "acknowledgements-send", "record acknowledgements sent", self._sent)
        meter(
            group, "acknowledgements-error", "record acknowledgements that resulted in errors", self._failed
        )

    def response_received(self, latency_s: float, throttle_ms: int) -> None:
        """Record the response to a ShareFetch."""
        now = self._metrics.now()
        self._latency.record(latency_s * 1000, now)
        self._throttle.record(throttle_ms, now)

    def fetched(self, byte_count: int, record_count: int) -> None:
        """Record what a response brought."""
        now = self._metrics.now()
        self._bytes.record(byte_count, now)
        self._records.record(record_count, now)

    def acknowledged(self, count: int) -> None:
        """Record acknowledgements that are sent."""
        self._sent.record(count, self._metrics.now())

    def not_acknowledged(self, count: int) -> None:
        """Record acknowledgements that failed."""
        self._failed.record(count, self._metrics.now())


class ShareCoordinatorMetrics(HeartbeatMetrics):
    """What the member of a share group records."""

    def __init__(self, metrics: ClientMetrics) -> None:
        super().__init__(metrics, COORDINATOR_GROUP)
        self._rebalance: Final = metrics.sensor()
        add_hourly(metrics, COORDINATOR_GROUP, "rebalance", "assignments that changed", self._rebalance)

    def rebalanced(self) -> None:
        """Record an assignment that has changed."""
        self._rebalance.record(1, self._metrics.now())
