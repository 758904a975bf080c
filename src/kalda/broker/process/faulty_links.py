"""Cuts, delays and loses what a broker sends to other members: `Links` and `Endpoint`.

A broker opens its connections through an `Endpoint`, which refuses those that a fault forbids and closes
those that a new fault cuts. Clients do not use it, so that a fault of a link never affects them.
"""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Literal, Protocol, TypeAlias

from kalda.common.api_keys import ApiKey
from kalda.common.overriding import override
from kalda.faults import FaultPlan, LinkEffect, LinkFault
from kalda.faults.model import ALL
from kalda.net.client.stream import StreamSocket, connect_stream
from kalda.net.peer.dialer import TcpDialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.schema import Message
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.security.tls.client import TlsClient

Member: TypeAlias = int | Literal["coordinator"]
"""A broker's id, or the coordination server."""

COORDINATOR: Final[Literal["coordinator"]] = "coordinator"


class Links:
    """The faults of links that are in force; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._faults: Final[list[LinkFault]] = []

    def member_at(self, host: str, port: int) -> Member | None:
        """Return the member that listens at an address, or None if it is not known."""
        raise NotImplementedError

    def close_cut(self) -> None:
        """Close the connections between members that cannot reach each other."""
        raise NotImplementedError

    def add_fault(self, fault: LinkFault) -> None:
        """Put a fault of a link in force; connections that it cuts are closed."""
        with self._lock:
            self._faults.append(fault)
        if fault.effect is LinkEffect.CUT:
            self.close_cut()

    def remove_fault(self, fault: LinkFault) -> None:
        """End a fault, if it is in force."""
        with self._lock:
            if fault in self._faults:
                self._faults.remove(fault)

    def is_cut(self, one: Member, other: Member) -> bool:
        """Return whether a fault keeps a member from connecting to another."""
        return any(each.effect is LinkEffect.CUT for each in self.faults(one, other))

    def faults(self, one: Member, other: Member) -> list[LinkFault]:
        """Return the faults of the link from one member to another."""
        with self._lock:
            return [
                each
                for each in self._faults
                if _connects(each.one, each.other, one, other)
                or (not each.is_one_way and _connects(each.other, each.one, one, other))
            ]


class OwnLinks(Links):
    """The links of the broker of this process to other members."""

    def __init__(self) -> None:
        super().__init__()
        self.endpoint: Final = Endpoint(self)
        # The faults begin on the broker's own loop.
        self.endpoint.hold()
        self._find: Callable[[str, int], int | None] = lambda host, port: None
        self._known: Final[dict[tuple[str, int], int]] = {}
        """The addresses found so far: those of a broker whose session has expired count on."""

    def join(self, broker_id: int, find: Callable[[str, int], int | None]) -> None:
        """Start as a broker; `find` returns which broker has an address. Before, no fault is in force."""
        self.endpoint.broker_id = broker_id
        self._find = find

    @override
    def member_at(self, host: str, port: int) -> Member | None:
        found = self._find(host, port)
        if found is not None:
            self._known[host, port] = found
        return self._known.get((host, port))

    @override
    def close_cut(self) -> None:
        self.endpoint.close_cut()


def _connects(first: int | str, second: int | str, one: Member, other: Member) -> bool:
    return one != other and _means(first, one) and _means(second, other)


def _means(named: int | str, member: Member) -> bool:
    """Return whether a fault names a member; `ALL` stands for every broker."""
    return named == member or (named == ALL and member != COORDINATOR)


class LinkedConnection(PeerConnection):
    """A connection to another broker whose requests meet the faults of a link."""

    link: "Callable[[], list[LinkFault]]"
    """Returns the faults that are in force."""

    @override
    async def request(
        self, request: Message, *, timeout_seconds: float, version: int | None = None
    ) -> Message:
        await self._meet_faults()
        return await super().request(request, timeout_seconds=timeout_seconds, version=version)

    @override
    async def request_raw(
        self, api_key: ApiKey, version: int, body: bytes | list[bytes], *, timeout_seconds: float
    ) -> memoryview:
        await self._meet_faults()
        return await super().request_raw(api_key, version, body, timeout_seconds=timeout_seconds)

    async def _meet_faults(self) -> None:
        """Wait as long as the link delays a request; close the connection if the link is cut or loses it.

        Raises:
            ConnectionError: it was lost.
        """
        for fault in self.link():
            if fault.effect is LinkEffect.CUT:
                self.close()
                raise ConnectionResetError(f"a fault cuts the link: {FaultPlan((fault,))}")
            if fault.effect is LinkEffect.DELAY:
                await asyncio.sleep((fault.value or 0) / 1000)
            if fault.effect is LinkEffect.LOSS and SYSTEM_RANDOM.random() * 100 < (fault.value or 0):
                self.close()
                raise ConnectionResetError(f"a fault lost a request: {FaultPlan((fault,))}")


class CuttableConnection(Protocol):
    """A connection that this module does not open."""

    def cut(self) -> None:
        """Let all calls fail, from any thread."""
        ...


class Endpoint:
    """Opens the connections of one broker: to brokers as its `Dialer`, and to the coordination server."""

    def __init__(self, links: Links, broker_id: int = -1) -> None:
        self._links: Final = links
        self.broker_id = broker_id
        self._dialer: Final = TcpDialer(connection_class=LinkedConnection)
        self._lock: Final = threading.Lock()
        self._is_gone = False
        self._is_held = False
        self._peers: dict[PeerConnection, tuple[str, int, asyncio.AbstractEventLoop]] = {}
        """By connection, the address, whose member may become known later, and the loop."""
        self._zookeeper: list[StreamSocket] = []
        self._etcd: Final[set[CuttableConnection]] = set()

    async def dial(self, host: str, port: int, options: DialOptions) -> PeerConnection:
        """Open a connection to another broker.

        Raises:
            ConnectionError: it could not be opened, or a partition forbids it.
        """
        self._check(self._links.member_at(host, port), host, port)
        connection = await self._dialer.dial(host, port, options)
        if isinstance(connection, LinkedConnection):
            connection.link = partial(self._faults_to, host, port)
        with self._lock:
            self._peers = {peer: known for peer, known in self._peers.items() if not peer.is_closed}
            self._peers[connection] = (host, port, asyncio.get_running_loop())
        try:
            # A partition may have come meanwhile.
            self._check(self._links.member_at(host, port), host, port)
        except ConnectionError:
            connection.close()
            raise
        return connection

    async def connect(
        self, host: str, port: int, tls: TlsClient | None, *, timeout_seconds: float
    ) -> StreamSocket:
        """Open a connection to the coordination server, as `connect_stream` does.

        Raises:
            OSError: it could not be opened, or a partition forbids it.
        """
        self._check(COORDINATOR, host, port)
        connection = await connect_stream(host, port, tls, timeout_seconds=timeout_seconds)
        with self._lock:
            self._zookeeper = [each for each in self._zookeeper if each.fileno() >= 0]
            self._zookeeper.append(connection)
        try:
            self._check(COORDINATOR, host, port)
        except ConnectionError:
            connection.close()
            raise
        return connection

    @property
    def is_coordinator_cut(self) -> bool:
        """Whether a fault keeps the broker from the coordination server."""
        return self._is_cut(COORDINATOR)

    def add_etcd(self, connection: CuttableConnection) -> None:
        """Cut a connection to etcd as well from now on."""
        with self._lock:
            self._etcd.add(connection)

    def remove_etcd(self, connection: CuttableConnection) -> None:
        """Forget a connection to etcd that is closed."""
        with self._lock:
            self._etcd.discard(connection)

    def close_cut(self) -> None:
        """Close the connections that are cut, from any thread; a paused broker closes them later."""
        with self._lock:
            known = list(self._peers.items())
            zookeeper = list(self._zookeeper)
            etcd = list(self._etcd)
        peers = [
            (peer, loop)
            for peer, (host, port, loop) in known
            if self._is_cut(self._links.member_at(host, port))
        ]
        if self.is_coordinator_cut:
            for connection in zookeeper:
                _cut(connection)
            for each in etcd:
                each.cut()
        for peer, loop in peers:
            _close_on(loop, peer, wait=not self._is_held)

    def hold(self) -> None:
        """Do not wait for the broker's loop, which is paused."""
        self._is_held = True

    def release(self) -> None:
        """The broker's loop runs again."""
        self._is_held = False

    def leave(self) -> None:
        """Close all connections and refuse new ones; runs on the loop of a broker that was killed."""
        self._is_gone = True
        with self._lock:
            peers, self._peers = list(self._peers), {}
            zookeeper, self._zookeeper = self._zookeeper, []
        for connection in zookeeper:
            _cut(connection)
        for peer in peers:
            peer.close()

    def _check(self, member: Member | None, host: str, port: int) -> None:
        if self._is_gone:
            raise ConnectionRefusedError(f"{host}:{port}: broker {self.broker_id} was killed")
        if self._is_cut(member):
            raise ConnectionRefusedError(
                f"{host}:{port}: a partition separates {self.broker_id} and {member}"
            )

    def _faults_to(self, host: str, port: int) -> list[LinkFault]:
        member = self._links.member_at(host, port)
        return self._links.faults(self.broker_id, -1 if member is None else member)

    def _is_cut(self, member: Member | None) -> bool:
        return member is not None and self._links.is_cut(self.broker_id, member)


def _cut(connection: StreamSocket) -> None:
    """Shut a connection down, from any thread; its owner gets an error and closes it."""
    # By another descriptor: the owner may close its own meanwhile.
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.shutdown(socket.SHUT_RDWR)


def _close_on(loop: asyncio.AbstractEventLoop, peer: PeerConnection, *, wait: bool) -> None:
    done = threading.Event()

    def close() -> None:
        peer.close()
        done.set()

    try:
        loop.call_soon_threadsafe(close)
    except RuntimeError:
        # The broker has ended, and its connections with it.
        return
    if wait:
        done.wait(_CLOSE_SECONDS_MAX)


_CLOSE_SECONDS_MAX: Final = 5.0
"""How long a partition waits for a busy broker to close its connections."""
