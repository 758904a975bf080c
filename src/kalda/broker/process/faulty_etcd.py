"""Cuts the connections of a broker to etcd, which are gRPC's own: `cuttable_links`."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import Final, TypeVar

from kalda.broker.process.faulty_links import Endpoint
from kalda.etcd.link import EtcdLink, LinkLostError, OpenLink
from kalda.etcd.messages import TxnResponse, WatchResponse

T = TypeVar("T")


def cuttable_links(open_link: OpenLink, endpoint: Endpoint) -> OpenLink:
    """Return a function that opens connections which fail when a fault cuts the broker off from etcd."""
    return lambda server, timeout_seconds: CuttableLink(open_link(server, timeout_seconds), endpoint)


class CuttableLink:
    """A connection whose calls fail from the moment of a cut on; implements `EtcdLink`."""

    def __init__(self, link: EtcdLink, endpoint: Endpoint) -> None:
        self._link: Final = link
        self._endpoint: Final = endpoint
        self._cut: Final = asyncio.get_running_loop().create_future()
        endpoint.add_etcd(self)

    @property
    def endpoint(self) -> str:
        """The server, as ``host:port``."""
        return self._link.endpoint

    def cut(self) -> None:
        """Let all calls fail, from any thread."""
        self._cut.get_loop().call_soon_threadsafe(self._fail)

    async def close(self) -> None:
        """Close the connection; outstanding calls fail."""
        self._endpoint.remove_etcd(self)
        await self._link.close()

    async def log_in(self) -> None:
        """Get a token, if there is a user."""
        await self._unless_cut(self._link.log_in())

    async def txn(self, request: bytes) -> TxnResponse:
        """Run a transaction."""
        return await self._unless_cut(self._link.txn(request))

    async def grant(self, ttl_seconds: int) -> tuple[int, int]:
        """Get a lease."""
        return await self._unless_cut(self._link.grant(ttl_seconds))

    async def revoke(self, lease: int) -> None:
        """End a lease."""
        await self._unless_cut(self._link.revoke(lease))

    async def keep_alive(self, lease: int, interval_seconds: float, silence_seconds: float) -> None:
        """Keep a lease alive until it is over."""
        await self._unless_cut(self._link.keep_alive(lease, interval_seconds, silence_seconds))

    async def watch(self, key: bytes, end: bytes, start_revision: int) -> AsyncGenerator[WatchResponse]:
        """Watch the keys in [key, end) from a revision on."""
        stream = self._link.watch(key, end, start_revision)
        try:
            while True:
                try:
                    response = await self._unless_cut(anext(stream))
                except StopAsyncIteration:
                    return
                yield response
        finally:
            await stream.aclose()

    def _fail(self) -> None:
        if not self._cut.done():
            self._cut.set_result(None)

    async def _unless_cut(self, call: Awaitable[T]) -> T:
        """Return the result of a call.

        Raises:
            LinkLostError: a fault cut the connection before the call ended; it may have taken effect.
        """
        task = asyncio.ensure_future(call)
        try:
            if not self._endpoint.is_coordinator_cut:
                await asyncio.wait((task, self._cut), return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        raise LinkLostError(f"{self.endpoint}: a fault separates the broker and etcd")
