"""Reads and writes delegation tokens in ZooKeeper, in Kafka's layout.

/delegation_token/tokens/ID               a token, without its secret
/delegation_token/token_changes/token_change_N   sequential: "the token ID changed"
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from kalda.security.sasl.delegation_token import DelegationToken
from kalda.zk.client import paths
from kalda.zk.client.port import Create, SessionState, SetData, WatchEvent, ZooKeeperClient
from kalda.zk.client.zookeeper_errors import NodeExistsError, NoNodeError, ZooKeeperError

logger: Final = logging.getLogger(__name__)

_ROOT: Final = "/delegation_token"
_TOKENS: Final = f"{_ROOT}/tokens"
_CHANGES: Final = f"{_ROOT}/token_changes"
_CHANGE_PREFIX: Final = "token_change_"
_RETENTION_MS: Final = 15 * 60 * 1000
"""Kafka's retention of notifications, counted from the newest."""
_RETRY_SECONDS: Final = 1.0


class DelegationTokenStore:
    """The tokens of a cluster. All methods raise `ZooKeeperError`."""

    def __init__(self, zookeeper: ZooKeeperClient) -> None:
        self._zookeeper: Final = zookeeper
        self._changed: Final = asyncio.Event()

    async def start(self) -> None:
        """Create the znodes of the layout that are missing."""
        for path in (_ROOT, _TOKENS, _CHANGES):
            try:
                await self._zookeeper.create(path)
            except NodeExistsError:
                continue
        self._zookeeper.add_state_listener(self._on_state)

    async def load(self) -> dict[str, DelegationToken]:
        """Return all tokens by id, and have `follow` notice the next change.

        A token that is malformed is logged and left out.
        """
        await self._zookeeper.children(_CHANGES, self._on_event)
        ids = await self._zookeeper.children(_TOKENS)
        found = await self._zookeeper.get_many([f"{_TOKENS}/{token_id}" for token_id in ids])
        tokens = {}
        for token_id, entry in zip(ids, found, strict=True):
            if entry is None:
                continue
            try:
                tokens[token_id] = DelegationToken.from_json(entry[0])
            except ValueError as error:
                logger.error("the delegation token %s is left out: %s", token_id, error)
        return tokens

    async def set(self, token: DelegationToken) -> None:
        """Create or replace a token, and notify the brokers."""
        path, data = f"{_TOKENS}/{token.token_id}", token.to_json()
        try:
            await self._zookeeper.multi([SetData(path, data), self._notification(token.token_id)])
        except NoNodeError:
            await self._zookeeper.multi([Create(path, data), self._notification(token.token_id)])

    async def delete(self, token_id: str) -> None:
        """Delete a token, and notify the brokers. Does nothing if there is none."""
        try:
            await self._zookeeper.delete(f"{_TOKENS}/{token_id}")
        except NoNodeError:
            return
        await self._zookeeper.multi([self._notification(token_id)])

    async def purge_notifications(self) -> None:
        """Delete the notifications that are much older than the newest; ZooKeeper dates them all."""
        names = [name for name in await self._zookeeper.children(_CHANGES) if name.startswith(_CHANGE_PREFIX)]
        *older, newest = sorted(names, key=_sequence) or [""]
        stat = await self._zookeeper.exists(f"{_CHANGES}/{newest}") if newest else None
        if stat is None:
            return
        for name in older:
            path = f"{_CHANGES}/{name}"
            found = await self._zookeeper.exists(path)
            if found is None:
                continue
            if found.ctime >= stat.ctime - _RETENTION_MS:
                break
            try:
                await self._zookeeper.delete(path)
            except NoNodeError:
                continue

    async def follow(self, reload: Callable[[], Awaitable[None]]) -> None:
        """Call `reload` after each change, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await reload()
            except ZooKeeperError as error:
                logger.warning("delegation tokens could not be read, will retry: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._changed.set()

    def _notification(self, token_id: str) -> Create:
        return Create(f"{_CHANGES}/{_CHANGE_PREFIX}", token_id.encode(), sequential=True)

    def _on_event(self, event: WatchEvent) -> None:
        self._changed.set()

    def _on_state(self, state: SessionState) -> None:
        # A new session has no watches; reading again sets one.
        if state is SessionState.CONNECTED:
            self._changed.set()


def _sequence(name: str) -> int:
    try:
        return paths.sequence_number(name)
    except ValueError:
        return -1
