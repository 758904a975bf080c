"""Simulates network partitions, faults of links and paused members in an in-process cluster.

Members talk over real loopback sockets, which they open through an `Endpoint`. It refuses a connection that a
partition forbids, and closes the connections that a new partition cuts.
Clients do not use it, so a partition never affects them.
"""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final, Literal, TypeAlias

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


class Network:
    """The members' addresses and the current partition; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._members: Final[dict[int, Member]] = {}
        self._cuts: Final[set[frozenset[Member]]] = set()
        self._faults: Final[list[LinkFault]] = []
        self._endpoints: Final[dict[int, Endpoint]] = {}

    def add(self, member: Member, port: int) -> None:
        """Register the port of a member."""
        self._members[port] = member

    def endpoint(self, broker_id: int) -> "Endpoint":
        """Return a new endpoint for a broker that starts."""
        endpoint = Endpoint(self, broker_id)
        self._endpoints[broker_id] = endpoint
        return endpoint

    def member_at(self, port: int) -> Member | None:
        """Return the member that listens at a port, or None."""
        return self._members.get(port)

    def partition(self, groups: Sequence[Collection[Member]]) -> None:
        """Cut each pair of members in different groups, and heal all earlier cuts.

        A member in no group reaches all others.
        """
        with self._lock:
            self._cuts.clear()
            for index, group in enumerate(groups):
                for others in groups[index + 1 :]:
                    self._cuts.update(frozenset((one, other)) for one in group for other in others)
        self._close_cut()

    def _close_cut(self) -> None:
        for broker_id, endpoint in list(self._endpoints.items()):
            endpoint.close_to(member for member in self._members.values() if self.is_cut(broker_id, member))

    def heal(self) -> None:
        """End the partition."""
        with self._lock:
            self._cuts.clear()

    def add_fault(self, fault: LinkFault) -> None:
        """Put a fault of a link in force; connections that it cuts are closed."""
        with self._lock:
            self._faults.append(fault)
        if fault.effect is LinkEffect.CUT:
            self._close_cut()

    def remove_fault(self, fault: LinkFault) -> None:
        """End a fault, if it is in force."""
        with self._lock:
            if fault in self._faults:
                self._faults.remove(fault)

    def is_cut(self, one: Member, other: Member) -> bool:
        """Return whether a partition or a fault keeps a member from connecting to another."""
        with self._lock:
            is_parted = frozenset((one, other)) in self._cuts
        return is_parted or any(each.effect is LinkEffect.CUT for each in self.faults(one, other))

    def faults(self, one: Member, other: Member) -> list[LinkFault]:
        """Return the faults of what a member sends to another."""
        with self._lock:
            return [
                each
                for each in self._faults
                if _connects(each.one, each.other, one, other)
                or (not each.is_one_way and _connects(each.other, each.one, one, other))
            ]


def _connects(first: int | str, second: int | str, one: Member, other: Member) -> bool:
    return first in (one, ALL) and second in (other, ALL) and one != other


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
        """Wait as long as the link delays a request; close the connection if the link loses it.

        Raises:
            ConnectionError: it was lost.
        """
        for fault in self.link():
            if fault.effect is LinkEffect.DELAY:
                await asyncio.sleep((fault.value or 0) / 1000)
            elif fault.effect is LinkEffect.LOSS and SYSTEM_RANDOM.random() * 100 < (fault.value or 0):
                self.close()
                raise ConnectionResetError(f"a fault lost a request: {FaultPlan((fault,))}")


class Endpoint:
    """Opens the connections of one broker: to brokers as its `Dialer`, and to the coordination server."""

    def __init__(self, network: Network, broker_id: int) -> None:
        self._network: Final = network
        self._broker_id: Final = broker_id
        self._dialer: Final = TcpDialer(connection_class=LinkedConnection)
        self._lock: Final = threading.Lock()
        self._is_gone = False
        self._is_held = False
        self._peers: dict[PeerConnection, tuple[Member | None, asyncio.AbstractEventLoop]] = {}
        self._zookeeper: list[StreamSocket] = []

    async def dial(self, host: str, port: int, options: DialOptions) -> PeerConnection:
        """Open a connection to another broker.

        Raises:
            ConnectionError: it could not be opened, or a partition forbids it.
        """
        member = self._network.member_at(port)
        self._check(member, host, port)
        connection = await self._dialer.dial(host, port, options)
        if isinstance(connection, LinkedConnection):
            connection.link = partial(self._network.faults, self._broker_id, -1 if member is None else member)
        with self._lock:
            self._peers = {peer: known for peer, known in self._peers.items() if not peer.is_closed}
            self._peers[connection] = (member, asyncio.get_running_loop())
        try:
            # A partition may have come meanwhile.
            self._check(member, host, port)
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

    def close_to(self, members: Iterable[Member]) -> None:
        """Close the connections to these members, from any thread; a paused broker closes them later."""
        cut = set(members)
        with self._lock:
            peers = [(peer, loop) for peer, (member, loop) in self._peers.items() if member in cut]
            zookeeper = list(self._zookeeper) if COORDINATOR in cut else []
        for connection in zookeeper:
            _cut(connection)
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
            raise ConnectionRefusedError(f"{host}:{port}: broker {self._broker_id} was killed")
        if member is not None and self._network.is_cut(self._broker_id, member):
            raise ConnectionRefusedError(
                f"{host}:{port}: a partition separates {self._broker_id} and {member}"
            )


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
