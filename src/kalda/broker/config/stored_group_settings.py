"""Looks up the settings of a group: its own where it has some, the broker's otherwise (KIP-1240)."""

from collections.abc import Mapping
from typing import Final

from kalda.broker.config.config_admin import GROUPS
from kalda.broker.config.dynamic_config import ConfigStore
from kalda.common.config_def import ConfigError, ConfigValue
from kalda.common.sanitizer import desanitize
from kalda.settings import BrokerConfig

_NOTHING: Final[Mapping[str, str]] = {}


class StoredGroupSettings:
    """The settings of groups in force."""

    def __init__(self, config: BrokerConfig, store: ConfigStore) -> None:
        self._config: Final = config
        self._overrides: Final[dict[str, Mapping[str, str]]] = {}
        store.on_entity_change(self._on_change)

    def value(self, name: str, group_id: str) -> ConfigValue:
        """Return the value of a setting for a group."""
        try:
            return self._config.groups.value(name, self._overrides.get(group_id, _NOTHING))
        except ConfigError:
            # The znode was written by hand.
            return self._config.groups.value(name, _NOTHING)

    def integer(self, name: str, group_id: str) -> int:
        """Return the value of a setting that is a number, for a group."""
        value = self.value(name, group_id)
        assert isinstance(value, int), value
        return value

    def _on_change(self, entity_type: str, name: str, settings: Mapping[str, str]) -> None:
        if entity_type != GROUPS:
            return
        if settings:
            self._overrides[desanitize(name)] = settings
        else:
            self._overrides.pop(desanitize(name), None)
