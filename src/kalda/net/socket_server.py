"""Accepts connections within the limits, closes idle ones, and drains them at shutdown, for any protocol.

A `SocketServer` serves all listeners of one kind on one event loop. It does not interpret requests: a
subclass says what begins on a new connection. `kalda.net.server` is the one for Kafka's protocol; the
ZooKeeper server and the metrics endpoint have others.

At ``max.connections`` the server accepts no connection until one closes, but for the brokers' own listener:
what comes there closes the least recently used connection of another one. Above a rate of new connections a
listener pauses. A connection above ``max.connections.per.ip`` is accepted and closed at once; one of an
address above its rate is closed after a while, so that its client does not come back at once. A connection is
idle if no byte moved in either direction for ``connections.max.idle.ms``, unless its peer waits for the
broker. A client that has to authenticate or to open a session has a time for that, in all: else peers could
keep connections for ever with a byte now and then.

Each connection is counted once when it is accepted and once when it closes, in the totals and for its
address; otherwise a limit would block clients although nobody is connected.
"""

import asyncio
import errno
import heapq
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kalda.common import invariants
from kalda.common.log_limiter import LogLimiter
from kalda.net.connection import Connection, FrameHandler, drop_frame
from kalda.net.filtered_connection import set_filters
from kalda.net.foreign_protocols import ForeignProtocol, report_limiter
from kalda.net.frame_filters import FrameFilter
from kalda.net.listener_security import PLAINTEXT, ListenerSecurity
from kalda.net.receive_buffers import ReceiveBuffers
from kalda.net.socket_connection import SocketConnection
from kalda.net.tls_connection import TlsConnection
from kalda.runtime.error_text import error_text
from kalda.runtime.network import Network, Stream, StreamListener
from kalda.runtime.system.network import SYSTEM_NETWORK
from kalda.security.quota.connection_rates import UNLIMITED, ConnectionRates, plain_address
from kalda.security.quota.rate import Window
from kalda.security.tls.channel import TlsChannel

logger: Final = logging.getLogger(__name__)

ACCEPTS_PER_TURN_MAX: Final = 64
"""Accepted in one go, so that a burst of new connections does not starve those that are being served."""

ACCEPT_PAUSE_SECONDS: Final = 0.5
"""How long accepting rests after the process ran out of descriptors or memory. The socket stays readable all
the while, so without a rest the loop would spin."""

CLOSES_PER_TURN_MAX: Final = 64
"""Connections above ``max.connections`` closed in one go; after a large cut others are served in between."""

REFUSED_MAX: Final = 1000
"""Connections of addresses above their rate that wait to be closed; more are closed at once, since each holds
a descriptor."""

SWEEP_SECONDS_MAX: Final = 30.0
"""Idle connections are looked for at least this often, or at a tenth of the idle limit."""

_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The limits of a server; each field is the Kafka setting of that name."""

    socket_request_max_bytes: int = 104_857_600
    connections_max_idle_ms: int = 600_000
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = UNLIMITED
    listener_max_connections: Mapping[str, int] = field(default_factory=dict)
    """By the listener's name; one that is missing has the broker's, here and in the next."""
    listener_max_connection_creation_rate: Mapping[str, int] = field(default_factory=dict)
    inter_broker_listener_name: str | None = None
    quota_window: Window = field(default_factory=Window)
    socket_listen_backlog_size: int = 50
    socket_send_buffer_bytes: int = -1
    """-1 leaves the size to the operating system, which grows it as needed; Kafka's default is 102400."""
    socket_receive_buffer_bytes: int = -1


class Listener:
    """A listening address, its connections, and who authenticated there."""

    __slots__ = (
        "connections",
        "failed",
        "filters",
        "is_full",
        "is_reading",
        "name",
        "pause",
        "security",
        "succeeded",
    )

    def __init__(self, name: str, security: ListenerSecurity, filters: Sequence[FrameFilter] = ()) -> None:
        self.name: Final = name
        self.security: Final = security
        self.filters = tuple(filters)
        """What the requests and responses of its connections pass, the outermost first."""
        self.succeeded = 0
        """Clients that authenticated."""
        self.failed = 0
        self.connections = 0
        self.is_full = False
        """Whether a connection waits because of max.connections."""
        self.is_reading = False
        """Whether the event loop reports new connections."""
        self.pause: asyncio.TimerHandle | None = None
        """Ends the pause of a listener above its rate of new connections."""


