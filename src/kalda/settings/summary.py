"""Selects the settings that a broker logs at its start: those changed from the default or without effect.

Only the settings of the file and of the command line are considered. `ConfigStore` logs dynamic changes.
"""

from collections.abc import Mapping

from kalda.common.config_def import HIDDEN, ConfigDef, ConfigError
from kalda.settings.broker_config import BrokerConfig, find_key, has_effect
from kalda.settings.definitions import BROKER_CONFIG


def differing_settings(config: BrokerConfig) -> list[str]:
    """Return the broker's settings that differ from Kafka's defaults as ``name=value``, by name.

    Passwords, and settings of plug-ins, whose type is unknown, are shown as ``name=[hidden]``.
    """
    shown = []
    for name in sorted(config.static):
        if name == "node.id" and "broker.id" in config.static:
            # One is filled in from the other.
            continue
        try:
            key = find_key(name)
        except ConfigError:
            shown.append(f"{name}={HIDDEN}")
            continue
        value = key.parse(config.static[name])
        if value != BROKER_CONFIG.defaults.get(name):
            shown.append(f"{name}={key.shown(value)}")
    return shown


def settings_without_effect(config: BrokerConfig) -> list[str]:
    """Return the names of the settings that the broker was given and that nothing reads, sorted."""
    return sorted(name for name in config.static if not has_effect(name))


def differing(definitions: ConfigDef, properties: Mapping[str, str]) -> list[str]:
    """Return the given settings that differ from the defaults as ``name=value``; passwords are hidden."""
    values = definitions.parse(properties)
    return [
        f"{name}={definitions.keys[name].shown(values[name])}"
        for name in sorted(values)
        if values[name] != definitions.defaults[name]
    ]
