"""Every setting that the broker and its topics know: Kafka 3.9's, with its names, defaults and bounds.

Settings of features that Kalda does not have are declared too: a file written for Kafka is understood, and
DescribeConfigs lists what clients expect. Which of them have an effect is said in the generated documentation
(`docs/reference`) and decided by `broker_config.BrokerConfig`: a setting that nothing reads has none.
"""

from typing import Final

from kalda.broker.config.definitions.coordinators import COORDINATORS
from kalda.broker.config.definitions.log import LOG
from kalda.broker.config.definitions.network import NETWORK
from kalda.broker.config.definitions.quorum import QUORUM
from kalda.broker.config.definitions.replication import REPLICATION
from kalda.broker.config.definitions.security import SECURITY
from kalda.broker.config.definitions.server import SERVER
from kalda.broker.config.definitions.tiered_storage import TIERED_STORAGE
from kalda.broker.config.definitions.topic import TOPIC, TOPIC_SYNONYMS
from kalda.broker.config.definitions.zookeeper import ZOOKEEPER
from kalda.common.config_def import ConfigDef

__all__ = ["BROKER_CONFIG", "BROKER_SYNONYMS", "TOPIC_CONFIG", "TOPIC_SYNONYMS"]

BROKER_CONFIG: Final = ConfigDef(
    sorted(
        (
            *SERVER,
            *NETWORK,
            *LOG,
            *REPLICATION,
            *COORDINATORS,
            *SECURITY,
            *ZOOKEEPER,
            *QUORUM,
            *TIERED_STORAGE,
        ),
        key=lambda key: key.name,
    )
)

TOPIC_CONFIG: Final = ConfigDef(TOPIC)

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
