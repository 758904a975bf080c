"""Reads and writes the quotas of entities in ZooKeeper, in Kafka's layout."""

from collections.abc import Mapping
from typing import Final

from kalda.broker.config import ConfigStore
from kalda.cluster.cluster_store import ClusterStore
from kalda.security.quota.entity import CLIENTS, IPS, USERS, QuotaEntity
from kalda.security.quota.settings import quota_values


class StoredQuotas:
    """The quotas of the cluster."""

    def __init__(self, config_store: ConfigStore, cluster: ClusterStore) -> None:
        self._store: Final = config_store
        self._cluster: Final = cluster

    async def read(self) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of all entities that have some.

        Raises:
            ZooKeeperError: they cannot be read.
        """
        found: dict[QuotaEntity, dict[str, float]] = {}
        for entity_type in (USERS, CLIENTS, IPS):
            for name, settings in (await self._cluster.configs(entity_type)).items():
                entity, quotas = QuotaEntity.at(entity_type, name), quota_values(settings)
                if entity is not None and quotas:
                    found[entity] = quotas
        return found

    async def alter(self, entity: QuotaEntity, changes: Mapping[str, str | None]) -> None:
        """Set quotas of an entity, and remove those that are None; its other settings stay.

        Raises:
            ZooKeeperError: they could not be written.
        """

        def change(settings: dict[str, str]) -> dict[str, str]:
            kept = {name: text for name, text in {**former, **settings}.items() if name not in changes}
            return kept | {name: text for name, text in changes.items() if text is not None}

        former: Mapping[str, str] = {}
        if entity.former_location is not None and (
            former := await self._cluster.config(*entity.former_location)
        ):
            # Before the new place is written: what brokers are notified of last is in force.
            await self._cluster.set_config(*entity.former_location, {})
        entity_type, name = entity.location
        changed = await self._cluster.update_config(entity_type, name, change)
        self._store.set_entity(entity_type, name, changed)
