"""What was changed while the cluster runs (KIP-226): topics' overrides and brokers' dynamic settings.

Coordination holds the truth under ``/config``; whoever watches it tells the store, which puts the news in
force and tells its listeners. A value that is not allowed (written by hand, or by a newer version) is logged
and left out, never a reason to stop.
"""

import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from kalda.broker.config.broker_config import BrokerConfig
from kalda.common.config_def import ConfigError
from kalda.storage.config import LogConfig

_log: Final = logging.getLogger(__name__)
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

TopicListener = Callable[[str, LogConfig], None]
BrokerListener = Callable[[frozenset[str]], None]


class ConfigStore:
    """The dynamic settings that this broker knows."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config: Final = config
        self._topics: dict[str, Mapping[str, str]] = {}
        self._topic_listeners: list[TopicListener] = []
        self._broker_listeners: list[BrokerListener] = []
        self._broker: Mapping[str, str] = _NOTHING
        self._default: Mapping[str, str] = _NOTHING

    def on_topic_change(self, listener: TopicListener) -> None:
        """Call the listener with a topic's name and new log settings whenever they change."""
        self._topic_listeners.append(listener)

    def on_broker_change(self, listener: BrokerListener) -> None:
        """Call the listener with the names of the broker settings that changed."""
        self._broker_listeners.append(listener)

    def topic_overrides(self, topic: str) -> Mapping[str, str]:
        """Return what a topic overrides, as it was written; nothing for a topic that is not known."""
        return self._topics.get(topic, _NOTHING)

    def log_config(self, topic: str) -> LogConfig:
        """Return the settings of a topic's logs."""
        return self._config.log_config(self.topic_overrides(topic))

    def set_topic(self, topic: str, overrides: Mapping[str, str]) -> None:
        """Put a topic's overrides in force; empty overrides forget the topic."""
        accepted = self._accepted_overrides(topic, overrides)
        if accepted == self.topic_overrides(topic):
            return
        if accepted:
            self._topics[topic] = MappingProxyType(accepted)
        else:
            self._topics.pop(topic, None)
        log_config = self.log_config(topic)
        for listener in self._topic_listeners:
            listener(topic, log_config)

    def set_broker(self, settings: Mapping[str, str]) -> None:
        """Put this broker's own dynamic settings in force."""
        self._apply(self._accepted_settings(settings), self._default)

    def set_broker_default(self, settings: Mapping[str, str]) -> None:
        """Put the dynamic settings of all brokers in force."""
        self._apply(self._broker, self._accepted_settings(settings))

    def _apply(self, broker: Mapping[str, str], default: Mapping[str, str]) -> None:
        try:
            changed = self._config.apply_dynamic(broker, default)
        except ConfigError as error:
            _log.error("dynamic settings are left out, the old ones stay: %s", error)
            return
        self._broker, self._default = broker, default
        if not changed:
            return
        _log.info("settings changed: %s", ", ".join(sorted(changed)))
        for broker_listener in self._broker_listeners:
            broker_listener(changed)
        # The broker's settings are the topics' defaults.
        for topic in self._topics:
            log_config = self.log_config(topic)
            for topic_listener in self._topic_listeners:
                topic_listener(topic, log_config)

    def _accepted_overrides(self, topic: str, overrides: Mapping[str, str]) -> dict[str, str]:
        accepted = {}
        for name, text in overrides.items():
            try:
                self._config.topics.resolve({name: text})
            except ConfigError as error:
                _log.error("topic %s: an override is left out: %s", topic, error)
            else:
                accepted[name] = text
        return accepted

    def _accepted_settings(self, settings: Mapping[str, str]) -> dict[str, str]:
        accepted = {}
        for name, text in settings.items():
            try:
                self._config.validated({name: text}, {})
            except ConfigError as error:
                _log.error("a dynamic setting is left out: %s", error)
            else:
                accepted[name] = text
        return accepted
