"""Implements a connection with TLS on a raw non-blocking socket, driven by the event loop's callbacks.

A listener may leave TLS to its clients: whether the first byte begins a handshake decides for the connection.

Received bytes are decrypted into the buffer that all connections share, so requests are handled as on a
plaintext connection. Regions of files are read and encrypted in pieces, because the kernel cannot encrypt
what it sends (ADR 29).

At most one receive of encrypted bytes is kept while a limit holds back requests, and at most one piece of
encrypted output waits for the socket.
"""

import asyncio
import logging
from mmap import mmap
from typing import Final

from kalda.net.connection import ConnectionOwner, FrameHandler
from kalda.net.foreign_protocols import recognise
from kalda.net.framed_connection import FramedConnection
from kalda.net.listener_security import HandshakeObserver
from kalda.net.reply import Chunk, FileRegion, PieceSource
from kalda.net.socket_connection import SEND_TURN_BYTES_MAX
from kalda.protocol.framing import SIZE_BYTES
from kalda.runtime.network import Stream
from kalda.security.tls.channel import TlsChannel, TlsChannelError

TLS_HANDSHAKE: Final = 22
"""The type of the record that every TLS connection begins with."""

PIECE_BYTES_MAX: Final = 256 * 1024
"""Plaintext that is encrypted at once: 16 records, about 0.1 ms."""

_MEMORY: Final = (bytes, bytearray, memoryview)


