"""Implements one side of a TLS connection without its socket, over OpenSSL's memory buffers.

What arrives goes in by `receive`, what must be sent comes out by `take_output`. The handshake, alerts and key
updates are part of both streams, so output may be there after any call.

Memory buffers instead of Python's ``SSLSocket``: that one makes two system calls per record of 16 KB it
reads; here one call fetches many records (ADR 29).
"""

import ssl
from typing import Final

PLAINTEXT_RECORD_MAX: Final = 16 * 1024
"""Bytes that one record carries at most."""


class TlsChannelError(Exception):
    """The peers cannot agree, or one of them broke the protocol; the message gives OpenSSL's reason."""


class TlsChannel:
    """The TLS state of one connection."""

    __slots__ = ("_incoming", "_object", "_outgoing", "is_established")

    def __init__(
        self, context: ssl.SSLContext, *, server_hostname: str | None = None, is_server: bool
    ) -> None:
        """`server_hostname` is the name that a client wants to reach: it is sent (SNI) and checked."""
        self._incoming: Final = ssl.MemoryBIO()
        self._outgoing: Final = ssl.MemoryBIO()
        self._object: Final = context.wrap_bio(
            self._incoming, self._outgoing, server_side=is_server, server_hostname=server_hostname
        )
        self.is_established = False
        """Whether the handshake is complete."""

    def receive(self, data: bytes | memoryview) -> None:
        """Receive bytes from the peer."""
        self._incoming.write(data)

    def receive_end(self) -> None:
        """Note that the peer sends no more."""
        self._incoming.write_eof()

    def handshake(self) -> bool:
        """Continue the handshake; return whether it is complete.

        Raises:
            TlsChannelError: it failed. `take_output` has the alert for the peer.
        """
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise TlsChannelError(failure_text(error)) from error
        self.is_established = True
        return True

    def read_into(self, buffer: memoryview) -> int:
        """Decrypt into a buffer until it is full or nothing more is there; return the number of bytes.

        Raises:
            TlsChannelError: what arrived is not what the peer sent, or the peer sent an alert.
            EOFError: the peer ended the stream, and nothing is left before its end.
        """
        filled, size = 0, len(buffer)
        assert size, "reading into an empty buffer would look like the end of the stream"
        read = self._object.read
        try:
            while filled < size:
                count = read(size - filled, buffer[filled:])
                if not count:
                    break
                filled += int(count)
        except ssl.SSLWantReadError:
            return filled
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            pass
        except ssl.SSLError as error:
            raise TlsChannelError(failure_text(error)) from error
        if not filled:
            raise EOFError
        return filled

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt all of `data`; `take_output` has the result.

        Raises:
            TlsChannelError: the connection cannot carry data any more.
        """
        size = len(data)
        write = self._object.write
        try:
            done = write(data)
            if done < size:
                view = memoryview(data)
                while done < size:
                    done += write(view[done:])
        except ssl.SSLError as error:
            raise TlsChannelError(failure_text(error)) from error

    def take_output(self) -> bytes:
        """Return, once, what must be sent to the peer."""
        return self._outgoing.read()

    @property
    def has_output(self) -> bool:
        """Whether `take_output` would return bytes."""
        return self._outgoing.pending > 0

    @property
    def has_input(self) -> bool:
        """Whether something that arrived was not read yet."""
        return self._incoming.pending > 0 or self._object.pending() > 0

    def close(self) -> None:
        """Send the peer a notice that no more follows, if the handshake is complete."""
        if self.is_established:
            try:
                self._object.unwrap()
            except (ssl.SSLError, ValueError):
                # The peer's own notice is not there yet, or the connection is broken.
                return

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate that the peer proved to own, in DER; None if it showed none."""
        return self._object.getpeercert(binary_form=True)

    @property
    def cipher(self) -> str:
        """The cipher suite, by OpenSSL's name; the empty text before the handshake."""
        found = self._object.cipher()
        return "" if found is None else found[0]

    @property
    def version(self) -> str:
        """The version of the protocol, such as ``TLSv1.3``; the empty text before the handshake."""
        return self._object.version() or ""


def failure_text(error: ssl.SSLError) -> str:
    """Return OpenSSL's message about a failure, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the peer's certificate is not accepted: {error.verify_message}"
    reason = (error.reason or "").replace("_", " ").lower()
    return reason or str(error)
