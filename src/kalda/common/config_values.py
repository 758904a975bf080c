"""Holds the values of DescribeConfigs and IncrementalAlterConfigs that brokers and clients share.

The numbers are the protocol's. What a setting is, and which exist, is in `config_def`.
"""

from dataclasses import dataclass
from enum import IntEnum

from kalda.common.public import public


@public
class ConfigResourceType(IntEnum):
    """The kinds of things that have settings; the numbers are the protocol's."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@public
class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are the protocol's."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    @classmethod
    def of(cls, number: int) -> "ConfigSource":
        """Return the source with this number; UNKNOWN for one that Kalda does not know."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


@public
@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One of the settings that could supply a value."""

    name: str
    value: str | None
    source: ConfigSource


@public
class AlterConfigOpType(IntEnum):
    """What to do with a setting; the numbers are the protocol's (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
