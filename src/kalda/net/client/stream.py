"""Opens the byte stream of a connection to a broker: a socket, or TLS over one.

`connect_stream` returns a `StreamSocket`, which a `Stream` is. `TlsStream` looks the same to its owner:
non-blocking, watched by its descriptor. Unlike a socket it may have received bytes that the descriptor does
not announce, so an owner that stops reading early must ask `TlsStream.has_input`. Clients of brokers, brokers
and clients of ZooKeeper use the same streams, through `StreamConnection`.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from kalda.net.client.client_errors import TlsError
from kalda.protocol.wire_format import Buffer
from kalda.runtime.network import Network, Stream, address_text, receive, send_all
from kalda.runtime.system.network import SYSTEM_NETWORK
from kalda.security.tls.channel import TlsChannel, TlsChannelError
from kalda.security.tls.client import TlsClient

SEALED_BYTES_MAX: Final = 256 * 1024
"""Plaintext that is encrypted at once."""

_RECEIVE_BYTES: Final = 256 * 1024


class StreamSocket(Protocol):
    """The part of a connected, non-blocking socket that a connection uses; a `Stream` has it."""

    def fileno(self) -> int:
        """The descriptor to watch."""

    def recv_into(self, buffer: memoryview, /) -> int:
        """Receive the bytes that have arrived; return 0 at the end of the stream."""

    def send(self, data: bytes | memoryview, /) -> int:
        """Send as much as the kernel takes; return how much that was."""

    def sendmsg(self, buffers: Sequence[Buffer], /) -> int:
        """Send as much of several pieces as the kernel takes; return how much that was."""

    def close(self) -> None:
        """Close it."""


class TlsBrokenError(ConnectionError):
    """The received TLS data is corrupt, or the peer ended TLS with an alert."""


async def connect_stream(
    host: str,
    port: int,
    tls: TlsClient | None,
    *,
    timeout_seconds: float,
    send_buffer_bytes: int = -1,
    receive_buffer_bytes: int = -1,
    network: Network = SYSTEM_NETWORK,
) -> StreamSocket:
    """Connect and, with `tls`, complete the handshake; see `Network.connect`.

    The caller bounds the time: the handshake has no limit of its own.

    Raises:
        OSError: the name is not known, no address accepted, or the connection broke.
        TimeoutError: the time is up.
        TlsError: the handshake failed.
    """
    stream = await network.connect(
        host,
        port,
        timeout_seconds=timeout_seconds,
        send_buffer_bytes=send_buffer_bytes,
        receive_buffer_bytes=receive_buffer_bytes,
    )
    if tls is None:
        return stream
    try:
        channel = TlsChannel(tls.context, server_hostname=host, is_server=False)
        await _shake_hands(stream, channel)
    except TlsChannelError as error:
        stream.close()
        raise TlsError(f"the TLS handshake with {address_text(host, port)} failed: {error}") from None
    except BaseException:
        stream.close()
        raise
    return TlsStream(stream, channel)


async def _shake_hands(stream: Stream, channel: TlsChannel) -> None:
    failure: TlsChannelError | None = None
    is_complete = False
    while not is_complete:
        try:
            is_complete = channel.handshake()
        except TlsChannelError as error:
            failure = error
        if output := channel.take_output():
            await send_all(stream, output)
        if failure is not None:
            raise failure
        if not is_complete:
            received = await receive(stream, _RECEIVE_BYTES)
            if not received:
                raise TlsChannelError(
                    "the broker closed the connection; does this listener use TLS, and accept this client's "
                    "certificate? (`security.protocol`, `ssl.keystore.location`)"
                )
            channel.receive(received)


class TlsStream:
    """A connected socket with an established TLS channel."""

    __slots__ = ("_accepted", "_channel", "_is_ended", "_sealed", "_stream")

    def __init__(self, stream: Stream, channel: TlsChannel) -> None:
        self._stream: Final = stream
        self._channel: Final = channel
        # Encrypted bytes that the kernel did not take, and of how many bytes of the caller's they are. The
        # caller sends those bytes again, as after any BlockingIOError, and `_accepted` is the answer then.
        self._sealed: bytes | memoryview = b""
        self._accepted = 0
        self._is_ended = False

    def fileno(self) -> int:
        """Return the descriptor of the stream below."""
        return self._stream.fileno()

    @property
    def has_input(self) -> bool:
        """Whether bytes were received that `recv_into` has not returned."""
        return self._channel.has_input

    def recv_into(self, buffer: memoryview, /) -> int:
        """Decrypt what has arrived; return 0 at the end of the stream.

        Raises:
            BlockingIOError: nothing has arrived.
            TlsBrokenError: what arrived is not what the peer sent, or the peer refused this side.
            ConnectionError: the connection broke.
        """
        filled = 0
        try:
            while filled < len(buffer):
                count = self._channel.read_into(buffer[filled:])
                filled += count
                if not count and not self._receive():
                    break
        except TlsChannelError as error:
            raise TlsBrokenError(f"TLS failed: {error}") from error
        except EOFError:
            return filled
        except (BlockingIOError, InterruptedError):
            if not filled:
                raise
        if self._channel.has_output and not self._sealed:
            self._flush()
        return filled

    def _receive(self) -> bool:
        """Take bytes from the socket; return False at its end."""
        received = self._stream.recv(_RECEIVE_BYTES)
        if received:
            self._channel.receive(received)
        return bool(received)

    def send(self, data: bytes | memoryview, /) -> int:
        """Encrypt and send the first part of `data`; return its size.

        Raises:
            BlockingIOError: the kernel took not all; the caller sends the same bytes when it takes more.
            ConnectionError: the connection broke.
        """
        if self._sealed:
            self._flush_or_block()
            accepted, self._accepted = self._accepted, 0
            return accepted
        part = data if len(data) <= SEALED_BYTES_MAX else memoryview(data)[:SEALED_BYTES_MAX]
        try:
            self._channel.write(part)
        except TlsChannelError as error:
            raise TlsBrokenError(f"TLS failed: {error}") from error
        if self._flush():
            return len(part)
        self._accepted = len(part)
        raise BlockingIOError

    def sendmsg(self, buffers: Sequence[Buffer], /) -> int:
        """Encrypt and send the first part of several pieces; see `send`."""
        size, count = 0, 0
        while count < len(buffers) and size < SEALED_BYTES_MAX:
            size += len(buffers[count])
            count += 1
        return self.send(bytes(buffers[0]) if count == 1 else b"".join(buffers[:count]))

    def _flush(self) -> bool:
        """Send encrypted bytes; return whether the kernel took all."""
        sealed = self._sealed or self._channel.take_output()
        try:
            sent = self._stream.send(sealed)
        except (BlockingIOError, InterruptedError):
            sent = 0
        self._sealed = memoryview(sealed)[sent:] if sent < len(sealed) else b""
        return not self._sealed

    def _flush_or_block(self) -> None:
        if not self._flush():
            raise BlockingIOError

    def close(self) -> None:
        """Send a notice of the end if the kernel takes it, and close the socket."""
        if not self._sealed:
            self._channel.close()
            try:
                self._flush()
            except OSError as error:
                # The peer is gone, which is why most connections are closed.
                del error
        self._stream.close()
