"""Adds the metrics that describe a client: its version, its start time, and its number of metrics.

The version is text, and Kalda has no commit id, so that `commit-id` is ``unknown`` as in a Java client built
outside Git.
"""

from typing import Final

from kalda import __version__
from kalda.clients.metrics.registry import ClientMetrics

_GROUP: Final = "app-info"


def add_client_info(metrics: ClientMetrics) -> None:
    """Add `app-info` and `kafka-metrics-count` to the metrics of a client that starts now."""
    started_ms = float(metrics.clock.time_ms())
    metrics.add_text(_GROUP, "version", "The version of Kalda.", __version__)
    metrics.add_text(_GROUP, "commit-id", "Always `unknown`.", "unknown")
    metrics.add(
        _GROUP, "start-time-ms", "When the client started, in ms since the epoch.", lambda _: started_ms
    )
    metrics.add(
        "kafka-metrics-count", "count", "The number of registered metrics.", lambda _: metrics.count()
    )
