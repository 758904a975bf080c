"""Simulates the network: hosts, listeners and streams with latency, cuts and resets.

A stream is a pair of pipes. What one side sends arrives at the other after the latency of the link, in order
within a direction of a connection and in any order between connections. While a link is cut in a direction,
bytes wait; when it heals they arrive. Requests for connections are lost, and sent again as TCP does. A
connection whose link stays cut too long breaks, as TCP gives up. The end of a process resets its connections.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, TypeAlias

from kalda.runtime.filesystem import Buffer, File
from kalda.runtime.network import Address, Stream, StreamListener
from kalda.runtime.random import Random
from kalda.simulation.event_loop import SimulatedEventLoop, Watched
from kalda.simulation.scheduler import Scheduler

WINDOW_BYTES: Final = 256 * 1024
"""Bytes of one direction that are on their way or not read yet; then a send would wait."""

BREAK_SECONDS: Final = 20.0
"""How long a connection survives a cut link."""

SYN_RETRY_SECONDS: Final = 1.0
"""How long after a lost request for a connection it is sent again; each time the wait doubles, as in TCP."""

EPHEMERAL_PORT_MIN: Final = 40_000

_FIRST_FD: Final = 1_000

Link: TypeAlias = tuple[str, str]
"""A link: the sending host and the receiving host."""


class SimulatedInternet:
    """All hosts, listeners and connections of a simulation."""

    def __init__(self, scheduler: Scheduler, random: Random) -> None:
        self.scheduler: Final = scheduler
        self.random: Final = random
        self.watched: Final[dict[int, Watched]] = {}
        self.listeners: Final[dict[Address, SimulatedListener]] = {}
        self.on_delivery: Callable[[Link, int], None] | None = None
        """Called for each piece that arrives, with its link and size: the trace."""
        self._numbers: Final = itertools.count(_FIRST_FD)
        self.cuts: Final[set[Link]] = set()
        """The links that are cut."""
        self._slow: Final[dict[Link, float]] = {}
        self._waiting: Final[dict[Link, list[SimulatedStream]]] = {}

    def new_number(self) -> int:
        """Return a number that no socket has."""
        return next(self._numbers)

    def latency(self, link: Link) -> float:
        """Draw the latency of a piece of data in seconds: mostly a fraction of a millisecond."""
        seconds = 0.0001 + self.random.random() ** 4 * 0.004
        return seconds + self._slow.get(link, 0.0) if self._slow else seconds

    def is_cut(self, source: str, target: str) -> bool:
        """Whether the link from one host to another is cut."""
        return (source, target) in self.cuts

    def cut(self, source: str, target: str) -> None:
        """Cut the link from one host to another."""
        self.cuts.add((source, target))

    def heal(self, source: str, target: str) -> None:
        """End a cut; data that waited is delivered."""
        self.cuts.discard((source, target))
        for stream in self._waiting.pop((source, target), []):
            stream.go_on()

    def slow_down(self, source: str, target: str, seconds: float) -> None:
        """Add latency to the link from one host to another."""
        self._slow[source, target] = seconds

    def wait_for_heal(self, source: str, target: str, stream: "SimulatedStream") -> None:
        """Call the stream's `go_on` when the cut ends."""
        self._waiting.setdefault((source, target), []).append(stream)