@dataclass(frozen=True, slots=True)
class ServerStatistics:
    """The counts of a server at one moment."""

    connections: int
    accepted: int
    closed: int
    rejected: int
    expired: int
    bytes_in: int
    bytes_out: int


class SocketServer:
    """Listeners and their connections."""

    connections_per_ip_setting: str = "max.connections.per.ip"
    """The name of that limit in the log."""
    tls_hint: str = "set security.protocol=SSL or SASL_SSL in the client"
    """How to make a client speak TLS, for the log."""

    def __init__(
        self,
        config: ServerConfig,
        on_frame: FrameHandler = drop_frame,
        log: logging.Logger = logger,
        network: Network = SYSTEM_NETWORK,
    ) -> None:
        """`on_frame` handles the frames of connections that get no session."""
        self.rates: Final = ConnectionRates(config.quota_window, config.inter_broker_listener_name)
        """Its `set_ip_rate` sets the quotas of addresses."""
        self.buffers: ReceiveBuffers = ReceiveBuffers()
        self.frame_bytes_max: int = config.socket_request_max_bytes
        self.bytes_in = 0
        self.bytes_out = 0
        self.turn_ended: Callable[[], None] | None = None
        self._network: Final = network
        self._config = config
        self._on_frame = on_frame
        """Handles the frames of clients that need not log in, or have."""
        self._outer_filters: tuple[FrameFilter, ...] = ()
        self._listeners: dict[StreamListener, Listener] = {}
        self._by_name: dict[str, Listener] = {}
        self._connections: dict[int, Connection] = {}
        self._per_ip: Counter[str] = Counter()
        self.limiter: LogLimiter = LogLimiter(log)
        self._foreign: Final = report_limiter(log)
        self._sweep: asyncio.TimerHandle | None = None
        self._accept_pause: asyncio.TimerHandle | None = None
        self._is_accepting = False
        # Whether a listener waits because of max.connections.
        self._is_full = False
        self.on_refused: Callable[[str, str], None] | None = None
        """Called with the address of a connection that is refused or must wait, and with the setting."""
        self._refused: Final[dict[Stream, asyncio.TimerHandle]] = {}
        self._accepted = 0
        self._closed = 0
        self._rejected = 0
        self._expired = 0

    @property
    def connections(self) -> Collection[Connection]:
        """The open connections, the oldest first."""
        return self._connections.values()

    def reconfigure(self, config: ServerConfig) -> None:
        """Put new limits in force; connections above ``max.connections`` close, others stay."""
        self._config = config
        self.frame_bytes_max = config.socket_request_max_bytes
        self._set_rates()
        if self._listeners:
            self._update_readers()
            self._close_excess()

    def _set_rates(self) -> None:
        config = self._config
        self.rates.set_broker_rate(config.max_connection_creation_rate)
        for name in self._by_name:
            rate = config.listener_max_connection_creation_rate.get(name, config.max_connection_creation_rate)
            self.rates.set_listener_rate(name, rate)

    async def listen(
        self,
        name: str,
        host: str,
        port: int,
        *,
        accept: bool = True,
        security: ListenerSecurity = PLAINTEXT,
        filters: Sequence[FrameFilter] = (),
    ) -> int:
        """Open a listener and accept on it; return its port, which is the system's choice if `port` is 0.

        `Network.listen` says what `host` means. Without `accept` the system queues connections until
        `start_accepting`: a broker that starts must know its port before it can serve. `filters` are as in
        `set_filters`.

        Raises:
            OSError: the address cannot be resolved or bound.
        """
        assert name not in self._by_name, f"there are two listeners {name}"
        config = self._config
        port_listener = await self._network.listen(
            host,
            port,
            backlog=config.socket_listen_backlog_size,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
        )
        listener = Listener(name, security, filters)
        self._listeners[port_listener] = self._by_name[name] = listener
        self.rates.add_listener(name)
        self._set_rates()
        if len(self._listeners) == 1:
            self._is_accepting = accept
            self._schedule_sweep()
        self._update_readers()
        return port_listener.port

    def close_listener(self, name: str) -> None:
        """Stop to listen, and close the connections of the listener."""
        for port_listener, listener in list(self._listeners.items()):
            if listener.name != name:
                continue
            if listener.is_reading:
                asyncio.get_running_loop().remove_reader(port_listener.fileno())
            if listener.pause is not None:
                listener.pause.cancel()
            del self._listeners[port_listener]
            port_listener.close()
        for connection in [each for each in self._connections.values() if each.listener == name]:
            connection.close("its listener was removed")
        del self._by_name[name]
        self.rates.remove_listener(name)
        self._update_readers()

    def set_outer_filters(self, filters: Sequence[FrameFilter]) -> None:
        """Set the filters outside of those of every listener, also of one that is opened later."""
        self._outer_filters = tuple(filters)
        for name, listener in self._by_name.items():
            self.set_filters(name, listener.filters)

    def filters_of(self, name: str) -> tuple[FrameFilter, ...]:
        """Return the filters of a listener but for the outer ones, the outermost first."""
        return self._by_name[name].filters

    def set_filters(self, name: str, filters: Sequence[FrameFilter]) -> None:
        """Have the requests of a listener's connections, also of the open ones, pass filters from now on.

        The outermost filter comes first. A request that is not answered yet keeps the filters it passed.
        """
        self._by_name[name].filters = tuple(filters)
        chain = (*self._outer_filters, *filters)
        for connection in self._connections.values():
            if connection.listener == name:
                set_filters(connection, chain)

    def start_accepting(self) -> None:
        """Accept on all listeners. Do nothing if the server accepts already."""
        self._is_accepting = True
        self._update_readers()

    async def close(self, drain_seconds: float = 5.0) -> None:
        """Stop accepting and reading, wait up to `drain_seconds` for outstanding replies, then close all."""
        self.stop()
        for connection in list(self._connections.values()):
            connection.drain()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + drain_seconds
        # Polled, so that the path of every reply need not check whether a shutdown waits for the last one.
        while loop.time() < deadline and not self.is_quiet():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        self._close_all("the server is shutting down")

    def abort(self) -> None:
        """Close everything at once without sending outstanding replies, as if the process had been killed."""
        self.stop()
        self._close_all("the server was killed")

    def is_quiet(self) -> bool:
        """Return whether every request was answered and every reply was sent."""
        return all(connection.is_quiet for connection in self._connections.values())

    def stop(self) -> None:
        """Stop accepting; connections live on."""
        self._stop_accepting()
        for port_listener in self._listeners:
            port_listener.close()
        self._listeners.clear()
        if self._accept_pause is not None:
            self._accept_pause.cancel()

    def _close_all(self, reason: str) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self._connections.values()):
            connection.close(reason, logging.DEBUG)

    def statistics(self) -> ServerStatistics:
        """Return the current counts."""
        return ServerStatistics(
            connections=len(self._connections),
            accepted=self._accepted,
            closed=self._closed,
            rejected=self._rejected,
            expired=self._expired,
            bytes_in=self.bytes_in,
            bytes_out=self.bytes_out,
        )

    # What a subclass overrides.

    def sweep_seconds(self) -> float:
        """Return the time between two sweeps."""
        return min(SWEEP_SECONDS_MAX, self._config.connections_max_idle_ms / 10_000)

    def begin(self, connection: Connection) -> None:
        """Prepare a connection that was just accepted: set its session, or another handler of its frames."""

    def admits(self, address: str) -> bool:
        """Return whether a further connection of an address may be served; a refusal is logged."""
        limit = self._config.max_connections_per_ip_overrides.get(
            address, self._config.max_connections_per_ip
        )
        if self._per_ip[address] < limit:
            return True
        self._note_refused(address, f"{self.connections_per_ip_setting}={limit}")
        self.limiter.log(
            logging.INFO,
            "connection from %s rejected: its address has %s=%d",
            address,
            self.connections_per_ip_setting,
            limit,
            source=address,
        )
        return False

    def end_overdue(self, connection: Connection) -> None:
        """Close a connection that has not begun in time."""
        raise NotImplementedError

    def peer_speaks(self, connection: Connection, protocol: ForeignProtocol) -> None:
        """Log that a peer sent another protocol; called by the connection."""
        raise NotImplementedError

    def handshake_completed(self, connection: Connection, certificate: bytes | None) -> str | None:
        """Take the certificate of a peer, in DER; return why it is refused, or None."""
        raise NotImplementedError

    def authentication_failed(self, connection: Connection, reason: str) -> None:
        """Count and log a client that could not authenticate; the caller closes its connection."""
        raise NotImplementedError

    # Called by connections.

    def report_foreign(self, connection: Connection, message: str, *args: object) -> None:
        """Log once a minute and address that a peer sent another protocol."""
        self._foreign.log(logging.WARNING, message, *args, source=connection.peer_address)

    def connection_closed(self, connection: Connection, reason: str, level: int) -> None:
        """Forget a connection that has just closed; called by the connection."""
        del self._connections[connection.id]
        self._by_name[connection.listener].connections -= 1
        self._closed += 1
        self._per_ip[connection.peer_address] -= 1
        if not self._per_ip[connection.peer_address]:
            del self._per_ip[connection.peer_address]
        if invariants.enabled:
            self.check_invariants()
        self.limiter.log(
            level,
            "connection %d from %s closed: %s",
            connection.id,
            connection.peer,
            reason,
            source=connection.peer_address,
        )
        if self._is_full:
            self._update_readers()

    def check_invariants(self) -> None:
        """Assert that the counts agree with the open connections."""
        count = len(self._connections)
        assert count == self._accepted - self._closed, f"{count} of {self._accepted} - {self._closed}"
        per_ip = Counter(connection.peer_address for connection in self._connections.values())
        assert per_ip == self._per_ip, f"{self._per_ip} instead of {per_ip}"
        listed = {name: listener.connections for name, listener in self._by_name.items()}
        assert count == sum(listed.values()), f"{count} instead of {listed}"

    # Accepting.

    def _on_acceptable(self, port_listener: StreamListener) -> None:
        listener = self._listeners[port_listener]
        self._accept_some(port_listener, listener)
        if len(self._connections) > self._config.max_connections:
            self._close_excess()
        if listener.is_full or listener.pause is not None:
            self._update_readers()

    def _accept_some(self, port_listener: StreamListener, listener: Listener) -> None:
        for _ in range(ACCEPTS_PER_TURN_MAX):
            if not self._has_room(listener):
                self._is_full = listener.is_full = True
                self._note_refused("", f"max.connections on the listener {listener.name}")
                self.limiter.log(
                    logging.WARNING,
                    "%d connections are open, max.connections is reached on the listener %s; "
                    "new ones wait until one closes",
                    len(self._connections),
                    listener.name,
                )
                return
            try:
                stream, address = port_listener.accept_stream()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    self._rest_from_accepting(error)
                else:
                    # An error of one connection, such as a firewall's EPERM; the next one may succeed.
                    self.limiter.log(
                        logging.WARNING, "a connection could not be accepted: %s", error_text(error)
                    )
                return
            self._admit(stream, (_plain_peer(address[0]), address[1]), listener)
            if listener.pause is not None:
                return

    def _admit(self, stream: Stream, peer: tuple[str, int], listener: Listener) -> None:
        now = asyncio.get_running_loop().time()
        if wait := self.rates.refuse_seconds(listener.name, peer[0], now):
            self._refuse(stream, peer[0], wait)
            return
        if wait := self.rates.pause_seconds(listener.name, now):
            # This connection is served, and the next one waits for it.
            listener.pause = asyncio.get_running_loop().call_later(wait, self._end_pause, listener)
        if not self.admits(peer[0]):
            stream.close()
            self._rejected += 1
            return
        self._accepted += 1
        listener.connections += 1
        self._per_ip[peer[0]] += 1
        connection = self._connect(stream, peer, listener)
        self._connections[connection.id] = connection
        self.begin(connection)
        if listener.filters or self._outer_filters:
            set_filters(connection, self._outer_filters + listener.filters)
        if invariants.enabled:
            self.check_invariants()

    def _connect(self, stream: Stream, peer: tuple[str, int], listener: Listener) -> Connection:
        """Wrap an accepted stream as the listener's security demands."""
        loop, security = asyncio.get_running_loop(), listener.security
        connection: Connection
        if security.tls is None:
            connection = SocketConnection(
                self, self._on_frame, self._accepted, listener.name, peer, stream, loop
            )
        else:
            channel = TlsChannel(security.tls.context, is_server=True)
            connection = TlsConnection(
                self,
                self._on_frame,
                self._accepted,
                listener.name,
                peer,
                stream,
                loop,
                channel,
                self,
                is_optional=security.is_tls_optional,
            )
        return connection

    def _has_room(self, listener: Listener) -> bool:
        """Whether ``max.connections`` allows one more on the listener."""
        config = self._config
        if listener.connections >= config.listener_max_connections.get(listener.name, config.max_connections):
            return False
        return len(self._connections) < config.max_connections or self.rates.is_protected(listener.name)

    def _close_excess(self) -> None:
        """Close the least recently used connections above ``max.connections``."""
        excess = len(self._connections) - self._config.max_connections
        if excess <= 0 or not self._listeners:
            return
        others = [each for each in self._connections.values() if not self.rates.is_protected(each.listener)]
        closing = heapq.nsmallest(
            min(excess, CLOSES_PER_TURN_MAX), others, key=lambda connection: connection.last_active
        )
        for connection in closing:
            connection.close("max.connections is exceeded, and it was used least recently")
        if len(closing) == CLOSES_PER_TURN_MAX:
            asyncio.get_running_loop().call_soon(self._close_excess)

    def _note_refused(self, address: str, setting: str) -> None:
        if self.on_refused is not None:
            self.on_refused(address, setting)

    def _refuse(self, stream: Stream, address: str, seconds: float) -> None:
        """Close a connection later: its client waits all the while instead of trying again at once."""
        self._rejected += 1
        self._note_refused(address, f"connection_creation_rate={self.rates.ip_limit(address)}")
        self.limiter.log(
            logging.INFO,
            "connection from %s rejected: its address is above its connection_creation_rate=%d",
            address,
            self.rates.ip_limit(address),
            source=address,
        )
        if len(self._refused) >= REFUSED_MAX:
            stream.close()
            return
        loop = asyncio.get_running_loop()
        self._refused[stream] = loop.call_later(seconds, self._close_refused, stream)

    def _close_refused(self, stream: Stream) -> None:
        self._refused.pop(stream).cancel()
        stream.close()

    def _end_pause(self, listener: Listener) -> None:
        listener.pause = None
        self._update_readers()

    def _rest_from_accepting(self, error: OSError) -> None:
        self.limiter.log(
            logging.ERROR,
            "cannot accept connections: %s; %d are open; raise the limit on open files (ulimit -n)",
            error.strerror,
            len(self._connections),
        )
        loop = asyncio.get_running_loop()
        self._accept_pause = loop.call_later(ACCEPT_PAUSE_SECONDS, self._end_accept_rest)
        self._update_readers()

    def _end_accept_rest(self) -> None:
        self._accept_pause = None
        self._update_readers()

    def _update_readers(self) -> None:
        """Have the event loop report new connections of the listeners that may accept one."""
        loop = asyncio.get_running_loop()
        may_accept = self._is_accepting and self._accept_pause is None
        self._is_full = False
        for port_listener, listener in self._listeners.items():
            listener.is_full = listener.is_full and not self._has_room(listener)
            self._is_full = self._is_full or listener.is_full
            reads = may_accept and listener.pause is None and not listener.is_full
            if reads and not listener.is_reading:
                loop.add_reader(port_listener.fileno(), self._on_acceptable, port_listener)
            elif listener.is_reading and not reads:
                loop.remove_reader(port_listener.fileno())
            listener.is_reading = reads

    def _stop_accepting(self) -> None:
        self._is_accepting = False
        self._update_readers()
        for listener in self._listeners.values():
            if listener.pause is not None:
                listener.pause.cancel()
        for stream in list(self._refused):
            self._close_refused(stream)

    # Idle connections.

    def _schedule_sweep(self) -> None:
        self._sweep = asyncio.get_running_loop().call_later(self.sweep_seconds(), self._sweep_now)

    def _sweep_now(self) -> None:
        # First, so that an exception below, which the loop reports, does not end the sweeps.
        if self._listeners or self._connections:
            self._schedule_sweep()
        self.sweep(asyncio.get_running_loop().time())

    def sweep(self, now: float) -> None:
        """Close the connections that are idle or have not begun in time; `now` is in monotonic seconds.

        A connection with an unanswered request and no output waits for the broker and stays open, unless a
        limit has paused reading: then the event loop does not report a peer that is gone. A peer that does
        not read its responses has pending output, so it counts as idle. A consumer that processes its last
        batch for some minutes looks the same; therefore the sweep applies the whole limit to both.
        """
        self.limiter.report_suppressed()
        self._foreign.report_suppressed()
        limit_ms = self._config.connections_max_idle_ms
        oldest = now - limit_ms / 1000
        for connection in list(self._connections.values()):
            if connection.due is not None and connection.due < now:
                self._expired += 1
                self.end_overdue(connection)
            elif connection.last_active < oldest and (
                connection.is_reading_paused or not connection.is_waiting_for_broker
            ):
                self._expired += 1
                connection.close(f"no byte moved for connections.max.idle.ms={limit_ms}")


def _plain_peer(host: str) -> str:
    """Return a peer's address in plain form; one of IPv4 has it already."""
    return plain_address(host) if ":" in host else host
