"""Looks up the times of a consumer group: its own settings where it has some, the broker's otherwise."""

from collections.abc import Mapping
from typing import Final

from kalda.broker.config import ConfigStore
from kalda.broker.config.config_admin import GROUPS
from kalda.common.config_def import ConfigError
from kalda.common.sanitizer import desanitize
from kalda.settings import BrokerConfig

_NOTHING: Final[Mapping[str, str]] = {}


class StoredGroupTimes:
    """Implements `GroupTimes` with the settings in force."""

    def __init__(self, config: BrokerConfig, store: ConfigStore) -> None:
        self._config: Final = config
        self._overrides: Final[dict[str, Mapping[str, str]]] = {}
        store.on_entity_change(self._on_change)

    def session_timeout_ms(self, group_id: str) -> int:
        """Return how long a member stays in a group without a heartbeat, in milliseconds."""
        return self._value("consumer.session.timeout.ms", group_id)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the heartbeat interval that the members of a group are given, in milliseconds."""
        return self._value("consumer.heartbeat.interval.ms", group_id)

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return the least time between two target assignments of a group, in milliseconds (KIP-1263)."""
        return self._value("consumer.assignment.interval.ms", group_id)

    def _value(self, name: str, group_id: str) -> int:
        try:
            return self._config.groups.value(name, self._overrides.get(group_id, _NOTHING))
        except ConfigError:
            # The znode was written by hand.
            return self._config.groups.value(name, _NOTHING)

    def _on_change(self, entity_type: str, name: str, settings: Mapping[str, str]) -> None:
        if entity_type != GROUPS:
            return
        if settings:
            self._overrides[desanitize(name)] = settings
        else:
            self._overrides.pop(desanitize(name), None)
