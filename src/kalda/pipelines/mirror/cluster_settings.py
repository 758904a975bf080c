"""Holds the settings of the clients of one cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kalda.clients.admin.admin_config import AdminConfig
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.producer.producer_config import ProducerConfig
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.clients.shared_properties import settings_for


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Settings of the clients of a cluster, with Kafka's dotted names.

    A setting of all clients is left out where a client does not have it, and other clients do.
    """

    common: Mapping[str, str]
    """Of all clients; those below win."""
    admin: Mapping[str, str] = field(default_factory=dict)
    consumer: Mapping[str, str] = field(default_factory=dict)
    producer: Mapping[str, str] = field(default_factory=dict)

    def for_admin(self) -> dict[str, str]:
        """Return the settings of admin clients."""
        return settings_for(AdminConfig, {**self.common, **self.admin})

    def for_reader(self) -> dict[str, str]:
        """Return the settings of log readers."""
        return settings_for(LogReaderConfig, {**self.common, **self.consumer})

    def for_consumer(self) -> dict[str, str]:
        """Return the settings of consumers."""
        return settings_for(ConsumerConfig, {**self.common, **self.consumer})

    def for_producer(self) -> dict[str, str]:
        """Return the settings of producers."""
        return settings_for(ProducerConfig, {**self.common, **self.producer})
