"""Describes and changes settings while the broker runs, and follows their changes in ZooKeeper.

`ConfigStore` applies what other brokers and tools change; `config_admin` answers DescribeConfigs and
IncrementalAlterConfigs, for which it reads `kalda.broker.metadata`. Declarations and rules are in
`kalda.settings`.
"""

from kalda.broker.config.dynamic_config import ConfigStore

__all__ = ["ConfigStore"]
