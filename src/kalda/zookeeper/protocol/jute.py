"""Jute, the serialisation of ZooKeeper's wire protocol and files: big-endian numbers, length-prefixed bytes.

The write functions append to a bytearray; a `Reader` is a cursor over one buffer. It raises `JuteError` on
malformed bytes and never allocates more than the buffer holds.
"""

import struct
from typing import Final

INT: Final = struct.Struct(">i")
LONG: Final = struct.Struct(">q")


class JuteError(Exception):
    """The bytes are not a valid record: truncated, a negative length, a text that is not UTF-8."""


def write_int(out: bytearray, value: int) -> None:
    """Append four bytes."""
    out += INT.pack(value)


def write_long(out: bytearray, value: int) -> None:
    """Append eight bytes."""
    out += LONG.pack(value)


def write_buffer(out: bytearray, value: bytes | bytearray | None) -> None:
    """Append a length and the bytes; None has length -1, which is not the same as empty."""
    if value is None:
        out += INT.pack(-1)
    else:
        out += INT.pack(len(value))
        out += value


def write_text(out: bytearray, value: str) -> None:
    """Append a length in bytes and the text in UTF-8."""
    raw = value.encode()
    out += INT.pack(len(raw))
    out += raw


class Reader:
    """Reads one buffer from front to back."""

    __slots__ = ("_buffer", "_end", "position")

    def __init__(self, buffer: bytes, position: int = 0) -> None:
        self._buffer = buffer
        self._end = len(buffer)
        self.position = position

    @property
    def remaining(self) -> int:
        """The number of bytes that have not been read."""
        return self._end - self.position

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """Read fixed-width fields."""
        position = self.position
        end = position + layout.size
        if end > self._end:
            raise JuteError(f"{layout.size} bytes expected at {position}, {self._end - position} left")
        self.position = end
        return layout.unpack_from(self._buffer, position)

    def int32(self) -> int:
        """Read four bytes."""
        return self.unpack(INT)[0]

    def int64(self) -> int:
        """Read eight bytes."""
        return self.unpack(LONG)[0]

    def boolean(self) -> bool:
        """Read one byte."""
        if self.position >= self._end:
            raise JuteError(f"a byte expected at {self.position}, none left")
        value = self._buffer[self.position]
        self.position += 1
        return value != 0

    def buffer(self) -> bytes | None:
        """Read length-prefixed bytes; a length of -1 is None."""
        length = self.unpack(INT)[0]
        if length == -1:
            return None
        position = self.position
        end = position + length
        if length < 0 or end > self._end:
            raise JuteError(f"a buffer of {length} bytes at {position}, {self._end - position} left")
        self.position = end
        return self._buffer[position:end]

    def text(self) -> str:
        """Read a text; one of length -1 is empty."""
        raw = self.buffer()
        if raw is None:
            return ""
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise JuteError(f"a text before {self.position} is not UTF-8: {error}") from None

    def skip(self, expected: bytes) -> bool:
        """Skip these bytes if they come next; return whether they did."""
        is_next = self._buffer.startswith(expected, self.position)
        if is_next:
            self.position += len(expected)
        return is_next

    def count(self, item_bytes_min: int) -> int:
        """Read a vector's length; raise if its items cannot fit into the remaining bytes."""
        length = self.unpack(INT)[0]
        if length == -1:
            return 0
        if length < 0 or length * item_bytes_min > self.remaining:
            raise JuteError(f"a vector of {length} items at {self.position}, {self.remaining} bytes left")
        return length
