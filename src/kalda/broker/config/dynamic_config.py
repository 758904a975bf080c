"""Keeps the settings that change while the cluster runs (KIP-226), of topics and of brokers.

The settings are stored in ZooKeeper under ``/config``. `ConfigStore` watches them there, puts changes in
force and notifies its listeners. A value that is not allowed (written by hand, or by a newer version) is
logged and ignored; it never stops a broker.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from kalda.cluster import paths
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.config_changes import ConfigChange, ConfigChanges
from kalda.cluster.schema import SchemaError
from kalda.common.config_def import ConfigError
from kalda.settings.broker_config import BrokerConfig, has_effect
from kalda.settings.definitions import TOPIC_SYNONYMS
from kalda.settings.stored_passwords import StoredPasswords
from kalda.storage.log_config import LogConfig

logger: Final = logging.getLogger(__name__)
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_TOPICS: Final = "topics"
_BROKERS: Final = "brokers"
_ENTITY_TYPES: Final = ("users", "clients", "ips", "client-metrics", "groups")
_SETTINGS_OF_LOGS: Final = frozenset(name for names in TOPIC_SYNONYMS.values() for name, _ in names) | {
    "producer.id.expiration.ms"
}

TopicListener = Callable[[str, LogConfig], None]
BrokerListener = Callable[[frozenset[str]], None]
EntityListener = Callable[[str, str, Mapping[str, str]], None]


class ConfigStore:
    """The dynamic settings in force on this broker.

    `start` loads them and follows their changes. Before it, and in tests, only `set_topic` and its siblings
    change them.
    """

    def __init__(self, config: BrokerConfig, topic_names: Callable[[], Iterable[str]] = tuple) -> None:
        """`topic_names` lists the topics that have logs here: a broker's setting may be their default."""
        self._config: Final = config
        self._topic_names: Final = topic_names
        self._topics: dict[str, Mapping[str, str]] = {}
        self._topic_listeners: list[TopicListener] = []
        self._broker_listeners: list[BrokerListener] = []
        self.passwords: Final = StoredPasswords(config)
        self._entity_listeners: list[EntityListener] = []
        self._broker: Mapping[str, str] = _NOTHING
        self._default: Mapping[str, str] = _NOTHING
        self._changes: ConfigChanges | None = None
        self._default_log_config: LogConfig | None = None
        self._entities: Final[dict[str, dict[str, Mapping[str, str]]]] = {}
        """The settings of users and others by type and name, as they are written in paths."""

    async def start(self, cluster: ClusterStore, broker_id: int) -> None:
        """Load the settings from ZooKeeper and follow their changes until `close`.

        Raises:
            ZooKeeperError: it cannot be read.
        """
        self._changes = await cluster.watch_config_changes(lambda change: self._on_change(change, broker_id))
        brokers = await cluster.configs(_BROKERS)
        stored = brokers.get(str(broker_id), _NOTHING)
        reencoded = self.passwords.reencoded(stored)
        if reencoded is not None:
            await cluster.set_config(_BROKERS, str(broker_id), reencoded)
            logger.info("stored passwords are encrypted with the new `password.encoder.secret`")
            stored = reencoded
        # Together: a setting of this broker may need one of all brokers.
        self._apply(self.passwords.decoded(stored), brokers.get(paths.DEFAULT_ENTITY, _NOTHING))
        for topic, overrides in (await cluster.configs(_TOPICS)).items():
            self.set_topic(topic, overrides)
        for entity_type in _ENTITY_TYPES:
            for name, settings in (await cluster.configs(entity_type)).items():
                self.set_entity(entity_type, name, settings)

    async def close(self) -> None:
        """Stop following changes."""
        if self._changes is not None:
            await self._changes.close()
            self._changes = None

    async def load_topics(self, cluster: ClusterStore, topics: Iterable[str]) -> None:
        """Read the overrides of topics that are new to this broker, before it makes logs for them.

        Raises:
            ZooKeeperError: they cannot be read.
        """
        for topic, overrides in (await self._read_topics(cluster, topics)).items():
            self.set_topic(topic, overrides)

    async def stored_topics(
        self, cluster: ClusterStore, topics: Iterable[str]
    ) -> dict[str, Mapping[str, str]]:
        """Read the overrides of topics that have no replica here.

        Those are not kept: a topic that is created elsewhere, or deleted and created again, causes no
        notification.

        Raises:
            ZooKeeperError: they cannot be read.
        """
        found = await self._read_topics(cluster, topics)
        return {topic: self._accepted_overrides(topic, overrides) for topic, overrides in found.items()}

    async def _read_topics(
        self, cluster: ClusterStore, topics: Iterable[str]
    ) -> dict[str, Mapping[str, str]]:
        names = list(topics)
        # All at once: reading a thousand topics one after the other would keep the controller waiting.
        found = await asyncio.gather(*(self._load_topic(cluster, topic) for topic in names))
        return dict(zip(names, found, strict=True))

    async def _load_topic(self, cluster: ClusterStore, topic: str) -> Mapping[str, str]:
        try:
            return await cluster.config(_TOPICS, topic)
        except SchemaError as error:
            # One topic whose znode was broken by hand must not keep this broker from serving the others.
            logger.error("the settings of topic %s stay as they are: %s", topic, error)
            return self.topic_overrides(topic)

    def on_topic_change(self, listener: TopicListener) -> None:
        """Call the listener with a topic's name and new log settings whenever they change."""
        self._topic_listeners.append(listener)

    def on_broker_change(self, listener: BrokerListener) -> None:
        """Call the listener with the names of the broker settings that changed."""
        self._broker_listeners.append(listener)

    def on_entity_change(self, listener: EntityListener) -> None:
        """Call the listener with the type, name and settings of each entity that is set, those before too."""
        self._entity_listeners.append(listener)
        for entity_type, entities in self._entities.items():
            for name, settings in entities.items():
                listener(entity_type, name, settings)

    def topic_overrides(self, topic: str) -> Mapping[str, str]:
        """Return a topic's overrides as they were written; none for an unknown topic."""
        return self._topics.get(topic, _NOTHING)

    def entity(self, entity_type: str, name: str) -> Mapping[str, str]:
        """Return the settings of an entity that is neither a topic nor a broker; nothing if it has none."""
        return self._entities.get(entity_type, {}).get(name, _NOTHING)

    def entity_names(self, entity_type: str) -> list[str]:
        """Return the names of the entities of a type that have settings."""
        return list(self._entities.get(entity_type, ()))

    def set_entity(self, entity_type: str, name: str, settings: Mapping[str, str]) -> None:
        """Put an entity's settings in force; empty settings forget it."""
        entities = self._entities.setdefault(entity_type, {})
        if settings:
            entities[name] = MappingProxyType(dict(settings))
        else:
            entities.pop(name, None)
        for listener in self._entity_listeners:
            listener(entity_type, name, settings)

    def log_config(self, topic: str) -> LogConfig:
        """Return the settings of a topic's logs."""
        overrides = self._topics.get(topic)
        if overrides is not None:
            return self._config.log_config(overrides)
        if self._default_log_config is None:
            self._default_log_config = self._config.log_config(_NOTHING)
        return self._default_log_config

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
        """Put this broker's own dynamic settings in force; passwords are plain."""
        self._apply(settings, self._default)

    def set_broker_default(self, settings: Mapping[str, str]) -> None:
        """Put the dynamic settings of all brokers in force."""
        self._apply(self._broker, settings)

    def _apply(self, broker: Mapping[str, str], default: Mapping[str, str]) -> None:
        broker, default = self._accepted_settings(broker, default)
        try:
            changed = self._config.apply_dynamic(broker, default)
        except ConfigError as error:
            logger.error("dynamic settings are left out, the old ones stay: %s", error)
            return
        self._broker, self._default = broker, default
        if not changed:
            return
        logger.info("settings changed: %s", ", ".join(sorted(changed)))
        if without_effect := sorted(name for name in changed if not has_effect(name)):
            logger.warning("changed settings that have no effect in Kalda: %s", ", ".join(without_effect))
        self._default_log_config = None
        for broker_listener in self._broker_listeners:
            broker_listener(changed)
        # While the broker starts there are no logs yet, and no listener for them.
        if not self._topic_listeners or changed.isdisjoint(_SETTINGS_OF_LOGS):
            return
        for topic in self._topic_names():
            log_config = self.log_config(topic)
            for topic_listener in self._topic_listeners:
                topic_listener(topic, log_config)

    def _on_change(self, change: ConfigChange, broker_id: int) -> None:
        if change.entity_type == _TOPICS:
            self.set_topic(change.entity_name, change.config)
        elif change.entity_type == _BROKERS and change.entity_name == paths.DEFAULT_ENTITY:
            self.set_broker_default(change.config)
        elif change.entity_type == _BROKERS and change.entity_name == str(broker_id):
            self.set_broker(self.passwords.decoded(change.config))
        elif change.entity_type in _ENTITY_TYPES:
            self.set_entity(change.entity_type, change.entity_name, change.config)

    def _accepted_overrides(self, topic: str, overrides: Mapping[str, str]) -> dict[str, str]:
        accepted = {}
        for name, text in overrides.items():
            try:
                self._config.topics.resolve({name: text})
            except ConfigError as error:
                logger.error("topic %s: an override is left out: %s", topic, error)
            else:
                accepted[name] = text
        return accepted

    def _accepted_settings(
        self, broker: Mapping[str, str], default: Mapping[str, str]
    ) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return the settings without those that are not allowed."""
        broker, default = self._allowed_alone(broker), self._allowed_alone(default)
        problem = self._problem(broker, default)
        if problem is None:
            return broker, default
        # One setting that contradicts others must not keep the rest out.
        for name in broker:
            rest = {other: text for other, text in broker.items() if other != name}
            if self._problem(rest, default) is None:
                logger.error("the dynamic setting `%s` is left out: %s", name, problem)
                return rest, default
        for name in default:
            rest = {other: text for other, text in default.items() if other != name}
            if self._problem(broker, rest) is None:
                logger.error("the dynamic setting `%s` is left out: %s", name, problem)
                return broker, rest
        return broker, default

    def _allowed_alone(self, settings: Mapping[str, str]) -> dict[str, str]:
        accepted = {}
        for name, text in settings.items():
            try:
                self._config.check_alone(name, text)
            except ConfigError as error:
                logger.error("a dynamic setting is left out: %s", error)
            else:
                accepted[name] = text
        return accepted

    def _problem(self, broker: Mapping[str, str], default: Mapping[str, str]) -> ConfigError | None:
        try:
            self._config.validated(broker, default)
        except ConfigError as error:
            return error
        return None
