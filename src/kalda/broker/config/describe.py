"""Describes settings for DescribeConfigs: value, source, and the names that could supply the value.

The functions are pure. The order of sources is that of KIP-226: the topic, this broker's dynamic setting, the
dynamic default of all brokers, the file that the broker was started with, the default. A setting with several
names (see `definitions.BROKER_SYNONYMS`) lists them within each source.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from kalda.common.config_def import ConfigError, ConfigKey, ConfigValue, UpdateMode
from kalda.common.config_values import ConfigSource, ConfigSynonym
from kalda.settings.broker_config import BrokerConfig, base_name, find_key
from kalda.settings.definitions import (
    BROKER_CONFIG,
    BROKER_SYNONYMS,
    GROUP_CONFIG,
    GROUP_SYNONYMS,
    TOPIC_CONFIG,
    TOPIC_SYNONYMS,
)


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting as described; the value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    config_type: int
    synonyms: Sequence[ConfigSynonym]
    documentation: str


_TYPE_UNKNOWN: Final = 0


def describe_topic(
    config: BrokerConfig, overrides: Mapping[str, str], names: Sequence[str] | None = None
) -> list[ConfigEntry]:
    """Describe a topic's settings; all of them, or those named that exist."""
    defaults = _default_entries(config)
    own = TOPIC_CONFIG.parse(overrides)
    return [
        _topic_entry(config, TOPIC_CONFIG.keys[name], own[name], is_own=True)
        if name in own
        else defaults[name]
        for name in _selected(TOPIC_CONFIG.keys, names)
    ]


def describe_broker(config: BrokerConfig, names: Sequence[str] | None = None) -> list[ConfigEntry]:
    """Describe this broker's settings; all but the internal ones, or those named that exist."""
    written = {**config.static, **config.dynamic_default, **config.dynamic_broker}
    listed = [key.name for key in BROKER_CONFIG if not key.internal or key.name in written]
    listed += [name for name in written if name not in BROKER_CONFIG]
    return [_broker_entry(config, name) for name in _selected(listed, names)]


def describe_broker_default(config: BrokerConfig, names: Sequence[str] | None = None) -> list[ConfigEntry]:
    """Describe the settings that were changed for all brokers."""
    entries = []
    for name in _selected(config.dynamic_default, names):
        synonyms = [
            synonym
            for synonym in _broker_synonyms(config, name)
            if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        ]
        entries.append(_entry_of_broker(name, config.dynamic_default[name], synonyms))
    return entries


def describe_client_metrics(
    settings: Mapping[str, str], names: Sequence[str] | None = None
) -> list[ConfigEntry]:
    """Describe the configured settings of a client metrics subscription, without defaults, as Kafka does."""
    return [
        ConfigEntry(
            name=name,
            value=settings[name],
            source=ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
            is_read_only=False,
            is_sensitive=False,
            config_type=_TYPE_UNKNOWN,
            synonyms=(),
            documentation="",
        )
        for name in _selected(settings, names)
    ]


def describe_group(
    config: BrokerConfig, overrides: Mapping[str, str], names: Sequence[str] | None = None
) -> list[ConfigEntry]:
    """Describe a group's settings; all of them, or those named that exist."""
    entries = []
    for name in _selected(GROUP_CONFIG.keys, names):
        key = GROUP_CONFIG.keys[name]
        synonyms = _broker_synonyms(config, GROUP_SYNONYMS[name]) if name in GROUP_SYNONYMS else []
        if name in overrides:
            synonyms.insert(0, ConfigSynonym(name, overrides[name], ConfigSource.DYNAMIC_GROUP_CONFIG))
        entries.append(_own_entry(key, key.format(config.groups.value(name, overrides)), synonyms))
    return entries


def _selected(existing: Iterable[str], names: Sequence[str] | None) -> list[str]:
    # An empty list asks for everything, as null does: old clients send it so.
    if not names:
        return list(existing)
    wanted = frozenset(names)
    return [name for name in existing if name in wanted]


