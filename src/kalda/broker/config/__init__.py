"""What the broker and its topics can be set to: definitions, the settings in force, dynamic changes."""

from kalda.broker.config.broker_config import BrokerConfig
from kalda.broker.config.dynamic_config import ConfigStore
from kalda.broker.config.listeners import ListenerConfig
from kalda.broker.config.properties import (
    PropertiesError,
    parse_assignments,
    parse_properties,
    read_properties,
)
from kalda.broker.config.topic_config import TopicConfigs
from kalda.common.config_def import ConfigError

__all__ = [
    "BrokerConfig",
    "ConfigError",
    "ConfigStore",
    "ListenerConfig",
    "PropertiesError",
    "TopicConfigs",
    "parse_assignments",
    "parse_properties",
    "read_properties",
]
