"""Serves a simulated etcd store over the simulated network, with the failures of a real etcd.

A frame is its length, the number of a call, a kind, and a body; numbers are big-endian with four bytes, the
kind has one. Requests of a connection may overtake each other, as in etcd.

While faults are on, at random times: the leader is lost, so that requests on their way either take effect
without a response or do not, streams end, and leases begin again; history is compacted, at times up to the
present; the database reaches its quota and takes no writes for some seconds; responses are lost; watches are
slow.
"""

import asyncio
import struct
from collections.abc import Callable
from enum import IntEnum
from random import Random as SeededRandom
from typing import Final

from kalda.runtime.network import Network, Stream, receive, send_all
from kalda.runtime.runtime import Runtime
from kalda.simulation.etcd import wire
from kalda.simulation.etcd.store import EtcdStore, StoreRefusedError

FRAME: Final = struct.Struct(">IIB")
_RECEIVE_BYTES: Final = 65_536
_TICK_SECONDS: Final = 0.1
_LEADER_LASTS: Final = (3.0, 25.0)
_LEADERLESS: Final = (0.2, 3.0)
_COMPACTED_EVERY: Final = (0.3, 4.0)
_FULL_EVERY: Final = (20.0, 120.0)
_FULL_LASTS: Final = (0.5, 4.0)
_LOST_RESPONSES: Final = 0.02
"""The part of requests that take effect without a response."""
_SLOW_WATCHES: Final = 0.05
"""The part of messages of a watch that wait so long that a client may give the connection up."""
_SLOW_WATCH_SECONDS: Final = (0.1, 4.0)


class Kind(IntEnum):
    """The kind of a frame: a call, its response, or a message of a stream."""

    TXN = 1
    GRANT = 2
    REVOKE = 3
    KEEP_ALIVE = 4
    WATCH = 5
    END = 6
    """The client's end of a stream."""
    RESULT = 7
    ERROR = 8


class LeaderLostError(Exception):
    """The servers have no leader; what was proposed may take effect."""


