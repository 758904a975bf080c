"""Declares the settings of a log reader: those of all clients, and the consumer's settings of fetches."""

from typing import Final

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.config.isolation_level import IsolationLevel
from kalda.clients.consumer.consumer_config import ConsumerConfig

WITHOUT_EFFECT: Final = frozenset(
    {
        "enable.metrics.push",
        "metrics.sample.window.ms",
        "metrics.num.samples",
        "metrics.recording.level",
    }
)
"""Settings of all clients that concern metrics, of which a log reader has none."""


class LogReaderConfig(CommonClientConfig):
    """The settings of a log reader."""

    client_rack = ConsumerConfig.client_rack
    isolation_level = ConsumerConfig.isolation_level
    default_api_timeout_ms = ConsumerConfig.default_api_timeout_ms
    fetch_min_bytes = ConsumerConfig.fetch_min_bytes
    fetch_max_wait_ms = ConsumerConfig.fetch_max_wait_ms
    fetch_max_bytes = ConsumerConfig.fetch_max_bytes
    max_partition_fetch_bytes = ConsumerConfig.max_partition_fetch_bytes
    check_crcs = ConsumerConfig.check_crcs

    @property
    def isolation(self) -> IsolationLevel:
        """The isolation level as the wire has it."""
        return IsolationLevel[self.isolation_level.upper()]
