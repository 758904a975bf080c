"""Finds the quotas that bound a client, and keeps how much of them is used: `ClientQuotas`.

The most specific entity that has a quota decides, and it also decides who shares the quota: a quota of a
user is shared by all clients of the user, a quota of a user and a client id belongs to the two, and a default
gives each user or client id a share of its own. The order is Kafka's:

    users/alice/clients/app        users/<default>/clients/app        clients/app
    users/alice/clients/<default>  users/<default>/clients/<default>  clients/<default>
    users/alice                    users/<default>

from the top, column by column.

A share is a token bucket: it fills at the quota's rate and holds a whole window, so that a client may use
that much at once after a pause, and the mean holds from then on (ADR 30).
"""

from collections import Counter
from collections.abc import Iterable
from math import inf
from typing import Final, NamedTuple

from kalda.common.sanitizer import sanitize
from kalda.protocol.namespaces.namespace import prefix_of
from kalda.security.quota.entity import CLIENT_ID_LENGTH_MAX, DEFAULT, QuotaEntity
from kalda.security.quota.rate import SampledRate, TokenBucket, Window
from kalda.security.quota.settings import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

CLIENTS_MAX: Final = 20_000
"""Clients that are remembered, and shares of each quota. Client ids are chosen by peers, so their number must
be bounded."""

ShareKey = tuple[str | None, str | None]
"""The user and the client id that share a quota, either None where the quota does not ask for it."""


class Share:
    """The use of a quota by one user, client id or both."""

    __slots__ = ("_bucket", "key", "limit", "rate", "throttled_seconds")

    def __init__(self, key: ShareKey, limit: float, window: Window) -> None:
        self.key: Final = key
        self.limit = limit
        """The quota, a second."""
        self.rate: Final = SampledRate(window)
        """What was used lately; for metrics."""
        self.throttled_seconds: Final = SampledRate(window)
        self._bucket: Final = TokenBucket(window)

    def use(self, amount: float, now: float, debt_max: float = inf) -> float:
        """Count `amount` and return for how many seconds the client must wait."""
        assert amount >= 0, f"{amount} was used of a quota"
        self.rate.record(amount, now)
        self._bucket.take(amount, self.limit, now, debt_max)
        return self.wait_seconds(now)

    def left(self, now: float) -> float:
        """Return the amount that may be used without a wait; negative if more was used."""
        return self._bucket.left(self.limit, now)

    def wait_seconds(self, now: float) -> float:
        """Return for how many seconds the client must wait."""
        return self._bucket.wait_seconds(self.limit, now)

    def is_idle(self, now: float) -> bool:
        """Whether forgetting the share changes nothing."""
        return self._bucket.is_idle(self.limit, now)


class Client(NamedTuple):
    """The shares that one user with one client id uses up; None where it is not bounded."""

    producer: Share | None
    consumer: Share | None
    request: Share | None
    mutation: Share | None


_QUOTAS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
"""The quotas in the order of the fields of `Client`."""


class ClientQuotas:
    """The quotas of all users and client ids, and their use on this broker."""

    def __init__(self, window: Window, mutation_window: Window) -> None:
        self.window: Final = window
        self._windows: Final = {**dict.fromkeys(_QUOTAS, window), CONTROLLER_MUTATION_RATE: mutation_window}
        self._quotas: Final[dict[QuotaEntity, dict[str, float]]] = {}
        self._entity_counts: Final[Counter[str]] = Counter()
        """How many entities have a quota, by its name."""
        self.namespaces: Final[set[str]] = set()
        """The prefixes of the open namespaces. Client ids of their users get the prefix, and the defaults
        are those of the namespace, which are stored under the prefix alone."""
        self._clients: Final[dict[tuple[str, str], Client]] = {}
        self._shares: Final[dict[str, dict[ShareKey, Share]]] = {name: {} for name in _QUOTAS}

    @property
    def is_empty(self) -> bool:
        """Whether no client is bounded."""
        return not self._quotas

    def has(self, name: str) -> bool:
        """Whether a quota of this kind is set for any entity."""
        return self._entity_counts[name] > 0

    def set(self, entity: QuotaEntity, quotas: dict[str, float]) -> None:
        """Put an entity's quotas in force; none forgets it. What clients used so far stays counted."""
        before = self._quotas.get(entity, {})
        if quotas == before:
            return
        self._entity_counts.subtract(before.keys())
        self._entity_counts.update(quotas.keys())
        assert min(self._entity_counts.values()) >= 0, f"{self._entity_counts} after {entity}"
        if quotas:
            self._quotas[entity] = quotas
        else:
            del self._quotas[entity]
        self._clients.clear()

    def client(self, user: str, client_id: str, now: float) -> Client:
        """Return the quotas of a client."""
        if self.namespaces and (prefix := prefix_of(user)) in self.namespaces:
            client_id = f"{prefix}{client_id}"
        client_id = client_id[:CLIENT_ID_LENGTH_MAX]
        found = self._clients.get((user, client_id))
        if found is None:
            if max(len(self._clients), *map(len, self._shares.values())) >= CLIENTS_MAX:
                self._forget_idle(now)
            shares = (self._share(name, user, client_id) for name in _QUOTAS)
            found = self._clients[user, client_id] = Client(*shares)
        return found

    def shares(self, name: str) -> list[Share]:
        """Return the shares of a quota that are in force and that a client asked for."""
        field = _QUOTAS.index(name)
        found = (client[field] for client in self._clients.values())
        return list({share.key: share for share in found if share is not None}.values())

    def _share(self, name: str, user: str, client_id: str) -> Share | None:
        found = self._resolve(name, user, client_id)
        if found is None:
            return None
        key, limit = found
        shares = self._shares[name]
        share = shares.get(key)
        if share is None:
            share = shares[key] = Share(key, limit, self._windows[name])
        share.limit = limit
        return share

    def _resolve(self, name: str, user: str, client_id: str) -> tuple[ShareKey, float] | None:
        """Return who shares the quota of a client, and its value; None if there is none."""
        prefix = prefix_of(user) if self.namespaces else None
        default = DEFAULT if prefix is None or prefix not in self.namespaces else sanitize(prefix)
        for entity, is_by_user, is_by_client in _candidates(sanitize(user), sanitize(client_id), default):
            limit = self._quotas.get(entity, {}).get(name)
            if limit is not None:
                return (user if is_by_user else None, client_id if is_by_client else None), limit
        return None

    def forget_namespace(self, prefix: str) -> None:
        """Forget the clients of a namespace that is closed."""
        self.namespaces.discard(prefix)
        for client in [client for client in self._clients if client[0].startswith(prefix)]:
            del self._clients[client]
        for shares in self._shares.values():
            for key in [key for key in shares if (key[0] or key[1] or "").startswith(prefix)]:
                del shares[key]

    def _forget_idle(self, now: float) -> None:
        """Forget the clients, and the shares that nobody used lately; the oldest ones if all are in use."""
        self._clients.clear()
        for shares in self._shares.values():
            for key in [key for key, share in shares.items() if share.is_idle(now)]:
                del shares[key]
            for key in list(shares)[: max(0, len(shares) - CLIENTS_MAX // 2)]:
                del shares[key]


def _candidates(user: str, client_id: str, default: str) -> Iterable[tuple[QuotaEntity, bool, bool]]:
    """Return the entities that may bound a client in their order, and who shares a quota of each."""
    for name in (user, default):
        yield QuotaEntity(name, client_id), True, True
        yield QuotaEntity(name, default), True, True
        yield QuotaEntity(name), True, False
    yield QuotaEntity(client_id=client_id), False, True
    yield QuotaEntity(client_id=default), False, True
