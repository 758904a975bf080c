"""Defines the port between the session and one etcd server: calls and errors, without gRPC.

`kalda.etcd.connection` fills it over gRPC; a simulation has a network of its own.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Final, Protocol, TypeAlias

from kalda.etcd.messages import TxnResponse, WatchResponse


class LinkLostError(Exception):
    """The connection is of no more use; a request without a response may or may not have taken effect."""


class RefusedError(Exception):
    """etcd refused a request, which took no effect; `code` is the name of gRPC's status."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(details)
        self.code: Final = code
        self.details: Final = details


class LeaseGoneError(Exception):
    """There is no such lease: the session is over."""


class CompactedError(Exception):
    """etcd has compacted the revision that was asked for."""


class LoginRefusedError(Exception):
    """etcd does not take the user and the password, or the certificate."""


class EtcdLink(Protocol):
    """A connection to one server, which is not used after an error.

    Every method raises `LinkLostError` if the connection fails or a response does not come in time, and
    `RefusedError` if etcd refuses the request.
    """

    @property
    def endpoint(self) -> str:
        """The server, as ``host:port``."""
        ...

    async def close(self) -> None:
        """Close the connection; outstanding calls fail."""
        ...

    async def log_in(self) -> None:
        """Get a token, if there is a user.

        Raises:
            LoginRefusedError: etcd does not take it.
        """
        ...

    async def txn(self, request: bytes) -> TxnResponse:
        """Run a transaction.

        Raises:
            LeaseGoneError: it puts a key under a lease that is over; nothing was changed.
            CompactedError: it reads at a revision that is gone.
        """
        ...

    async def grant(self, ttl_seconds: int) -> tuple[int, int]:
        """Get a lease: its id and the seconds that it lasts without a sign of life."""
        ...

    async def revoke(self, lease: int) -> None:
        """End a lease and delete its keys; does nothing if it is over."""
        ...

    async def keep_alive(self, lease: int, interval_seconds: float, silence_seconds: float) -> None:
        """Keep a lease alive until it is over.

        Raises:
            LeaseGoneError: it is over.
            LinkLostError: the server was silent for `silence_seconds`.
        """
        ...

    def watch(self, key: bytes, end: bytes, start_revision: int) -> AsyncGenerator[WatchResponse]:
        """Watch the keys in [key, end) from a revision on; the first item says that the watch is set.

        Raises:
            CompactedError: the revisions from `start_revision` on are not there any more.
        """
        ...


OpenLink: TypeAlias = Callable[[str, float], EtcdLink]
"""Makes the connection to an endpoint, whose calls may take so many seconds. It does not connect yet."""
