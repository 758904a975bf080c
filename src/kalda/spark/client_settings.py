"""Selects the settings that one client has from those that were given for another one."""

from collections.abc import Mapping

from kalda.clients.config.common_config import CommonClientConfig


def settings_of(config_class: type[CommonClientConfig], properties: Mapping[str, str]) -> dict[str, str]:
    """Return those settings, by Kafka's names, that a client of the class has."""
    known = {key.name for key in config_class.definitions().values()}
    return {name: value for name, value in properties.items() if name in known}
