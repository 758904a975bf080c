"""Chooses the settings of a properties file that concern one kind of client.

A ``client.properties`` file often serves producers, consumers and tools at once. A setting of another kind of
client is left out; one that no client has stays, so that the client refuses it with the nearest name.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kalda.clients.config.common_config import CommonClientConfig


def settings_for(kind: "type[CommonClientConfig]", properties: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for a kind of client, by Kafka's dotted names."""
    unknown = properties.keys() - _names(kind)
    if unknown:
        # Imported only here: most command lines have none of their settings.
        from kalda.clients.admin.admin_config import AdminConfig
        from kalda.clients.consumer.consumer_config import ConsumerConfig
        from kalda.clients.producer.producer_config import ProducerConfig

        unknown &= _names(AdminConfig) | _names(ConsumerConfig) | _names(ProducerConfig)
    return {name: value for name, value in properties.items() if name not in unknown}


def known_settings(kind: "type[CommonClientConfig]", properties: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a kind of client has; those that it does not know have no effect."""
    known = _names(kind)
    return {name: value for name, value in properties.items() if name in known}


def _names(kind: "type[CommonClientConfig]") -> set[str]:
    return {key.name for key in kind.definitions().values()}