class TlsConnection(FramedConnection):
    """A connection that owns its socket and encrypts what it sends."""

    __slots__ = (
        "_channel",
        "_has_begun",
        "_is_optional",
        "_observer",
        "_sealed",
    )

    def __init__(
        self,
        owner: ConnectionOwner,
        handle: FrameHandler,
        connection_id: int,
        listener: str,
        peer: tuple[str, int],
        stream: Stream,
        loop: asyncio.AbstractEventLoop,
        channel: TlsChannel,
        observer: HandshakeObserver,
        *,
        is_optional: bool = False,
    ) -> None:
        """With `is_optional` the client may stay with plaintext."""
        super().__init__(owner, handle, connection_id, listener, peer, stream, loop)
        self._channel: TlsChannel | PlainChannel = channel
        self._observer: Final = observer
        self._is_optional: Final = is_optional
        self._has_begun = False
        # Encrypted and not sent yet. While it is not empty, `_blocked` is true, so that nothing else is sent.
        self._sealed: bytes | memoryview = b""

    def _has_unsent(self) -> bool:
        return bool(self._out or self._sealed)

    def _may_handle(self) -> bool:
        return not self._sealed and super()._may_handle()

    def _on_readable(self) -> None:
        is_established = self._channel.is_established
        if is_established and not self._may_handle() and not self._may_handle_flushed():
            self._receive_held()
            return
        self.received_at = self.last_active = self._now()
        received = self._receive_sealed()
        if received and (is_established or self._begins(received) or self._shake_hands()):
            self._decrypt()

    def _receive_sealed(self) -> memoryview | None:
        """Pass what has arrived to the channel; return it, or None where there was nothing to receive."""
        scratch = self._owner.buffers.scratch
        try:
            count = self._stream.recv_into(scratch)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            self._lost(error)
            return None
        if not count:
            self.close("the peer closed the connection", logging.DEBUG)
            return None
        self._owner.bytes_in += count
        self._channel.receive(scratch[:count])
        return scratch[:count]

    def _receive_held(self) -> None:
        """Keep what arrives while a limit holds back requests, and look for the end of the connection.

        A peer that leaves sends a notice before, so that the end is behind the bytes of one receive.
        """
        if not self._is_held or self._draining:
            self._pause()
            return
        if self._paused:
            # There was one receive.
            if self._stream.has_ended():
                self.close("the peer closed the connection", logging.DEBUG)
            else:
                self._pause()
            return
        if self._receive_sealed():
            # `_resume` goes on with it. Until more arrives, reading goes on.
            self._paused = True

    def _begins(self, received: memoryview) -> bool:
        """Check a connection's first bytes; return whether it continues without TLS."""
        if self._has_begun or received[0] == TLS_HANDSHAKE:
            self._has_begun = True
            return False
        self._has_begun = True
        if self._is_optional:
            self._channel = PlainChannel()
            self._channel.receive(received)
            return True
        protocol = recognise(received) if len(received) >= SIZE_BYTES else None
        sent = "plaintext" if protocol is None else protocol.value
        self._refuse(f"the peer sent {sent} to the TLS port; {self._observer.tls_hint}")
        return False

    def _shake_hands(self) -> bool:
        """Continue the handshake; return whether requests may follow."""
        if self._closed:
            return False
        channel = self._channel
        try:
            complete = channel.handshake()
            self._send_channel_output()
            if not complete or self._closed:
                return False
            refusal = self._observer.handshake_completed(self, channel.peer_certificate)
        except TlsChannelError as error:
            self._send_channel_output()
            refusal = str(error)
        if refusal is not None and not self._closed:
            self._refuse(refusal)
        return not self._closed

    def _refuse(self, reason: str) -> None:
        self._observer.authentication_failed(self, reason)
        self.close(f"TLS handshake failed: {reason}", logging.DEBUG)

    def _decrypt(self) -> None:
        """Handle the requests in what arrived, until nothing is left or a limit holds them back."""
        channel = self._channel
        try:
            while not self._closed:
                if self._resumes_soon or not self._may_handle():
                    if channel.has_input:
                        # `_resume` goes on.
                        self._pause()
                    return
                large = self._large
                if large is not None:
                    count = self._decrypt_large(large)
                else:
                    stash = self._stash
                    kept = 0
                    if stash is not None:
                        kept = len(stash)
                        self._shared[:kept] = stash
                    count = channel.read_into(self._shared[kept:])
                    if count:
                        self._stash = None
                        self._received(self._shared, kept + count)
                if not count:
                    break
        except TlsChannelError as error:
            self._send_channel_output()
            self.close(f"the peer broke TLS: {error}", logging.INFO)
        except EOFError:
            self.close("the peer closed the connection", logging.DEBUG)
        except Exception as error:
            self._handler_failed(error)
        else:
            # The reply to a key update, for example.
            if not self._closed and not self._blocked and channel.has_output:
                self._send_channel_output()

    def _decrypt_large(self, buffer: mmap) -> int:
        end = min(len(buffer), self._large_size)
        with memoryview(buffer) as whole, whole[self._large_filled : end] as free:
            count = self._channel.read_into(free)
        if count:
            self._large_received(count)
        return count

    def _resume(self) -> None:
        super()._resume()
        if not self._paused and not self._closed and self._channel.has_input:
            self._decrypt()

    # The transport's side of `Connection`.

    def _transmit(self) -> None:
        out = self._out
        budget = SEND_TURN_BYTES_MAX
        try:
            while self._send_sealed() and out and budget > 0:
                count = self._seal(out)
                if count < 0 or self._closed:
                    return
                budget -= count
        except (BlockingIOError, InterruptedError):
            pass
        except (OSError, TlsChannelError) as error:
            self._lost(error)
            return
        if not out and not self._sealed:
            self._out_bytes = 0
            if self._blocked:
                self._blocked = False
                self._loop.remove_writer(self._descriptor)
        else:
            self._wait_until_writable()

    def _send_sealed(self) -> bool:
        """Send encrypted bytes; return whether none are left."""
        sealed = self._sealed
        if sealed:
            sent = self._stream.send(sealed)
            self._owner.bytes_out += sent
            if sent < len(sealed):
                self._sealed = memoryview(sealed)[sent:]
                return False
            self._sealed = b""
        return True

    def _seal(self, out: list[Chunk]) -> int:
        """Encrypt the next piece of `out` and return its plaintext's size; -1 if it is not there yet."""
        channel = self._channel
        size = done = 0
        try:
            while done < len(out) and size < PIECE_BYTES_MAX:
                chunk = out[done]
                if isinstance(chunk, _MEMORY):
                    if len(chunk) > PIECE_BYTES_MAX:
                        view = memoryview(chunk)
                        channel.write(view[:PIECE_BYTES_MAX])
                        out[done] = view[PIECE_BYTES_MAX:]
                        size += PIECE_BYTES_MAX
                        break
                    if chunk:
                        channel.write(chunk)
                        size += len(chunk)
                    done += 1
                    continue
                if chunk.size <= self._sent_of_first:
                    self._sent_of_first = 0
                    done += 1
                    continue
                piece: bytes | memoryview | None
                if isinstance(chunk, PieceSource):
                    piece = chunk.take()
                    if piece is None:
                        if not size:
                            self._wait_for(chunk)
                            return -1
                        break
                    channel.write(piece)
                else:
                    piece = self._read_file(chunk)
                    if piece is None:
                        return -1
                    channel.write(piece)
                self._sent_of_first += len(piece)
                size += len(piece)
        finally:
            del out[:done]
        self._sealed = channel.take_output()
        return size

    def _read_file(self, region: FileRegion) -> memoryview | None:
        """Read the next piece of a region into the scratch buffer; close and return None at its end."""
        file = region.file
        assert file is not None, "a region with bytes and without a file"
        left = region.size - self._sent_of_first
        scratch = self._owner.buffers.scratch[: min(left, PIECE_BYTES_MAX)]
        count = file.read_into(scratch, region.position + self._sent_of_first)
        if not count:
            self._file_ended(left)
            return None
        return scratch[:count]

    def _send_channel_output(self) -> None:
        """Send the output of the handshake or an alert; bytes that the socket refuses follow later."""
        if self._closed or self._sealed:
            return
        self._sealed = self._channel.take_output()
        if self._sealed:
            self._transmit()

    def _disconnect(self) -> None:
        self._say_goodbye()
        super()._disconnect()

    def _say_goodbye(self) -> None:
        """Send a notice of the end if the socket takes it: OpenSSL's clients log an error without it."""
        if self._sealed:
            return
        self._channel.close()
        try:
            notice = self._channel.take_output()
            if notice:
                self._stream.send(notice)
        except OSError:
            return

    def _lost(self, error: Exception) -> None:
        self._sealed = b""
        super()._lost(error)


