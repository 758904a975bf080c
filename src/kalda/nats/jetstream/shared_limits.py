"""Bounds what all streams, consumers and clients of a broker have together: `SharedLimit`.

Limits of one stream or consumer alone bound nothing: a client may make a thousand streams.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

_MIB: Final = 1024 * 1024


class SharedLimit:
    """An amount that many users share; each may have a part of what is free.

    So something is always left for users that come later: with a total of 100 and two parts, one user has 33
    at most; of ten users that take all they get, each has 8, and 17 are free.
    """

    __slots__ = ("_parts", "_total", "used")

    def __init__(self, total: int, parts: int) -> None:
        """A user may have one of `parts` parts of what is free."""
        self._total: Final = total
        self._parts: Final = parts
        self.used = 0

    def has_room(self, own: int, more: int = 1) -> bool:
        """Return whether a user that has `own` may have some more."""
        return (own + more) * self._parts <= self._total - self.used

    def take(self, amount: int) -> None:
        """Count an amount taken by a user, even above the limit, because restored state must fit."""
        self.used += amount

    def give_back(self, amount: int) -> None:
        """Count an amount that a user has released."""
        self.used -= amount
        assert self.used >= 0, f"{-self.used} more given back than taken"


class ClientShares:
    """A shared limit by clients, which are known while they have something."""

    def __init__(self, total: int, parts: int) -> None:
        """A client may have one of `parts` parts of what is free."""
        self.limit: Final = SharedLimit(total, parts)
        self._own: Final[dict[Hashable, int]] = {}

    def take(self, client: Hashable, amount: int) -> bool:
        """Count an amount taken by a client; return False if the limit has no room for it."""
        own = self._own.get(client, 0)
        if not self.limit.has_room(own, amount):
            return False
        self._own[client] = own + amount
        self.limit.take(amount)
        return True

    def give_back(self, client: Hashable, amount: int) -> None:
        """Count an amount that a client has released."""
        own = self._own[client] - amount
        if own:
            self._own[client] = own
        else:
            del self._own[client]
        self.limit.give_back(amount)


def _consumers() -> SharedLimit:
    return SharedLimit(20_000, 8)


def _requests() -> ClientShares:
    return ClientShares(64 * _MIB, 2)


def _unacknowledged() -> SharedLimit:
    return SharedLimit(1_000_000, 16)


def _ids() -> SharedLimit:
    return SharedLimit(2_000_000, 2)


def _bytes() -> SharedLimit:
    return SharedLimit(256 * _MIB, 4)


def _answers() -> SharedLimit:
    return SharedLimit(64 * _MIB, 4)


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """The limits that all streams, consumers and clients of one broker share."""

    consumers: SharedLimit = field(default_factory=_consumers)
    """Consumers of all streams, some 5 KiB each, by their weight; the users are streams."""

    requests: ClientShares = field(default_factory=_requests)
    """The memory of waiting pull requests, in bytes: some 150,000 requests, a third of them of one client."""

    unacknowledged: SharedLimit = field(default_factory=_unacknowledged)
    """Messages that wait for acknowledgements, some 350 bytes each; the users are consumers."""

    ids: SharedLimit = field(default_factory=_ids)
    """Message ids within the duplicate windows, some 200 bytes each; the users are streams."""

    queued: SharedLimit = field(default_factory=_bytes)
    """Bytes of messages that wait to be added or replicated; the users are streams."""

    cached: SharedLimit = field(default_factory=_bytes)
    """Bytes of messages in memory for consumers that read the last ones; the users are streams."""

    answers: SharedLimit = field(default_factory=_answers)
    """Bytes of acknowledgements that are answered once they are stored; the users are consumers."""
