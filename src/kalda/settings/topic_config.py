"""Computes a topic's settings from its overrides, the broker's settings and Kafka's defaults.

The first of these that has a value determines a setting: the topic's override, the broker's dynamic value,
the broker's static value, Kafka's default. `TopicConfigs` does not store overrides; callers pass them. It
keeps the values of a topic without overrides, so `refresh()` must follow every change of a broker setting.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from kalda.common.config_def import ConfigError, ConfigValue
from kalda.records.batch import MAGIC
from kalda.schemas.payloads.record_check import ValidationMode
from kalda.settings.definitions import TOPIC_CONFIG, TOPIC_SYNONYMS
from kalda.storage.log_config import CleanupPolicy, LogConfig, TimestampTypeConfig

_LOG_FIELDS: Final = {
    field.name: field.name.replace("_", ".")
    for field in dataclasses.fields(LogConfig)
    if field.name.replace("_", ".") in TOPIC_CONFIG
}
"""Field of the storage's config to topic setting; `producer_id_expiration_ms` is the broker's alone."""

_VALIDATIONS: Final = ("kalda.schema.validation.key", "kalda.schema.validation.value")
_TIMESTAMP_BOUND_DEFAULT: Final = TOPIC_CONFIG.defaults["message.timestamp.before.max.ms"]


class TopicConfigs:
    """Resolves topics' settings against one broker's. `broker_value` looks up a broker setting in force."""

    def __init__(self, broker_value: Callable[[str], ConfigValue]) -> None:
        self._broker_value: Final = broker_value
        self._defaults: dict[str, ConfigValue] | None = None

    def refresh(self) -> None:
        """Discard the computed defaults: the broker's settings changed."""
        self._defaults = None

    @property
    def defaults(self) -> Mapping[str, ConfigValue]:
        """Return the values of a topic without overrides on this broker, by topic setting."""
        if self._defaults is None:
            self._defaults = {name: self._default(name) for name in TOPIC_CONFIG.keys}
        return self._defaults

    def resolve(self, overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
        """Return every topic setting's value.

        Raises:
            ConfigError: an override is unknown or not allowed.
        """
        return {**self.defaults, **TOPIC_CONFIG.parse(overrides)}

    def validate(self, overrides: Mapping[str, str]) -> None:
        """Check the overrides that a client wants to store for a topic.

        Raises:
            ConfigError: an override is unknown or not allowed, alone or together with another override
                or with the broker's settings.
        """
        values = self.resolve(overrides)
        shortest, longest = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
        assert isinstance(shortest, int)
        assert isinstance(longest, int)
        if shortest > longest:
            raise ConfigError(
                "min.compaction.lag.ms",
                f"`min.compaction.lag.ms`={shortest} is above `max.compaction.lag.ms`={longest}",
            )
        if values["remote.storage.enable"]:
            raise ConfigError(
                "remote.storage.enable",
                "`remote.storage.enable`=true is not allowed: tiered storage is not available on this broker",
            )
        for name in _VALIDATIONS:
            if values[name] != ValidationMode.OFF and not self._broker_value("kalda.schema.registry.url"):
                raise ConfigError(
                    name,
                    f"`{name}`={values[name]} needs a registry; set the brokers' `kalda.schema.registry.url`",
                )
        for name in ("remote.log.delete.on.disable", "remote.log.copy.disable"):
            if values[name]:
                raise ConfigError(
                    name, f"`{name}`=true is not allowed in a cluster that ZooKeeper coordinates"
                )

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return the settings of a topic's logs.

        Raises:
            ConfigError: an override is unknown or not allowed.
        """
        values = self.resolve(overrides)
        fields: dict[str, Any] = {field: values[name] for field, name in _LOG_FIELDS.items()}
        policies = values["cleanup.policy"]
        assert isinstance(policies, tuple)
        fields["cleanup_policy"] = frozenset(CleanupPolicy(policy) for policy in policies)
        fields["message_timestamp_type"] = TimestampTypeConfig(str(values["message.timestamp.type"]))
        # The older setting counts where the newer ones are untouched (KIP-937).
        for field in ("message_timestamp_before_max_ms", "message_timestamp_after_max_ms"):
            if fields[field] == _TIMESTAMP_BOUND_DEFAULT:
                fields[field] = values["message.timestamp.difference.max.ms"]
        fields["message_magic"] = _magic(str(values["message.format.version"]))
        fields["producer_id_expiration_ms"] = self._broker_value("producer.id.expiration.ms")
        return LogConfig(**fields)

    def _default(self, name: str) -> ConfigValue:
        for broker_name, factor in TOPIC_SYNONYMS.get(name, ()):
            value = self._broker_value(broker_name)
            if value is None:
                continue
            if factor != 1 and isinstance(value, int) and value >= 0:
                return value * factor
            return value
        return TOPIC_CONFIG.defaults[name]


def _magic(version: str) -> int:
    """Return the message format of a release: 0 before 0.10, 1 before 0.11 (KIP-31, KIP-98)."""
    major, minor = (int(part) for part in version.partition("-")[0].split(".")[:2])
    return MAGIC if major or minor >= 11 else int(minor >= 10)