class SimulatedEtcd:
    """One process that stands for all servers of a cluster, over their store."""

    def __init__(self, store: EtcdStore, runtime: Runtime, random: SeededRandom) -> None:
        self.store: Final = store
        self._network: Final[Network] = runtime.network
        self._now: Final[Callable[[], float]] = runtime.clock.monotonic
        self._random: Final = random
        self.has_faults = False
        """Whether it misbehaves."""
        self.has_leader = True
        self._changed: Final = asyncio.Condition()
        self._streams: Final[set[asyncio.Task[None]]] = set()
        """The streams of watches and keep-alives, which end with the leader."""

    async def serve(self, host: str, ports: tuple[int, ...]) -> None:
        """Listen on the servers' ports and serve until cancelled."""
        self.store.renew_all(self._now())
        async with asyncio.TaskGroup() as tasks:
            for port in ports:
                tasks.create_task(self._listen(tasks, host, port), name=f"etcd at {host}:{port}")
            tasks.create_task(self._expire(), name="etcd leases")
            tasks.create_task(self._lose_leaders(), name="etcd leaders")
            tasks.create_task(self._compact(), name="etcd compaction")
            tasks.create_task(self._fill(), name="etcd quota")

    async def notify(self) -> None:
        """Report changes that were made to the store from outside."""
        async with self._changed:
            self._changed.notify_all()

    def _is_led(self) -> bool:
        """Whether there is a leader now: it may have come back during a wait."""
        return self.has_leader

    # What happens by itself.

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            if self.has_leader:
                self.store.expire(self._now())
                await self.notify()

    async def _lose_leaders(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(*_LEADER_LASTS))
            if not self.has_faults:
                continue
            self.has_leader = False
            for task in list(self._streams):
                task.cancel()
            await asyncio.sleep(self._random.uniform(*_LEADERLESS))
            self.store.renew_all(self._now())
            self.has_leader = True

    async def _compact(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(*_COMPACTED_EVERY))
            if self.has_faults:
                kept = self._random.choice((0, 1, 10, 100))
                self.store.compact(self.store.revision - kept)

    async def _fill(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(*_FULL_EVERY))
            if self.has_faults:
                self.store.fill()
            await asyncio.sleep(self._random.uniform(*_FULL_LASTS))
            self.store.free()

    # Connections.

    async def _listen(self, tasks: asyncio.TaskGroup, host: str, port: int) -> None:
        listener = await self._network.listen(host, port)
        while True:
            try:
                stream, _ = listener.accept_stream()
            except BlockingIOError:
                await _wait_for_connection(listener.fileno())
                continue
            tasks.create_task(self._serve(stream), name="etcd connection")

    async def _serve(self, stream: Stream) -> None:
        calls: dict[int, asyncio.Task[None]] = {}
        connection = _Connection(stream)
        try:
            while True:
                number, kind, body = await connection.receive()
                if kind == Kind.END:
                    if number in calls:
                        calls.pop(number).cancel()
                    continue
                if kind == Kind.KEEP_ALIVE and number in calls and calls[number].done():
                    # Its stream has ended; the client will read that.
                    continue
                task = asyncio.create_task(self._handle(connection, number, kind, body), name="etcd call")
                if kind == Kind.WATCH:
                    calls[number] = task
                    self._streams.add(task)
                    task.add_done_callback(self._streams.discard)
                else:
                    connection.calls.add(task)
                    task.add_done_callback(connection.calls.discard)
        except (OSError, EOFError):
            return
        finally:
            for task in (*calls.values(), *connection.calls):
                task.cancel()
            stream.close()

    async def _handle(self, connection: "_Connection", number: int, kind: int, body: bytes) -> None:
        try:
            if kind == Kind.WATCH:
                await self._watch(connection, number, *wire.read_watch(body))
                return
            result = await self._call(kind, body)
        except StoreRefusedError as error:
            await connection.send(number, Kind.ERROR, f"{error.code}\n{error.details}".encode())
        except LeaderLostError:
            text = "UNAVAILABLE\netcdserver: request timed out, possibly due to previous leader failure"
            await connection.send(number, Kind.ERROR, text.encode())
        except asyncio.CancelledError:
            if kind == Kind.WATCH and not self.has_leader:
                await connection.send(number, Kind.ERROR, b"UNAVAILABLE\netcdserver: no leader")
            raise
        else:
            await connection.send(number, Kind.RESULT, result)

    async def _call(self, kind: int, body: bytes) -> bytes:
        # The way to a majority and their disks.
        await asyncio.sleep(0.0005 + self._random.random() ** 3 * 0.006)
        if not self.has_leader:
            await asyncio.sleep(self._random.uniform(0.0, 1.0))
            if not self._is_led():
                raise LeaderLostError
            if self._random.random() < 0.5:
                # Proposed to the former leader, whose successor has it.
                self._apply(kind, body)
                await self.notify()
                raise LeaderLostError
        result = self._apply(kind, body)
        await self.notify()
        if self.has_faults and self._random.random() < _LOST_RESPONSES:
            raise LeaderLostError
        return result

    def _apply(self, kind: int, body: bytes) -> bytes:
        store = self.store
        if kind == Kind.TXN:
            return store.txn(wire.read_txn(body))
        number = wire.read_number(body)
        if kind == Kind.GRANT:
            return wire.lease_response(store.grant(number, self._now()), number)
        if kind == Kind.REVOKE:
            store.revoke(number)
            return b""
        assert kind == Kind.KEEP_ALIVE, f"{kind} is no call"
        return wire.lease_response(number, store.renew(number, self._now()))

    async def _watch(
        self, connection: "_Connection", number: int, key: bytes, end: bytes, revision: int
    ) -> None:
        if not self.has_leader:
            raise LeaderLostError
        await connection.send(number, Kind.RESULT, wire.watch_created())
        while True:
            if revision <= self.store.compacted:
                await connection.send(number, Kind.RESULT, wire.watch_compacted(self.store.compacted))
                return
            found = [
                event
                for _, events in self.store.changes_from(revision)
                for event in events
                if key <= event.kv.key < end
            ]
            revision = self.store.revision + 1
            if found:
                # A watcher may be behind the responses of requests.
                is_slow = self.has_faults and self._random.random() < _SLOW_WATCHES
                await asyncio.sleep(
                    self._random.uniform(*_SLOW_WATCH_SECONDS)
                    if is_slow
                    else self._random.random() ** 4 * 0.05
                )
                await connection.send(number, Kind.RESULT, wire.watch_events(found))
            async with self._changed:
                while self.store.revision < revision:
                    await self._changed.wait()


class _Connection:
    def __init__(self, stream: Stream) -> None:
        self.calls: Final[set[asyncio.Task[None]]] = set()
        self._stream: Final = stream
        self._lock: Final = asyncio.Lock()
        self._received: Final = bytearray()

    async def receive(self) -> tuple[int, int, bytes]:
        """Return the next frame: number, kind and body.

        Raises:
            EOFError: there is none any more.
        """
        return await read_frame(self._stream, self._received)

    async def send(self, number: int, kind: Kind, body: bytes) -> None:
        async with self._lock:
            try:
                await send_all(self._stream, FRAME.pack(len(body), number, kind) + body)
            except OSError:
                # The reader of the connection notices it, too.
                return


async def read_frame(stream: Stream, received: bytearray) -> tuple[int, int, bytes]:
    """Return the next frame of a stream: number, kind and body.

    Raises:
        EOFError: the stream has ended.
        OSError: it broke.
    """
    while True:
        if len(received) >= FRAME.size:
            size, number, kind = FRAME.unpack_from(received)
            end = FRAME.size + size
            if len(received) >= end:
                body = bytes(received[FRAME.size : end])
                del received[:end]
                return number, kind, body
        data = await receive(stream, _RECEIVE_BYTES)
        if not data:
            raise EOFError
        received += data


async def _wait_for_connection(number: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(number, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(number)
