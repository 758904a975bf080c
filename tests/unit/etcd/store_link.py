"""Connections to a store of the simulation, without a network, which lose what a test says."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from typing import Final

from kalda.etcd import messages
from kalda.etcd.client import EtcdClient
from kalda.etcd.link import CompactedError, EtcdLink, LeaseGoneError, LinkLostError, RefusedError
from kalda.etcd.messages import TxnResponse, WatchResponse
from kalda.simulation.etcd import wire
from kalda.simulation.etcd.store import EtcdStore, StoreRefusedError


class StoreServer:
    """A store whose next transactions have a fate, by default that of being carried out and answered."""

    def __init__(self) -> None:
        self.store: Final = EtcdStore()
        self.fates: Final[list[str]] = []
        """What happens to the next transactions with writes: ``done``, as to all others; ``lost done`` has an
        effect but no response, ``lost`` has neither; ``reports`` lets changes be reported."""
        self.loses: Callable[[wire.Txn], bool] = lambda _: False
        """Whether a transaction is lost on its way there."""
        self.before_start: Callable[[], None] = lambda: None
        """Called before the first transaction of a connection."""
        self.changed: Final = asyncio.Event()
        self.is_reporting: Final = asyncio.Event()
        """Whether the streams of changes report."""
        self.is_reporting.set()

    async def session(self) -> EtcdClient:
        """Open a session."""
        return await EtcdClient.connect(
            "store:1",
            session_timeout_ms=60_000,
            connection_timeout_ms=60_000,
            open_link=lambda endpoint, _: StoreLink(endpoint, self),
            random=random.Random(1),
        )


class StoreLink:
    """A connection to the only server."""

    def __init__(self, endpoint: str, server: StoreServer) -> None:
        self.endpoint: Final = endpoint
        self._server: Final = server
        self._is_new = True

    async def close(self) -> None:
        """Do nothing."""

    async def log_in(self) -> None:
        """Do nothing."""

    async def txn(self, request: bytes) -> TxnResponse:
        """Run a transaction, or lose it."""
        server = self._server
        if self._is_new:
            self._is_new = False
            server.before_start()
        await asyncio.sleep(0)
        parsed = wire.read_txn(request)
        fate = "done"
        if server.fates and any(not isinstance(each, wire.Range) for each in parsed.success):
            fate = server.fates.pop(0)
        if fate == "reports":
            server.is_reporting.set()
        if fate == "lost" or server.loses(parsed):
            raise LinkLostError("lost on the way there")
        try:
            response = messages.read_txn(server.store.txn(parsed))
        except StoreRefusedError as error:
            self._notify()
            if "has been compacted" in error.details:
                raise CompactedError(error.details) from None
            if "lease not found" in error.details:
                raise LeaseGoneError(error.details) from None
            raise RefusedError(error.code, error.details) from None
        self._notify()
        if fate == "lost done":
            raise LinkLostError("lost on the way back")
        return response

    async def grant(self, ttl_seconds: int) -> tuple[int, int]:
        """Get a lease."""
        return self._server.store.grant(ttl_seconds, 0.0), ttl_seconds

    async def revoke(self, lease: int) -> None:
        """End a lease."""
        self._server.store.revoke(lease)

    async def keep_alive(self, lease: int, interval_seconds: float, silence_seconds: float) -> None:
        """Wait until cancelled: the store's time stands still."""
        await asyncio.Event().wait()

    async def watch(self, key: bytes, end: bytes, start_revision: int) -> AsyncGenerator[WatchResponse]:
        """Report the changes from a revision on."""
        server = self._server
        if start_revision <= server.store.compacted:
            raise CompactedError("compacted")
        yield WatchResponse(created=True)
        while True:
            await server.is_reporting.wait()
            server.changed.clear()
            found = [
                event
                for _, events in server.store.changes_from(start_revision)
                for event in events
                if key <= event.kv.key < end
            ]
            start_revision = server.store.revision + 1
            if found:
                yield WatchResponse(events=found)
            await server.changed.wait()

    def _notify(self) -> None:
        self._server.changed.set()


_: type[EtcdLink] = StoreLink
