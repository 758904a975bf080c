"""Finds the quotas that bound a client, and keeps how much of them is used: `ClientQuotas`.

The most specific entity that has a quota decides, and it also decides who shares the quota: a quota of a
user is shared by all clients of the user, a quota of a user and a client id belongs to the two, and a default
gives each user or client id a share of its own. The order is Kafka's:

    users/alice/clients/app        users/<default>/clients/app        clients/app
    users/alice/clients/<default>  users/<default>/clients/<default>  clients/<default>
    users/alice                    users/<default>

from the top, column by column.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from kalda.common.sanitizer import sanitize
from kalda.security.quota.entity import DEFAULT, QuotaEntity
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
    """What one user, client id or both used of a rate."""

    __slots__ = ("key", "limit", "rate", "throttled_seconds")

    def __init__(self, key: ShareKey, limit: float, window: Window) -> None:
        self.key: Final = key
        self.limit = limit
        self.rate: Final = SampledRate(window)
        self.throttled_seconds: Final = SampledRate(window)

    def record(self, value: float, now: float) -> float:
        """Count `value` and return for how many seconds the client must wait."""
        self.rate.record(value, now)
        return self.rate.excess_seconds(self.limit, now)

    def is_idle(self, now: float) -> bool:
        """Whether forgetting the share changes nothing."""
        return self.rate.is_idle(now)


class MutationShare:
    """What one user, client id or both used of a budget of changes."""

    __slots__ = ("bucket", "key", "limit", "throttled_seconds")

    def __init__(self, key: ShareKey, limit: float, window: Window) -> None:
        self.key: Final = key
        self.limit = limit
        self.bucket: Final = TokenBucket(window)
        self.throttled_seconds: Final = SampledRate(window)

    def wait_seconds(self, now: float) -> float:
        """Return for how many seconds the budget is overdrawn."""
        return self.bucket.wait_seconds(self.limit, now)

    def take(self, mutations: float, now: float) -> float:
        """Use up the budget and return for how many seconds the client must wait."""
        self.bucket.take(mutations, self.limit, now)
        return self.bucket.wait_seconds(self.limit, now)

    def is_idle(self, now: float) -> bool:
        """Whether forgetting the share changes nothing."""
        return self.bucket.is_idle(self.limit, now)


S = TypeVar("S", Share, MutationShare)


class Client:
    """The shares that one user with one client id uses up; None where it is not bounded."""

    __slots__ = ("consumer", "mutation", "producer", "request")

    def __init__(
        self,
        producer: Share | None,
        consumer: Share | None,
        request: Share | None,
        mutation: MutationShare | None,
    ) -> None:
        self.producer: Final = producer
        self.consumer: Final = consumer
        self.request: Final = request
        self.mutation: Final = mutation


_FIELDS: Final = {
    PRODUCER_BYTE_RATE: "producer",
    CONSUMER_BYTE_RATE: "consumer",
    REQUEST_PERCENTAGE: "request",
    CONTROLLER_MUTATION_RATE: "mutation",
}
"""The field of `Client` for each quota."""


class ClientQuotas:
    """The quotas of all users and client ids, and their use on this broker."""

    def __init__(self, window: Window, mutation_window: Window) -> None:
        self.window: Final = window
        self._mutation_window: Final = mutation_window
        self._quotas: Final[dict[QuotaEntity, dict[str, float]]] = {}
        self._entity_counts: Final[Counter[str]] = Counter()
        """How many entities have a quota, by its name."""
        self._clients: Final[dict[tuple[str, str], Client]] = {}
        self._rates: Final[dict[str, dict[ShareKey, Share]]] = {
            PRODUCER_BYTE_RATE: {},
            CONSUMER_BYTE_RATE: {},
            REQUEST_PERCENTAGE: {},
        }
        self._mutations: Final[dict[ShareKey, MutationShare]] = {}

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
        if quotas:
            self._quotas[entity] = quotas
        else:
            del self._quotas[entity]
        self._clients.clear()

    def client(self, user: str, client_id: str, now: float) -> Client:
        """Return what bounds a client."""
        found = self._clients.get((user, client_id))
        if found is None:
            counts = (len(self._clients), len(self._mutations), *map(len, self._rates.values()))
            if max(counts) >= CLIENTS_MAX:
                self._forget_idle(now)
            found = self._clients[user, client_id] = Client(
                self._rate_share(PRODUCER_BYTE_RATE, user, client_id),
                self._rate_share(CONSUMER_BYTE_RATE, user, client_id),
                self._rate_share(REQUEST_PERCENTAGE, user, client_id),
                self._mutation_share(user, client_id),
            )
        return found

    def shares(self, name: str) -> list[Share | MutationShare]:
        """Return the shares of a quota that are in force and that a client asked for."""
        field = _FIELDS[name]
        found = (getattr(client, field) for client in self._clients.values())
        return list({share.key: share for share in found if share is not None}.values())

    # Resolution.

    def _rate_share(self, name: str, user: str, client_id: str) -> Share | None:
        return self._share(name, user, client_id, self._rates[name], self.window, Share)

    def _mutation_share(self, user: str, client_id: str) -> MutationShare | None:
        name, window = CONTROLLER_MUTATION_RATE, self._mutation_window
        return self._share(name, user, client_id, self._mutations, window, MutationShare)

    def _share(
        self,
        name: str,
        user: str,
        client_id: str,
        shares: dict[ShareKey, S],
        window: Window,
        make: Callable[[ShareKey, float, Window], S],
    ) -> S | None:
        found = self._resolve(name, user, client_id)
        if found is None:
            return None
        key, limit = found
        share = shares.get(key)
        if share is None:
            share = shares[key] = make(key, limit, window)
        share.limit = limit
        return share

    def _resolve(self, name: str, user: str, client_id: str) -> tuple[ShareKey, float] | None:
        """Return who shares the quota of a client, and its value; None if there is none."""
        for entity, is_by_user, is_by_client in _candidates(sanitize(user), sanitize(client_id)):
            limit = self._quotas.get(entity, {}).get(name)
            if limit is not None:
                return (user if is_by_user else None, client_id if is_by_client else None), limit
        return None

    def _forget_idle(self, now: float) -> None:
        """Forget the clients, and the shares that nobody used lately; the oldest ones if all are in use."""
        self._clients.clear()
        for shares in self._rates.values():
            _prune(shares, lambda share: share.is_idle(now))
        _prune(self._mutations, lambda share: share.is_idle(now))


def _candidates(user: str, client_id: str) -> Iterable[tuple[QuotaEntity, bool, bool]]:
    """Return the entities that may bound a client in their order, and who shares a quota of each."""
    for name in (user, DEFAULT):
        yield QuotaEntity(name, client_id), True, True
        yield QuotaEntity(name, DEFAULT), True, True
        yield QuotaEntity(name), True, False
    yield QuotaEntity(client_id=client_id), False, True
    yield QuotaEntity(client_id=DEFAULT), False, True


def _prune(shares: dict[ShareKey, S], is_idle: Callable[[S], bool]) -> None:
    for key in [key for key, share in shares.items() if is_idle(share)]:
        del shares[key]
    for key in list(shares)[: max(0, len(shares) - CLIENTS_MAX // 2)]:
        del shares[key]
