"""Follows the notifications of dynamic configuration changes in ``/config/changes``."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kalda.zk.client import paths, schema
from kalda.zk.client.notifications import Notifications
from kalda.zk.client.path_validation import check_path
from kalda.zk.client.port import ZooKeeperClient
from kalda.zk.client.zookeeper_errors import BadArgumentsError, NoNodeError

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """The complete new dynamic configuration of one entity."""

    entity_type: str
    """``topics``, ``brokers``, ``clients``, …"""
    entity_name: str
    """A topic's name, a broker's id, or ``<default>``."""
    config: dict[str, str]


class ConfigChanges(Notifications):
    """One follower of the notifications; `ClusterStore.watch_config_changes` creates and starts it."""

    def __init__(self, zookeeper: ZooKeeperClient, callback: Callable[[ConfigChange], None]) -> None:
        super().__init__(zookeeper, paths.CONFIG_CHANGES, paths.CONFIG_CHANGE_PREFIX, "configurations")
        self._callback = callback

    async def _read_all(self) -> None:
        """Reload every configuration, in place of notifications that may be gone."""
        for entity_type in paths.CONFIG_ENTITY_TYPES:
            try:
                names = await self._zookeeper.children(f"{paths.CONFIG}/{entity_type}")
            except NoNodeError:
                continue
            found = await self._zookeeper.get_many([paths.config(entity_type, name) for name in names])
            configs = schema.decode_configs(entity_type, names, found)
            for name, config in configs.items():
                self._apply(ConfigChange(entity_type, name, config))

    async def _handle(self, name: str) -> None:
        try:
            data, _ = await self._zookeeper.get(f"{paths.CONFIG_CHANGES}/{name}")
            entity_type, entity_name = schema.decode_config_change(data)
            path = paths.config(entity_type, entity_name)
            check_path(path)
            (found,) = await self._zookeeper.get_many([path])
            config = {} if found is None else schema.decode_config(entity_type, entity_name, found[0])
        except NoNodeError:
            return
        except (schema.SchemaError, BadArgumentsError) as error:
            logger.error("configuration change %s is skipped: %s", name, error)
            return
        self._apply(ConfigChange(entity_type, entity_name, config))

    def _apply(self, change: ConfigChange) -> None:
        try:
            self._callback(change)
        except Exception:
            # A bad change must not prevent later ones from being applied.
            logger.exception(
                "applying the configuration of %s/%s failed", change.entity_type, change.entity_name
            )
