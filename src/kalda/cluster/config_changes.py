"""Follows the notifications of dynamic configuration changes in ``/config/changes``."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kalda.cluster import paths, schema
from kalda.cluster.notifications import Notifications
from kalda.runtime.random import Random
from kalda.zookeeper.errors import BadArgumentsError, NoNodeError
from kalda.zookeeper.path_validation import check_path
from kalda.zookeeper.port import ZooKeeperClient

logger: Final = logging.getLogger(__name__)

_USERS: Final = "users"
_CLIENTS: Final = "clients"


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """The complete new dynamic configuration of one entity."""

    entity_type: str
    """``topics``, ``brokers``, ``clients``, …"""
    entity_name: str
    """A topic's name, a broker's id, or ``<default>``; ``alice/clients/app`` for a client id of a user."""
    config: dict[str, str]


async def read_configs(zookeeper: ZooKeeperClient, entity_type: str) -> dict[str, dict[str, str]]:
    """Return the dynamic configurations of all entities of a type, by name.

    Raises:
        ZooKeeperError: they cannot be read.
    """
    names = await _children(zookeeper, f"{paths.CONFIG}/{entity_type}")
    found = await zookeeper.get_many([paths.config(entity_type, name) for name in names])
    if entity_type == _USERS:
        # A user may have settings for single client ids, in a level of their own.
        nested: list[str] = []
        for name, entry in zip(names, found, strict=True):
            if entry is not None and entry[1].num_children:
                parent = f"{name}/{_CLIENTS}"
                below = await _children(zookeeper, paths.config(entity_type, parent))
                nested += [f"{parent}/{client_id}" for client_id in below]
        names = [*names, *nested]
        found = [*found, *await zookeeper.get_many([paths.config(entity_type, name) for name in nested])]
    return schema.decode_configs(entity_type, names, found)


async def _children(zookeeper: ZooKeeperClient, path: str) -> list[str]:
    try:
        return await zookeeper.children(path)
    except NoNodeError:
        return []


class ConfigChanges(Notifications):
    """One follower of the notifications; `ClusterStore.watch_config_changes` creates and starts it."""

    def __init__(
        self, zookeeper: ZooKeeperClient, random: Random, callback: Callable[[ConfigChange], None]
    ) -> None:
        super().__init__(
            zookeeper, random, paths.CONFIG_CHANGES, paths.CONFIG_CHANGE_PREFIX, "configurations"
        )
        self._callback = callback

    async def _read_all(self) -> None:
        """Reload every configuration, in place of notifications that may be gone."""
        for entity_type in paths.CONFIG_ENTITY_TYPES:
            for name, config in (await read_configs(self._zookeeper, entity_type)).items():
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
