"""Implements `EtcdLink`, the client's side of a connection to etcd, over the simulated network."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from kalda.etcd import messages
from kalda.etcd.link import CompactedError, EtcdLink, LeaseGoneError, LinkLostError, OpenLink, RefusedError
from kalda.etcd.messages import TxnResponse, WatchResponse
from kalda.runtime.network import Network, Stream, send_all
from kalda.simulation.etcd.server import FRAME, Kind, read_frame

_END: Final = (0, b"")
"""What a call receives when its connection is gone."""


def simulated_links(network: Network) -> OpenLink:
    """Return a function that opens connections over a simulated network."""

    def open_link(endpoint: str, timeout_seconds: float) -> EtcdLink:
        return SimulatedLink(endpoint, timeout_seconds, network)

    return open_link


class SimulatedLink:
    """A connection to one server; it connects at the first call, as gRPC does."""

    def __init__(self, endpoint: str, timeout_seconds: float, network: Network) -> None:
        self._endpoint: Final = endpoint
        self._timeout: Final = timeout_seconds
        self._network: Final = network
        self._stream: Stream | None = None
        self._reading: asyncio.Task[None] | None = None
        self._connecting: Final = asyncio.Lock()
        self._sending: Final = asyncio.Lock()
        self._calls: Final[dict[int, asyncio.Queue[tuple[int, bytes]]]] = {}
        self._count = 0
        self._is_lost = False

    @property
    def endpoint(self) -> str:
        """The server."""
        return self._endpoint

    async def close(self) -> None:
        """Close the connection."""
        self._lose()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        if self._stream is not None:
            self._stream.close()

    async def log_in(self) -> None:
        """Do nothing: there are no users."""

    async def txn(self, request: bytes) -> TxnResponse:
        """Run a transaction."""
        return messages.read_txn(await self._call(Kind.TXN, request))

    async def grant(self, ttl_seconds: int) -> tuple[int, int]:
        """Get a lease."""
        return messages.read_lease_grant(await self._call(Kind.GRANT, messages.lease_grant(ttl_seconds)))

    async def revoke(self, lease: int) -> None:
        """End a lease."""
        try:
            await self._call(Kind.REVOKE, messages.lease_id(lease))
        except LeaseGoneError:
            return

    async def keep_alive(self, lease: int, interval_seconds: float, silence_seconds: float) -> None:
        """Keep a lease alive until it is over."""
        while True:
            try:
                async with asyncio.timeout(silence_seconds):
                    response = await self._call(Kind.KEEP_ALIVE, messages.lease_id(lease))
            except TimeoutError:
                raise LinkLostError(f"{self._endpoint} does not answer keep-alives") from None
            if messages.read_lease_grant(response)[1] <= 0:
                raise LeaseGoneError(f"lease {lease:#x} is over")
            await asyncio.sleep(interval_seconds)

    async def watch(self, key: bytes, end: bytes, start_revision: int) -> AsyncGenerator[WatchResponse]:
        """Watch the keys in [key, end) from a revision on."""
        number, queue = self._new_call()
        try:
            async with asyncio.timeout(self._timeout):
                await self._send(number, Kind.WATCH, messages.watch_create(key, end, start_revision))
                body = self._result(await queue.get())
            while True:
                response = messages.read_watch(body)
                if response.compact_revision:
                    raise CompactedError(f"revision {start_revision} of etcd is compacted")
                yield response
                body = self._result(await queue.get())
        except TimeoutError:
            raise LinkLostError(f"{self._endpoint} does not answer a watch") from None
        finally:
            del self._calls[number]

    async def _call(self, kind: Kind, body: bytes) -> bytes:
        number, queue = self._new_call()
        try:
            async with asyncio.timeout(self._timeout):
                await self._send(number, kind, body)
                return self._result(await queue.get())
        except TimeoutError:
            raise LinkLostError(f"{self._endpoint} does not answer") from None
        finally:
            del self._calls[number]

    def _new_call(self) -> tuple[int, asyncio.Queue[tuple[int, bytes]]]:
        self._count += 1
        queue: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        self._calls[self._count] = queue
        if self._is_lost:
            queue.put_nowait(_END)
        return self._count, queue

    def _result(self, received: tuple[int, bytes]) -> bytes:
        kind, body = received
        if kind == Kind.RESULT:
            return body
        if kind != Kind.ERROR:
            raise LinkLostError(f"{self._endpoint} is gone")
        code, details = body.decode().split("\n", 1)
        if "requested lease not found" in details:
            raise LeaseGoneError(details)
        if "has been compacted" in details:
            raise CompactedError(details)
        if code == "UNAVAILABLE":
            raise LinkLostError(f"{self._endpoint}: {details}")
        raise RefusedError(code, details)

    async def _send(self, number: int, kind: Kind, body: bytes) -> None:
        stream = await self._connected()
        async with self._sending:
            try:
                await send_all(stream, FRAME.pack(len(body), number, kind) + body)
            except OSError as error:
                raise LinkLostError(f"{self._endpoint}: {error}") from None

    async def _connected(self) -> Stream:
        async with self._connecting:
            if self._is_lost:
                raise LinkLostError(f"{self._endpoint} is gone")
            if self._stream is None:
                host, _, port = self._endpoint.rpartition(":")
                try:
                    self._stream = await self._network.connect(host, int(port), timeout_seconds=self._timeout)
                except OSError as error:
                    raise LinkLostError(f"{self._endpoint}: {error}") from None
                self._reading = asyncio.create_task(self._read(self._stream), name="etcd link")
            return self._stream

    async def _read(self, stream: Stream) -> None:
        received = bytearray()
        try:
            while True:
                number, kind, body = await read_frame(stream, received)
                if number in self._calls:
                    self._calls[number].put_nowait((kind, body))
        except (OSError, EOFError):
            self._lose()

    def _lose(self) -> None:
        self._is_lost = True
        for queue in self._calls.values():
            queue.put_nowait(_END)
