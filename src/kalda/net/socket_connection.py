"""Implements a plaintext connection on a raw non-blocking socket, driven by the event loop's callbacks.

asyncio's transports copy received bytes and cannot `sendfile` between writes. Here a request costs one
``recv_into`` a shared buffer and one ``send``, and all but small file regions are sent with ``sendfile``.
"""

import logging
from mmap import mmap
from typing import Final

from kalda.net.connection import COALESCE_BYTES_MAX
from kalda.net.framed_connection import FramedConnection
from kalda.net.reply import Chunk, FileRegion, PieceSource

SEND_TURN_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes that one connection may send before the others get their turn; the last send may exceed it."""

READ_BYTES_MAX: Final = 8 * 1024
"""A file region up to this size is read and leaves in one send with what is around it: a ``sendfile`` of its
own, at 4 to 5 us, costs as much as the copy of this many bytes or more."""

_MEMORY: Final = (bytes, bytearray, memoryview)
_NO_FILE: Final = (*_MEMORY, PieceSource)


class SocketConnection(FramedConnection):
    """A connection without encryption."""

    __slots__ = ()

    def _on_readable(self) -> None:
        if (
            (self._out or self._outstanding or self._draining)
            and not self._may_handle()
            and not self._may_handle_flushed()
        ):
            # Checked only here, because a peer that waits for its reply sends nothing and needs no pausing.
            if self._is_held and self._stream.has_ended():
                # Its request may take seconds, which are saved.
                self.close("the peer closed the connection", logging.DEBUG)
                return
            self._pause()
            return
        self.received_at = self.last_active = self._now()
        try:
            if self._large is not None:
                self._read_large(self._large)
                return
            stash = self._stash
            if stash is None:
                count = self._stream.recv_into(self._shared)
                kept = 0
            else:
                if self._resumes_soon:
                    # The stash is this connection's next turn; it may hold no more than the buffer takes.
                    return
                kept = len(stash)
                self._shared[:kept] = stash
                count = self._stream.recv_into(self._shared[kept:])
                self._stash = None
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(error)
            return
        if not count:
            self.close("the peer closed the connection", logging.DEBUG)
            return
        self._owner.bytes_in += count
        try:
            self._received(self._shared, kept + count)
        except Exception as error:
            self._handler_failed(error)

    def _read_large(self, buffer: mmap) -> None:
        end = min(len(buffer), self._large_size)
        with memoryview(buffer) as whole, whole[self._large_filled : end] as free:
            count = self._stream.recv_into(free)
        if not count:
            self.close("the peer closed the connection in the middle of a request", logging.DEBUG)
            return
        self._owner.bytes_in += count
        try:
            self._large_received(count)
        except Exception as error:
            self._handler_failed(error)

    def _transmit(self) -> None:
        out = self._out
        try:
            first = out[0]
            if len(out) == 1 and type(first) is bytes:
                # Nearly every reply but those of Fetch: one piece, and the socket takes it whole.
                sent = self._stream.send(first)
                self._owner.bytes_out += sent
                if sent == len(first):
                    out.clear()
                else:
                    out[0] = memoryview(first)[sent:]
            else:
                self._send_chunks(out)
            if not out:
                self._out_bytes = 0
                if self._blocked:
                    self._blocked = False
                    self._loop.remove_writer(self._descriptor)
                return
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._lost(error)
            return
        self._wait_until_writable()

    def _send_chunks(self, out: list[Chunk]) -> None:
        """Send from the front of `out` until it is empty or the socket or this turn is full."""
        done = 0
        sent_now = 0
        try:
            while done < len(out):
                chunk = out[done]
                if sent_now >= SEND_TURN_BYTES_MAX and (
                    isinstance(chunk, _MEMORY) or self._sent_of_first < chunk.size
                ):
                    return
                if isinstance(chunk, _MEMORY) or self._read_small(out, done):
                    end, data = self._join(out, done)
                    more = end < len(out) and _has_bytes(out[end])
                    sent = self._stream.send(data, self._stream.MORE if more else 0)
                    self._owner.bytes_out += sent
                    sent_now += sent
                    if sent < len(data):
                        done = end - 1
                        out[done] = memoryview(data)[sent:]
                        return
                    done = end
                elif isinstance(chunk, PieceSource):
                    piece = chunk.take() if self._sent_of_first < chunk.size else b""
                    if piece is None:
                        self._wait_for(chunk)
                        return
                    self._sent_of_first += len(piece)
                    if self._sent_of_first == chunk.size:
                        self._sent_of_first = 0
                        out[done] = piece
                    else:
                        out.insert(done, piece)
                elif chunk.size <= self._sent_of_first:
                    self._sent_of_first = 0
                    done += 1
                else:
                    sent_now += self._send_file(chunk)
                    if self._closed:
                        return
        finally:
            del out[:done]

    def _join(self, out: list[Chunk], start: int) -> tuple[int, bytes | bytearray | memoryview]:
        """Join neighbouring small chunks, so that pipelined replies leave in one send."""
        first = out[start]
        assert isinstance(first, _MEMORY)
        size = len(first)
        end = start + 1
        parts: list[bytes | bytearray | memoryview] = [first]
        while end < len(out) and size < COALESCE_BYTES_MAX:
            chunk = out[end]
            if not isinstance(chunk, _MEMORY):
                if not self._read_small(out, end):
                    break
                # Now its bytes.
                continue
            parts.append(chunk)
            size += len(chunk)
            end += 1
        return end, first if end == start + 1 else b"".join(parts)

    def _read_small(self, out: list[Chunk], position: int) -> bool:
        """Replace a small file region, of which nothing was sent, by its bytes; return whether it is one."""
        region = out[position]
        if self._sent_of_first or isinstance(region, _NO_FILE):
            return False
        if not 0 < region.size <= READ_BYTES_MAX:
            return False
        file = region.file
        assert file is not None, "a region with bytes and without a file"
        data = file.read_at(region.size, region.position)
        if len(data) != region.size:
            # The file is shorter than that; `_send_file` ends the connection.
            return False
        out[position] = data
        return True

    def _send_file(self, region: FileRegion) -> int:
        left = region.size - self._sent_of_first
        position = region.position + self._sent_of_first
        file = region.file
        assert file is not None, "a region with bytes and without a file"
        sent = self._stream.send_file(file, position, min(left, SEND_TURN_BYTES_MAX))
        if not sent:
            self._file_ended(left)
            return 0
        self._sent_of_first += sent
        self._owner.bytes_out += sent
        return sent


def _has_bytes(chunk: Chunk) -> bool:
    # `MORE` before nothing would keep the peer waiting for 200 ms.
    return bool(len(chunk) if isinstance(chunk, _MEMORY) else chunk.size)