class SimulatedListener:
    """A bound port of a host."""

    def __init__(
        self, internet: SimulatedInternet, loop: SimulatedEventLoop, address: Address, backlog: int
    ) -> None:
        self._internet: Final = internet
        self._loop: Final = loop
        self._address: Final = address
        self._backlog: Final = backlog
        self._number = internet.new_number()
        self._queue: Final[deque[SimulatedStream]] = deque()
        internet.watched[self._number] = self

    @property
    def port(self) -> int:
        """The port."""
        return self._address[1]

    def fileno(self) -> int:
        """Return the number by which the loop watches for connections; negative once it is closed."""
        return self._number

    def offer(self, stream: "SimulatedStream") -> bool:
        """Queue a connection; return False where the queue is full."""
        if len(self._queue) >= self._backlog:
            return False
        self._queue.append(stream)
        self._loop.notice(self._number)
        return True

    def accept_stream(self) -> tuple[Stream, Address]:
        """Return the next connection; see `StreamListener`."""
        if not self._queue:
            raise BlockingIOError
        stream = self._queue.popleft()
        return stream, stream.peer_address

    def is_readable(self) -> bool:
        """Whether a connection waits."""
        return bool(self._queue)

    def is_writable(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """Stop listening; connections that were not accepted are reset."""
        if self._number < 0:
            return
        self._internet.watched.pop(self._number, None)
        self._internet.listeners.pop(self._address, None)
        self._number = -1
        while self._queue:
            self._queue.popleft().reset()


class SimulatedStream:
    """One side of a connection."""

    MORE = 0

    def __init__(
        self, internet: SimulatedInternet, loop: SimulatedEventLoop, address: Address, peer_address: Address
    ) -> None:
        self.peer_address: Final = peer_address
        self.address: Final = address
        self._link: Final = (address[0], peer_address[0])
        self.peer: SimulatedStream | None = None
        self._internet: Final = internet
        self._loop: Final = loop
        self._number = internet.new_number()
        self._received: Final[deque[bytes]] = deque()
        self._unread = 0
        self._has_ended = False
        self._error: OSError | None = None
        self._on_way: Final[deque[bytes | None]] = deque()
        """What this side sent and the other has not received; None is the end of the stream."""
        self._on_way_bytes = 0
        self._arrives_at = 0.0
        self._is_cut = False
        self._on_arrival: Final = self._arrive
        internet.watched[self._number] = self

    # The port.

    def fileno(self) -> int:
        """Return the number by which the loop watches the stream; negative once it is closed."""
        return self._number

    def recv_into(self, buffer: bytearray | memoryview, /) -> int:
        """Receive what has arrived; see `Stream`."""
        data = self.recv(len(buffer))
        size = len(data)
        buffer[:size] = data
        return size

    def recv(self, size: int, /) -> bytes:
        """Receive up to `size` bytes that have arrived."""
        if self._number < 0 or self._error is not None:
            self._refuse()
        received = self._received
        if not received:
            if self._has_ended:
                return b""
            raise BlockingIOError
        data = received.popleft()
        length = len(data)
        if length > size or (received and length < size):
            data = self._joined(data, size)
            length = len(data)
        self._unread -= length
        peer = self.peer
        if peer is not None and peer._number in peer._loop.writers:
            peer._loop.notice(peer._number)
        return data

    def _joined(self, first: bytes, size: int) -> bytes:
        """Return up to `size` bytes of a piece and of those that arrived behind it."""
        received = self._received
        parts = [first]
        left = size - len(first)
        while received and left > 0:
            parts.append(received.popleft())
            left -= len(parts[-1])
        if left < 0:
            last = parts.pop()
            received.appendleft(last[left:])
            parts.append(last[:left])
        return b"".join(parts)

    def send(self, data: Buffer, flags: int = 0, /) -> int:
        """Send as much as there is room for."""
        if self._number < 0 or self._error is not None:
            self._refuse()
        peer = self.peer
        if peer is None:
            raise BrokenPipeError("the peer closed the connection")
        room = WINDOW_BYTES - self._on_way_bytes - peer._unread
        if room <= 0:
            raise BlockingIOError
        piece = bytes(data) if len(data) <= room else bytes(data[:room])
        self._put(piece)
        return len(piece)

    def sendmsg(self, buffers: Sequence[Buffer], /) -> int:
        """Send as much of several pieces as there is room for."""
        return self.send(b"".join(buffers))

    def send_file(self, file: File, position: int, size: int, /) -> int:
        """Send bytes of a file."""
        data = file.read_at(min(size, WINDOW_BYTES), position)
        return self.send(data) if data else 0

    def has_ended(self) -> bool:
        """Whether the peer has closed the stream and sent nothing before."""
        return (self._has_ended or self._error is not None) and not self._received

    def close(self) -> None:
        """Close the stream; data that was sent still arrives."""
        if self._number < 0:
            return
        self._internet.watched.pop(self._number, None)
        self._number = -1
        if self._error is None and self.peer is not None:
            self._put(None)

    # The network's side.

    def is_readable(self) -> bool:
        """Whether a receive would not wait."""
        return bool(self._received) or self._has_ended or self._error is not None

    def is_writable(self) -> bool:
        """Whether a send would not wait."""
        peer = self.peer
        return self._error is not None or peer is None or self._on_way_bytes + peer._unread < WINDOW_BYTES

    def notice(self) -> None:
        """Make the event loop check the stream."""
        self._loop.notice(self._number)

    def reset(self, error: OSError | None = None) -> None:
        """Break the connection on both sides; the other one is reset after the latency of the link."""
        peer, self.peer = self.peer, None
        self.fail(error or ConnectionResetError("the connection was reset"))
        if peer is not None:
            source, target = self.address[0], self.peer_address[0]
            if not self._internet.is_cut(source, target):
                delay = self._internet.latency(self._link)
                gone = ConnectionResetError("the peer reset the connection")
                self._internet.scheduler.call_later(delay, lambda: peer.fail(gone))

    def fail(self, error: OSError) -> None:
        """Make every later call raise an error."""
        if self._error is None:
            self._error = error
            self._received.clear()
            self.peer = None
            self.notice()

    def go_on(self) -> None:
        """Send the data that waited for the link."""
        self._is_cut = False
        for _ in range(len(self._on_way)):
            self._dispatch()

    def _refuse(self) -> NoReturn:
        raise OSError(9, "Bad file descriptor") if self._number < 0 or self._error is None else self._error

    def _put(self, piece: bytes | None) -> None:
        self._on_way.append(piece)
        if piece is not None:
            self._on_way_bytes += len(piece)
        if self._is_cut:
            return
        internet = self._internet
        if self._link in internet.cuts:
            self._is_cut = True
            internet.wait_for_heal(*self._link, self)
            internet.scheduler.call_later(BREAK_SECONDS, self._give_up)
        else:
            self._dispatch()

    def _dispatch(self) -> None:
        """Let the next piece that is not on its way yet arrive after the latency of the link."""
        scheduler = self._internet.scheduler
        when = scheduler.now + self._internet.latency(self._link)
        # Nothing overtakes within a connection.
        if when < self._arrives_at:
            when = self._arrives_at
        self._arrives_at = when
        scheduler.call_unless_cancelled(when, self._on_arrival, None)

    def _arrive(self) -> None:
        if not self._on_way:
            return
        piece = self._on_way.popleft()
        peer = self.peer
        if peer is None:
            return
        number = peer._number
        if piece is None:
            peer._has_ended = True
            peer.peer = None
        else:
            size = len(piece)
            self._on_way_bytes -= size
            if number < 0:
                # The other side has closed: it answers data with a reset.
                self.fail(ConnectionResetError("the peer closed the connection"))
                return
            peer._received.append(piece)
            peer._unread += size
            if self._internet.on_delivery is not None:
                self._internet.on_delivery(self._link, size)
        peer._loop.notice(number)

    def _give_up(self) -> None:
        if self._is_cut:
            self.reset(TimeoutError(110, "Connection timed out"))


class SimulatedNetwork:
    """The network as one process sees it: the port of `kalda.runtime.network`."""

    def __init__(self, internet: SimulatedInternet, loop: SimulatedEventLoop, host: str) -> None:
        self._internet: Final = internet
        self._loop: Final = loop
        self._host: Final = host
        self._ports: Final = itertools.count(EPHEMERAL_PORT_MIN)
        self._listeners: Final[list[SimulatedListener]] = []
        self._has_ended = False

    async def listen(
        self,
        host: str,
        port: int,
        *,
        backlog: int = 128,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> StreamListener:
        """Bind a port of this host."""
        address = (self._host, port or next(self._ports))
        if address in self._internet.listeners:
            raise OSError(98, "Address already in use")
        listener = SimulatedListener(self._internet, self._loop, address, backlog)
        self._internet.listeners[address] = listener
        self._listeners.append(listener)
        return listener

    def probe(self, host: str, port: int) -> None:
        """Raise `OSError` if the port is taken."""
        if (self._host, port) in self._internet.listeners:
            raise OSError(98, "Address already in use")

    async def connect(
        self,
        host: str,
        port: int,
        *,
        timeout_seconds: float,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> Stream:
        """Connect to a port of a host."""
        internet, loop = self._internet, self._loop
        outcome: asyncio.Future[SimulatedStream] = loop.create_future()
        wait = SYN_RETRY_SECONDS

        def arrive() -> None:
            nonlocal wait
            if outcome.done() or self._has_ended:
                return
            if internet.is_cut(self._host, host) or internet.is_cut(host, self._host):
                internet.scheduler.call_later(wait, arrive)
                wait *= 2
                return
            listener = internet.listeners.get((host, port))
            if listener is None:
                loop.call_soon(_fail, outcome, ConnectionRefusedError(111, "Connection refused"))
                return
            local, remote = (self._host, next(self._ports)), (host, port)
            mine = SimulatedStream(internet, loop, local, remote)
            theirs = SimulatedStream(internet, listener._loop, remote, local)
            mine.peer, theirs.peer = theirs, mine
            if not listener.offer(theirs):
                mine.close()
                return
            loop.call_soon(_complete, outcome, mine)

        internet.scheduler.call_later(2 * internet.latency((self._host, host)), arrive)
        timer = loop.call_later(timeout_seconds, _fail, outcome, TimeoutError(110, "Connection timed out"))
        try:
            return await outcome
        finally:
            timer.cancel()

    async def canonical_addresses(self, host: str, port: int) -> list[Address]:
        """A host's name is its address."""
        return [(host, port)]

    async def address_of(self, host: str) -> str | None:
        """A host's name is its address."""
        return host

    def host_name(self) -> str:
        """Return the name of this host."""
        return self._host

    def end(self) -> None:
        """Close all sockets, as the end of a process does."""
        self._has_ended = True
        for listener in list(self._listeners):
            listener.close()
        for stream in [
            each
            for each in list(self._internet.watched.values())
            if isinstance(each, SimulatedStream) and each._loop is self._loop
        ]:
            stream.reset()
            self._internet.watched.pop(stream.fileno(), None)


def _complete(future: "asyncio.Future[SimulatedStream]", stream: SimulatedStream) -> None:
    if future.done():
        stream.reset()
    else:
        future.set_result(stream)


def _fail(future: "asyncio.Future[SimulatedStream]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
