"""The settings of brokers and topics: declarations, values in force, and the rules for changes.

`definitions` declares each setting, `BrokerConfig` and `TopicConfigs` hold values in force. The package
carries out nothing: `kalda.broker` reads the values, and logs get a `kalda.storage.log_config.LogConfig`.
"""

from kalda.settings.broker_config import BrokerConfig
from kalda.settings.listeners import ListenerConfig
from kalda.settings.topic_config import TopicConfigs

__all__ = ["BrokerConfig", "ListenerConfig", "TopicConfigs"]
