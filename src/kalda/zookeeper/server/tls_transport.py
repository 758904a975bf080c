"""A transport that encrypts: stands between the event loop's transport and a `ServerConnection`.

The connection is admitted when it is accepted, before its handshake. So half-open handshakes count against
``maxClientCnxns`` and are closed by the same time limit as connections that send no connect request.
asyncio's own TLS would hold them outside the server's limits.
"""

import asyncio
import logging
import ssl
from collections.abc import Iterable
from typing import Final

from kalda.net.foreign_protocols import recognise
from kalda.security.tls.channel import TlsChannel, TlsChannelError
from kalda.zookeeper.server.server_connection import ServerConnection

_HANDSHAKE_RECORD: Final = 22
"""The first byte of a TLS connection; a ZooKeeper client's first byte, of a frame's length, is 0."""

_PLAINTEXT_BYTES: Final = 256 * 1024

_plaintext: Final = bytearray(_PLAINTEXT_BYTES)
"""Where records are decrypted; shared, because the content is copied before anything else runs."""


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """The TLS of one connection; with `is_optional` a client may stay with plaintext."""

    def __init__(
        self, connection: ServerConnection, context: ssl.SSLContext, *, is_optional: bool = False
    ) -> None:
        super().__init__()
        self._connection = connection
        """Until the connection is lost: the two refer to each other, and the garbage collector comes late."""
        self._is_optional: Final = is_optional
        self._channel: TlsChannel | None = TlsChannel(context, is_server=True)
        self._has_begun = False
        self._raw: asyncio.Transport

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection."""
        assert isinstance(transport, asyncio.Transport), f"{transport} is no stream"
        self._raw = transport
        self._connection.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Decrypt, and pass on to the connection."""
        channel = self._channel
        if not self._has_begun:
            self._has_begun = True
            if data[0] != _HANDSHAKE_RECORD:
                if not self._is_optional:
                    self._fail(_reason(data))
                    return
                channel = self._channel = None
        if channel is None:
            self._connection.data_received(data)
            return
        channel.receive(data)
        try:
            if not channel.is_established and not self._shake_hands(channel):
                return
            self._decrypt(channel)
        except TlsChannelError as error:
            # The alert says why, so that the client's log does.
            self._transmit(channel)
            self._fail(f"TLS failed: {error}")
        except EOFError:
            self._connection.abort("it ended the TLS session", logging.DEBUG)

    def eof_received(self) -> None:
        """Close: nobody sends requests any more."""

    def connection_lost(self, exc: BaseException | None) -> None:
        """Report the loss, and free the memory of the TLS session."""
        connection = self._connection
        del self._connection
        self._channel = None
        connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Stop the connection's responses: the client does not read."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Continue with responses."""
        self._connection.resume_writing()

    # Called by the connection.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send."""
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Encrypt and send, each piece in records of its own.

        kazoo reads one response and then waits for the socket, although a second response that came in the
        same record is decrypted already.
        """
        channel = self._channel
        if channel is None:
            self._raw.writelines(list_of_data)
            return
        try:
            for data in list_of_data:
                channel.write(data)
        except TlsChannelError as error:
            self._fail(f"TLS failed: {error}")
            return
        self._transmit(channel)

    def close(self) -> None:
        """Send what is buffered and the notice that nothing follows; then close."""
        if self._channel is not None:
            self._channel.close()
            self._transmit(self._channel)
        self._raw.close()

    def abort(self) -> None:
        """Close at once."""
        self._raw.abort()

    def is_closing(self) -> bool:
        """Return whether `close` or `abort` was called."""
        return self._raw.is_closing()

    def pause_reading(self) -> None:
        """Receive nothing until `resume_reading`."""
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        """Receive again."""
        self._raw.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of encrypted bytes that the client has not taken."""
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return the number of encrypted bytes that the client has not taken."""
        return self._raw.get_write_buffer_size()

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Return what the event loop's transport knows."""
        return self._raw.get_extra_info(name, default)

    def _shake_hands(self, channel: TlsChannel) -> bool:
        is_done = channel.handshake()
        self._transmit(channel)
        if is_done:
            self._connection.certificate_verified(channel.peer_certificate)
        return is_done

    def _decrypt(self, channel: TlsChannel) -> None:
        with memoryview(_plaintext) as buffer:
            while count := channel.read_into(buffer):
                self._connection.data_received(bytes(buffer[:count]))
                if self._connection.is_gone:
                    return
        # Answers of the protocol itself, such as those to key updates.
        self._transmit(channel)

    def _transmit(self, channel: TlsChannel) -> None:
        output = channel.take_output()
        if output:
            self._raw.write(output)

    def _fail(self, reason: str) -> None:
        self._connection.close(reason, logging.WARNING)


def _reason(data: bytes) -> str:
    protocol = recognise(data) if len(data) >= 4 else None
    sent = "plaintext" if protocol is None else protocol.value
    return (
        f"the client sent {sent} to the TLS port; set zookeeper.ssl.client.enable=true in a broker, "
        "zookeeper.client.secure=true in a ZooKeeper client"
    )