_default_entries_made: Final[
    WeakKeyDictionary[BrokerConfig, tuple[Mapping[str, ConfigValue], dict[str, ConfigEntry]]]
] = WeakKeyDictionary()


def _default_entries(config: BrokerConfig) -> dict[str, ConfigEntry]:
    """Describe a topic without overrides; kept until the broker's settings change.

    Most topics have few overrides or none, and tools describe all topics at once.
    """
    defaults = config.topics.defaults
    made = _default_entries_made.get(config)
    if made is None or made[0] is not defaults:
        entries = {
            key.name: _topic_entry(config, key, defaults[key.name], is_own=False) for key in TOPIC_CONFIG
        }
        made = _default_entries_made[config] = (defaults, entries)
    return made[1]


def _topic_entry(config: BrokerConfig, key: ConfigKey, value: ConfigValue, *, is_own: bool) -> ConfigEntry:
    text = key.format(value)
    synonyms: list[ConfigSynonym] = []
    if is_own:
        synonyms.append(ConfigSynonym(key.name, text, ConfigSource.DYNAMIC_TOPIC_CONFIG))
    if key.name in TOPIC_SYNONYMS:
        synonyms += _broker_synonyms(config, TOPIC_SYNONYMS[key.name][0][0])
    return _own_entry(key, text, synonyms)


def _own_entry(key: ConfigKey, text: str | None, synonyms: list[ConfigSynonym]) -> ConfigEntry:
    """Describe a setting that a topic or a group may have of its own."""
    return ConfigEntry(
        name=key.name,
        value=text,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        is_read_only=False,
        is_sensitive=key.type.is_sensitive,
        config_type=key.type,
        synonyms=synonyms,
        documentation=key.documentation,
    )


def _broker_entry(config: BrokerConfig, name: str) -> ConfigEntry:
    try:
        value = config.text(name)
    except ConfigError:
        # The type of a plug-in's setting is not known, so its value is not shown.
        value = None
    return _entry_of_broker(name, value, _broker_synonyms(config, name))


def _entry_of_broker(name: str, value: str | None, synonyms: list[ConfigSynonym]) -> ConfigEntry:
    try:
        key = find_key(name)
    except ConfigError:
        key = None
    is_sensitive = key is None or key.type.is_sensitive
    return ConfigEntry(
        name=name,
        value=None if is_sensitive else value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        is_read_only=key is None or key.update_mode is UpdateMode.READ_ONLY,
        is_sensitive=is_sensitive,
        config_type=key.type if key is not None else _TYPE_UNKNOWN,
        synonyms=synonyms,
        documentation=key.documentation if key is not None else "",
    )


def _broker_synonyms(config: BrokerConfig, name: str) -> list[ConfigSynonym]:
    """List the names and sources that supply a broker setting, from the first that has this very name."""
    names = BROKER_SYNONYMS.get(name, (name,))
    base = base_name(name)
    if base != name:
        names = (name, base)
    synonyms: list[ConfigSynonym] = []
    for source, settings in (
        (ConfigSource.DYNAMIC_BROKER_CONFIG, config.dynamic_broker),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, config.dynamic_default),
        (ConfigSource.STATIC_BROKER_CONFIG, config.static),
    ):
        synonyms += [
            ConfigSynonym(synonym, _shown(synonym, settings[synonym]), source)
            for synonym in names
            if synonym in settings
        ]
    for synonym in names:
        key = BROKER_CONFIG.keys.get(synonym)
        if key is not None and key.default is not None:
            text = _shown(synonym, key.format(key.default))
            synonyms.append(ConfigSynonym(synonym, text, ConfigSource.DEFAULT_CONFIG))
    start = next((index for index, synonym in enumerate(synonyms) if synonym.name == name), len(synonyms))
    return synonyms[start:]


def _shown(name: str, text: str | None) -> str | None:
    try:
        return None if find_key(name).type.is_sensitive else text
    except ConfigError:
        return None
