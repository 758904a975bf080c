"""Reads the settings of groups from the coordination engine: `FreshSettings`.

A change of settings reaches the brokers some moments after its request was answered. Most settings may take
effect late, but where a share partition begins is chosen once. So its leader reads the settings of the group
before it chooses, and puts them in force.
"""

import asyncio
import logging
from itertools import islice
from typing import Final

from kalda.broker.config.config_admin import GROUPS
from kalda.broker.config.dynamic_config import ConfigStore
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.schema import SchemaError
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.common.sanitizer import sanitize
from kalda.zookeeper.errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)

GROUPS_AT_ONCE: Final = 100
"""Groups whose settings are read together."""

_READ_SECONDS_MAX: Final = 10.0
_RETRY_SECONDS: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0)
"""The pauses between attempts. A fetch that still needs the settings then has them read again."""


class FreshSettings:
    """The settings of groups, as they are stored now."""

    def __init__(self, store: ConfigStore, cluster: ClusterStore) -> None:
        self._store: Final = store
        self._cluster: Final = cluster
        self._waiting: Final[dict[str, Pending[None]]] = {}
        self._is_due: Final = asyncio.Event()

    def load(self, group_id: str) -> Pending[None]:
        """Put the settings of a group in force as they are stored.

        It fails with ApiError if they cannot be read.
        """
        waiting = self._waiting.get(group_id)
        if waiting is None:
            waiting = self._waiting[group_id] = Pending()
            self._is_due.set()
        return waiting

    async def run(self) -> None:
        """Read settings until cancelled."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            while self._waiting:
                # A change that is answered from now on does not count for who has asked before.
                asked = {
                    each: self._waiting.pop(each) for each in tuple(islice(self._waiting, GROUPS_AT_ONCE))
                }
                await self._serve(asked)

    async def _serve(self, asked: dict[str, Pending[None]]) -> None:
        left = list(asked)
        for pause in (*_RETRY_SECONDS, None):
            try:
                async with asyncio.timeout(_READ_SECONDS_MAX):
                    are_loaded = await asyncio.gather(*map(self._read, left))
            except (ZooKeeperError, TimeoutError) as error:
                logger.info("the settings of %d groups cannot be read: %s", len(left), error)
            else:
                for group_id, is_loaded in zip(left, are_loaded, strict=True):
                    if is_loaded:
                        asked[group_id].complete(None)
                left = [each for each, is_loaded in zip(left, are_loaded, strict=True) if not is_loaded]
            if not left:
                return
            if pause is not None:
                await asyncio.sleep(pause)
        for group_id in left:
            asked[group_id].fail(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    async def _read(self, group_id: str) -> bool:
        """Read the settings of one group; return False if they have changed meanwhile."""
        name = sanitize(group_id)
        before = self._store.entity(GROUPS, name)
        try:
            found = await self._cluster.newest_config(GROUPS, name)
        except SchemaError as error:
            # It was written by hand. Brokers that start leave it out, too.
            logger.error("the settings of group %s stay as they are: %s", group_id, error)
            return True
        if self._store.entity(GROUPS, name) is not before:
            # Nobody knows which is newer.
            return False
        if found != before:
            self._store.set_entity(GROUPS, name, found)
        return True
