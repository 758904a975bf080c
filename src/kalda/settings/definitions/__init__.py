"""Declares every setting of brokers and topics: those of Kafka 3.9, with their names, defaults and bounds.

A setting that has an effect is an attribute of a class here, or of a configuration class of
`kalda.coordinator.group`. The settings that nothing reads stand in a table with the reason for each
(`without_effect`), so that files written for Kafka can be read and DescribeConfigs lists what clients expect.

The package holds no values: `kalda.settings.broker_config` parses a broker's settings with these
declarations and keeps them.
"""

from typing import Final

from kalda.common.config_def import ConfigDef
from kalda.coordinator.group.consumer.consumer_group_config import ConsumerGroupConfig
from kalda.coordinator.group.group_config import GroupConfig
from kalda.coordinator.group.share.share_group_config import ShareGroupConfig
from kalda.coordinator.share.share_config import ShareCoordinatorConfig
from kalda.settings.definitions.access import AccessConfig
from kalda.settings.definitions.coordinators import CoordinatorConfig
from kalda.settings.definitions.delegation_tokens import DelegationTokenConfig
from kalda.settings.definitions.etcd import CoordinationConfig
from kalda.settings.definitions.group import GROUP_SYNONYMS, GroupOverrides
from kalda.settings.definitions.history import HistoryConfig
from kalda.settings.definitions.log import ServerLogConfig
from kalda.settings.definitions.nats import NatsConfig
from kalda.settings.definitions.network import SocketServerConfig
from kalda.settings.definitions.passwords import PasswordEncoderConfig
from kalda.settings.definitions.quotas import QuotaConfig
from kalda.settings.definitions.replication import ReplicationConfig
from kalda.settings.definitions.sasl import SaslConfig
from kalda.settings.definitions.schema_registry import SchemaRegistryConfig
from kalda.settings.definitions.server import (
    EventConfig,
    FaultConfig,
    ReadLeaseConfig,
    ServerConfig,
    ZooKeeperConfig,
)
from kalda.settings.definitions.telemetry import TelemetryConfig
from kalda.settings.definitions.tls import TlsConfig
from kalda.settings.definitions.topic import TOPIC_SYNONYMS, TopicConfig
from kalda.settings.definitions.without_effect import settings_without_effect
from kalda.settings.definitions.zookeeper import ZooKeeperSecurityConfig

__all__ = [
    "BROKER_CONFIG",
    "BROKER_SYNONYMS",
    "GROUP_CONFIG",
    "GROUP_SYNONYMS",
    "OF_LISTENERS",
    "TOPIC_CONFIG",
    "TOPIC_SYNONYMS",
    "BrokerSettings",
]


class BrokerSettings(
    ServerConfig,
    FaultConfig,
    ReadLeaseConfig,
    EventConfig,
    ZooKeeperConfig,
    ZooKeeperSecurityConfig,
    CoordinationConfig,
    SocketServerConfig,
    NatsConfig,
    TlsConfig,
    SaslConfig,
    AccessConfig,
    DelegationTokenConfig,
    PasswordEncoderConfig,
    QuotaConfig,
    TelemetryConfig,
    SchemaRegistryConfig,
    HistoryConfig,
    ServerLogConfig,
    ReplicationConfig,
    CoordinatorConfig,
    GroupConfig,
    ConsumerGroupConfig,
    ShareGroupConfig,
    ShareCoordinatorConfig,
):
    """The broker's settings that have an effect, as typed attributes."""


OF_LISTENERS: Final = frozenset(
    {
        "kalda.as.version",
        "max.connection.creation.rate",
        "max.connections",
        *(key.name for settings in (TlsConfig, SaslConfig) for key in settings.definitions().values()),
    }
)
"""Settings that ``listener.name.<name>.`` before their name sets for one listener."""

BROKER_CONFIG: Final = ConfigDef(
    sorted((*BrokerSettings.definitions().values(), *settings_without_effect()), key=lambda key: key.name)
)

TOPIC_CONFIG: Final = ConfigDef(TopicConfig.definitions().values())

GROUP_CONFIG: Final = ConfigDef(GroupOverrides.definitions().values())

_ROLL: Final = ("log.roll.ms", "log.roll.hours")
_JITTER: Final = ("log.roll.jitter.ms", "log.roll.jitter.hours")
_RETENTION: Final = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")

BROKER_SYNONYMS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(_ROLL, _ROLL),
    **dict.fromkeys(_JITTER, _JITTER),
    **dict.fromkeys(_RETENTION, _RETENTION),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}
"""Broker settings that mean the same in other units, the one that wins first."""
