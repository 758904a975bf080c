"""Reads, writes and follows delegation tokens in ZooKeeper, in Kafka's layout.

/delegation_token/tokens/ID               a token, without its secret
/delegation_token/token_changes/token_change_N   sequential: "the token ID changed"
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from kalda.cluster.layout import ensure_paths
from kalda.cluster.notifications import Notifications
from kalda.runtime.random import Random
from kalda.security.sasl.delegation_token import DelegationToken
from kalda.zookeeper.errors import BadArgumentsError, NoNodeError
from kalda.zookeeper.path_validation import check_path
from kalda.zookeeper.port import Create, Delete, SetData, ZooKeeperClient

logger: Final = logging.getLogger(__name__)

_TOKENS: Final = "/delegation_token/tokens"
_CHANGES: Final = "/delegation_token/token_changes"
_CHANGE_PREFIX: Final = "token_change_"

OnToken = Callable[[str, DelegationToken | None], None]
"""Called with a token's id whenever the token may have changed; None if there is no such token any more."""


class DelegationTokenStore:
    """The tokens of a cluster. All methods raise `ZooKeeperError`."""

    def __init__(self, zookeeper: ZooKeeperClient, random: Random) -> None:
        self._zookeeper: Final = zookeeper
        self._random: Final = random
        self._changes: _TokenChanges | None = None
        self._on_token: OnToken = lambda *_: None
        self.lock: Final = asyncio.Lock()
        """Held from a read or write until its result is in force: a read that began before a deletion must
        not bring the token back."""

    async def start(self, on_token: OnToken) -> None:
        """Create the znodes of the layout that are missing, read all tokens, and follow changes."""
        self._on_token = on_token
        await ensure_paths(self._zookeeper, (_TOKENS, _CHANGES))
        changes = self._changes = _TokenChanges(self._zookeeper, self._random, self, on_token)
        # The watch comes first, so that no change is missed.
        await changes.start()
        await changes.read_all()

    async def close(self) -> None:
        """Stop following changes."""
        if self._changes is not None:
            await self._changes.close()

    async def read(self, token_id: str) -> DelegationToken | None:
        """Return a token; None if there is none. One that is malformed is logged and left out."""
        return (await self._read([token_id])).get(token_id)

    async def read_all(self) -> dict[str, DelegationToken]:
        """Return all tokens by id; those that are malformed are logged and left out."""
        return await self._read(await self._zookeeper.children(_TOKENS))

    async def set(self, token: DelegationToken) -> None:
        """Create or replace a token, put it in force and notify the brokers."""
        path, data = f"{_TOKENS}/{token.token_id}", token.to_json()
        async with self.lock:
            try:
                await self._zookeeper.multi([SetData(path, data), self._notification(token.token_id)])
            except NoNodeError:
                await self._zookeeper.multi([Create(path, data), self._notification(token.token_id)])
            self._on_token(token.token_id, token)

    async def delete(self, token_id: str) -> None:
        """Delete a token, and notify the brokers. Does nothing if there is none."""
        async with self.lock:
            # In one transaction: an attempt whose answer was lost has notified the brokers if it has deleted
            # the token, so the next attempt has nothing to do.
            with contextlib.suppress(NoNodeError):
                await self._zookeeper.multi([Delete(f"{_TOKENS}/{token_id}"), self._notification(token_id)])
            self._on_token(token_id, None)

    async def _read(self, token_ids: list[str]) -> dict[str, DelegationToken]:
        found = await self._zookeeper.get_many([f"{_TOKENS}/{token_id}" for token_id in token_ids])
        tokens = {}
        for token_id, entry in zip(token_ids, found, strict=True):
            if entry is None:
                continue
            try:
                tokens[token_id] = DelegationToken.from_json(entry[0])
            except ValueError as error:
                logger.error("the delegation token %s is left out: %s", token_id, error)
        return tokens

    def _notification(self, token_id: str) -> Create:
        return Create(f"{_CHANGES}/{_CHANGE_PREFIX}", token_id.encode(), sequential=True)


class _TokenChanges(Notifications):
    """Reads the tokens that notifications name: the cost of a change does not grow with the tokens."""

    def __init__(
        self, zookeeper: ZooKeeperClient, random: Random, store: DelegationTokenStore, on_token: OnToken
    ) -> None:
        super().__init__(zookeeper, random, _CHANGES, _CHANGE_PREFIX, "delegation tokens")
        self._store: Final = store
        self._on_token: Final = on_token
        self._known: Final[set[str]] = set()

    async def read_all(self) -> None:
        """Read every token; those that are known and gone are reported as None."""
        async with self._store.lock:
            found = await self._store.read_all()
            for token_id in self._known - found.keys():
                self._put(token_id, None)
            for token_id, token in found.items():
                self._put(token_id, token)

    async def _read_all(self) -> None:
        await self.read_all()

    async def _handle(self, name: str) -> None:
        try:
            data, _ = await self._zookeeper.get(f"{self._parent}/{name}")
            token_id = data.decode()
            check_path(f"{_TOKENS}/{token_id}")
        except NoNodeError:
            return
        except (UnicodeDecodeError, BadArgumentsError) as error:
            logger.error("change %s of delegation tokens is skipped: %s", name, error)
            return
        async with self._store.lock:
            self._put(token_id, await self._store.read(token_id))

    def _put(self, token_id: str, token: DelegationToken | None) -> None:
        if token is None:
            self._known.discard(token_id)
        else:
            self._known.add(token_id)
        self._on_token(token_id, token)
