"""Holds the settings of the broker and of its topics: declarations, the values in force, and dynamic changes.

The package parses and checks settings and follows their changes in ZooKeeper (`kalda.zk.client`);
`config_admin` also reads `kalda.broker.metadata`. It does not carry out a setting: other packages read the
values from `BrokerConfig`, and logs get a `kalda.storage.log_config.LogConfig`.
"""

from kalda.broker.config.broker_config import BrokerConfig
from kalda.broker.config.dynamic_config import ConfigStore
from kalda.broker.config.listeners import ListenerConfig
from kalda.broker.config.topic_config import TopicConfigs
from kalda.common.config_def import ConfigError
from kalda.common.properties import (
    PropertiesError,
    parse_assignments,
    parse_properties,
    read_properties,
)

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
