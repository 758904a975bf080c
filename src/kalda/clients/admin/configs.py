"""Holds the values that admin calls on settings take and return; names are those of Java's client."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, TypeAlias

from kalda.common.config_def import ConfigType
from kalda.common.config_values import AlterConfigOpType as AlterConfigOpType
from kalda.common.config_values import ConfigResourceType as ConfigResourceType
from kalda.common.config_values import ConfigSource as ConfigSource
from kalda.common.config_values import ConfigSynonym as ConfigSynonym
from kalda.common.public import public

ConfigText: TypeAlias = str | int | float | bool
"""The value of a setting: its text in a properties file, or the Python value that stands for it."""


def config_text(value: ConfigText) -> str:
    """Write a value as a properties file has it: ``true`` for True, ``1000`` for 1000.

    >>> config_text(True), config_text(1000), config_text("compact,delete")
    ('true', '1000', 'compact,delete')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@public
@dataclass(frozen=True, slots=True, order=True)
class ConfigResource:
    """One thing that has settings, e.g. ``ConfigResource.topic("flights")``."""

    type: ConfigResourceType
    name: str
    """The topic, the broker's id as text, the group. The empty name of a broker stands for all brokers."""

    @classmethod
    def topic(cls, name: str) -> Self:
        """Return the resource of a topic."""
        return cls(ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> Self:
        """Return the resource of one broker; without an id, the default of all brokers (KIP-226)."""
        return cls(ConfigResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def broker_logger(cls, broker_id: int) -> Self:
        """Return the resource of one broker's log levels (KIP-412)."""
        return cls(ConfigResourceType.BROKER_LOGGER, str(broker_id))

    @classmethod
    def group(cls, group_id: str) -> Self:
        """Return the resource of a group (KIP-848)."""
        return cls(ConfigResourceType.GROUP, group_id)

    @classmethod
    def client_metrics(cls, name: str) -> Self:
        """Return the resource of a subscription to clients' metrics (KIP-714)."""
        return cls(ConfigResourceType.CLIENT_METRICS, name)

    @property
    def broker_id(self) -> int | None:
        """The broker that alone can answer for the resource; None if any broker can."""
        is_of_broker = self.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
        return int(self.name) if is_of_broker and self.name else None

    def __str__(self) -> str:
        kind = self.type.name.lower().replace("_", " ")
        return f"{kind} {self.name}" if self.name else f"default {kind}"


@public
@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting of a resource."""

    name: str
    value: str | None
    """None where the setting is sensitive or not set."""
    source: ConfigSource
    is_sensitive: bool = False
    is_read_only: bool = False
    synonyms: tuple[ConfigSynonym, ...] = ()
    """What supplies the value, in order of precedence; empty unless asked for."""
    type: ConfigType | None = None
    """None from brokers before 2.6 (KIP-569)."""
    documentation: str | None = None
    """None unless asked for."""

    @property
    def is_default(self) -> bool:
        """Whether nobody has set the setting."""
        return self.source is ConfigSource.DEFAULT_CONFIG


@public
@dataclass(frozen=True, slots=True)
class AlterConfigOp:
    """One change of one setting, e.g. ``AlterConfigOp.set("retention.ms", 1000)``."""

    name: str
    type: AlterConfigOpType
    value: str | None = None

    @classmethod
    def set(cls, name: str, value: ConfigText) -> Self:
        """Set a value."""
        return cls(name, AlterConfigOpType.SET, config_text(value))

    @classmethod
    def delete(cls, name: str) -> Self:
        """Return the setting to its default."""
        return cls(name, AlterConfigOpType.DELETE)

    @classmethod
    def append(cls, name: str, *values: str) -> Self:
        """Add values to a list, where they are not in it."""
        return cls(name, AlterConfigOpType.APPEND, ",".join(values))

    @classmethod
    def subtract(cls, name: str, *values: str) -> Self:
        """Take values out of a list."""
        return cls(name, AlterConfigOpType.SUBTRACT, ",".join(values))


ConfigChanges: TypeAlias = Iterable[AlterConfigOp]
