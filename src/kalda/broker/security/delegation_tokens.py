"""Creates, renews, ends and finds the delegation tokens of a cluster (KIP-48), as Kafka's token manager.

Each broker keeps all tokens and reads those again that ZooKeeper reports as changed. Every broker may change
a token; the controller deletes those that have ended. A user may have a bounded number of tokens, because any
user who can log in may make them.
"""

import asyncio
import hmac
import logging
from dataclasses import replace
from typing import Final

from kalda.cluster.delegation_token_store import DelegationTokenStore
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import random_uuid, uuid_to_text
from kalda.runtime.clock import Clock
from kalda.runtime.random import Random
from kalda.security.principal import KafkaPrincipal
from kalda.security.sasl.delegation_token import DelegationToken, password_of, tokens_of
from kalda.security.sasl.scram import ITERATIONS_MIN, ScramCredential, TokenCredential
from kalda.settings import BrokerConfig
from kalda.zookeeper.errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)


TOKEN_BYTES_MAX: Final = 16 * 1024
"""The largest token in ZooKeeper, with some hundred renewers. Any user may have a thousand tokens, and each
broker and the coordination server keep all of them; a znode alone would let each have 1 MB."""


class DelegationTokens:
    """The tokens of the cluster, as this broker knows them."""

    def __init__(
        self, config: BrokerConfig, store: DelegationTokenStore, clock: Clock, random: Random
    ) -> None:
        self._config: Final = config
        self._store: Final = store
        self._clock: Final = clock
        self._random: Final = random
        self._key: Final = (
            config.delegation_token_secret_key or config.delegation_token_master_key or ""
        ).encode()
        self._tokens: Final[dict[str, DelegationToken]] = {}
        self._ids: Final[dict[bytes, str]] = {}
        """The ids of tokens by their secrets, which requests name them by."""
        self._ids_of_users: Final[dict[KafkaPrincipal, dict[str, None]]] = {}
        """The ids of the tokens that a user owns or asked for."""
        self._credentials: Final[dict[str, dict[str, ScramCredential]]] = {}
        """By id and mechanism; made at the first login, as it costs thousands of hashes."""
        # Held while a token is read, changed and written back.
        self._lock: Final = asyncio.Lock()

    @property
    def is_enabled(self) -> bool:
        """Whether the cluster has delegation tokens."""
        return bool(self._key)

    async def start(self) -> None:
        """Read the tokens.

        Raises:
            ZooKeeperError: they could not be read.
        """
        if self.is_enabled:
            await self._store.start(self._put)

    async def close(self) -> None:
        """Stop following changes."""
        await self._store.close()

    def find(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Return the credential by which SCRAM logs in with a token; None if there is no such token."""
        token = self._tokens.get(token_id)
        if token is None or token.has_ended(self._clock.time_ms()):
            return None
        credentials = self._credentials.setdefault(token_id, {})
        credential = credentials.get(mechanism)
        if credential is None:
            # The salt need not be random: the password is, and nobody else has it.
            credential = credentials[mechanism] = ScramCredential.of_password(
                mechanism, password_of(self.secret(token)).encode(), token_id.encode(), ITERATIONS_MIN
            )
        owner = replace(token.owner, token_authenticated=True)
        return TokenCredential(credential, owner, token.expires_at_ms)

    def secret(self, token: DelegationToken) -> bytes:
        """Return a token's HMAC."""
        return token.secret(self._key)

    def get(self, token_id: str) -> DelegationToken | None:
        """Return a token, or None."""
        return self._tokens.get(token_id)

    def tokens_of(self, owners: frozenset[KafkaPrincipal] | None) -> list[DelegationToken]:
        """Return the tokens that some principals own, asked for or may renew; all if `owners` is None.

        Raises:
            ApiError: the cluster has no delegation tokens.
        """
        self._require_enabled()
        return tokens_of(self._tokens.values(), owners)

    async def create(
        self,
        owner: KafkaPrincipal,
        requester: KafkaPrincipal,
        renewers: tuple[KafkaPrincipal, ...],
        max_lifetime_ms: int,
    ) -> DelegationToken:
        """Make a token. A lifetime of 0 or less is the longest that the settings allow.

        Raises:
            ApiError: the cluster has no delegation tokens; or POLICY_VIOLATION, the owner or the requester
                has as many as a user may have, or the names of the renewers are too long together.
            ZooKeeperError: it could not be written.
        """
        self._require_enabled()
        longest_ms = self._config.delegation_token_max_lifetime_ms
        lifetime_ms = longest_ms if max_lifetime_ms <= 0 else min(max_lifetime_ms, longest_ms)
        now_ms = self._clock.time_ms()
        token = DelegationToken(
            uuid_to_text(random_uuid(self._random)),
            owner,
            requester,
            renewers,
            issued_at_ms=now_ms,
            max_at_ms=now_ms + lifetime_ms,
            expires_at_ms=now_ms + min(lifetime_ms, self._config.delegation_token_expiry_time_ms),
        )
        token_bytes = len(token.to_json())
        if token_bytes > TOKEN_BYTES_MAX:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"the delegation token has {len(renewers)} renewers and {token_bytes} bytes, and "
                f"{TOKEN_BYTES_MAX} bytes are allowed: name fewer renewers.",
            )
        async with self._lock:
            for user in dict.fromkeys((owner, requester)):
                await self._require_place(user)
            await self._set(token)
        logger.info("created the delegation token %s for %s", token.token_id, owner)
        return token

    async def renew(self, principal: KafkaPrincipal, secret: bytes, period_ms: int) -> int:
        """Set a token's expiry to `period_ms` from now, the default if below 0; return the new time.

        Raises:
            ApiError: there is no such token, it has ended, or the principal may not renew it.
            ZooKeeperError: it could not be written.
        """
        async with self._lock:
            token = self._find_by_secret(principal, secret)
            now_ms = self._clock.time_ms()
            if token.has_ended(now_ms):
                raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
            period_ms = self._config.delegation_token_expiry_time_ms if period_ms < 0 else period_ms
            return await self._move_end(token, now_ms + period_ms)

    async def expire(self, principal: KafkaPrincipal, secret: bytes, period_ms: int) -> int:
        """Set a token's expiry to `period_ms` from now, or delete it if below 0; return the new time.

        Raises:
            ApiError: there is no such token, it has ended, or the principal may not end it.
            ZooKeeperError: it could not be written.
        """
        async with self._lock:
            token = self._find_by_secret(principal, secret)
            now_ms = self._clock.time_ms()
            if period_ms < 0:
                await self._delete(token)
                return now_ms
            if token.has_ended(now_ms):
                raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
            return await self._move_end(token, now_ms + period_ms)

    async def delete_ended(self) -> None:
        """Delete the tokens that have ended; an error is logged."""
        try:
            async with self._lock:
                now_ms = self._clock.time_ms()
                for token in [each for each in self._tokens.values() if each.has_ended(now_ms)]:
                    await self._delete(token)
        except ZooKeeperError as error:
            logger.warning("ended delegation tokens stay until the next search: %s", error)

    async def delete_of(self, prefix: str) -> None:
        """Delete the tokens whose owners' names begin with a prefix.

        Raises:
            ZooKeeperError: they could not be deleted.
        """
        for token in [each for each in self._tokens.values() if each.owner.name.startswith(prefix)]:
            await self._delete(token)

    def _require_enabled(self) -> None:
        if not self.is_enabled:
            raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)

    async def _require_place(self, user: KafkaPrincipal) -> None:
        """Raise `ApiError` if a user has as many tokens as allowed; tokens that have ended are deleted."""
        highest = self._config.kalda_delegation_token_per_user_max
        if len(self._ids_of_users.get(user, ())) < highest:
            return
        now_ms = self._clock.time_ms()
        for token in [self._tokens[token_id] for token_id in self._ids_of_users.get(user, ())]:
            if token.has_ended(now_ms):
                await self._delete(token)
        count = len(self._ids_of_users.get(user, ()))
        if count >= highest:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"{user} has {count} delegation tokens and may have {highest}: let one expire, or raise "
                "kalda.delegation.token.per.user.max.",
            )

    def _find_by_secret(self, principal: KafkaPrincipal, secret: bytes) -> DelegationToken:
        self._require_enabled()
        token = self._tokens.get(self._ids.get(secret, ""))
        if token is None or not hmac.compare_digest(self.secret(token), secret):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if not token.may_renew(principal):
            raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    async def _move_end(self, token: DelegationToken, end_ms: int) -> int:
        moved = replace(token, expires_at_ms=min(token.max_at_ms, end_ms))
        await self._set(moved)
        logger.info("the delegation token %s of %s has another end", token.token_id, token.owner)
        return moved.expires_at_ms

    async def _set(self, token: DelegationToken) -> None:
        await self._store.set(token)
        self._put(token.token_id, token)

    async def _delete(self, token: DelegationToken) -> None:
        await self._store.delete(token.token_id)
        self._put(token.token_id, None)
        logger.info("deleted the delegation token %s of %s", token.token_id, token.owner)

    def _put(self, token_id: str, token: DelegationToken | None) -> None:
        """Put a token in force, or take it out of force. The cost does not grow with the tokens."""
        known = self._tokens.pop(token_id, None)
        if known is not None:
            for user in {known.owner, known.requester}:
                ids = self._ids_of_users[user]
                del ids[token_id]
                if not ids:
                    del self._ids_of_users[user]
        if token is None:
            if known is not None:
                del self._ids[self.secret(known)]
            self._credentials.pop(token_id, None)
            return
        self._tokens[token_id] = token
        self._ids[self.secret(token)] = token_id
        for user in {token.owner, token.requester}:
            self._ids_of_users.setdefault(user, {})[token_id] = None
