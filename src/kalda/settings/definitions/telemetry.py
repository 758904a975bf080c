"""Declares the settings of client metrics (KIP-714)."""

from kalda.common.config_def import at_least
from kalda.common.settings import LOW, Settings, integer


class TelemetryConfig(Settings):
    """The limits of the metrics that clients push, and of those that are shown."""

    telemetry_max_bytes = integer(
        1024 * 1024,
        "The largest batch of metrics that a client may push (KIP-714).",
        at_least(1),
        importance=LOW,
    )
    kalda_client_metrics_series_max = integer(
        10_000,
        "How many series of clients' metrics the broker keeps for its endpoint of metrics; more are dropped.",
        at_least(0),
        importance=LOW,
        internal=True,
    )