class PlainChannel:
    """Stands in for the `TlsChannel` of a client that stays with plaintext: passes bytes on as they are."""

    __slots__ = ("_incoming", "_outgoing")

    is_established: Final = True
    peer_certificate: Final = None

    def __init__(self) -> None:
        self._incoming: Final = bytearray()
        self._outgoing: Final = bytearray()

    def receive(self, data: memoryview) -> None:
        """Receive bytes from the peer."""
        self._incoming.extend(data)

    def handshake(self) -> bool:
        """Do nothing."""
        return True

    def read_into(self, buffer: memoryview) -> int:
        """Move what arrived to a buffer, as far as it fits; return the number of bytes."""
        count = min(len(buffer), len(self._incoming))
        buffer[:count] = self._incoming[:count]
        del self._incoming[:count]
        return count

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Put bytes into the output."""
        self._outgoing.extend(data)

    def take_output(self) -> bytes:
        """Return, once, what must be sent to the peer."""
        output = bytes(self._outgoing)
        self._outgoing.clear()
        return output

    @property
    def has_output(self) -> bool:
        """Whether `take_output` would return bytes."""
        return bool(self._outgoing)

    @property
    def has_input(self) -> bool:
        """Whether something that arrived was not read yet."""
        return bool(self._incoming)

    def close(self) -> None:
        """Do nothing: plaintext has no notice of its end."""
