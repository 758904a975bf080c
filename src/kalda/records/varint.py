"""Reads and writes zigzag varints, the integers inside records.

Flexible protocol versions use unsigned varints instead, see `kalda.protocol`. Record iteration and the
columnar decoder inline the one-byte case; they must agree with the general form here: at most 5 bytes for
32 bits, at most 10 for 64, surplus high bits dropped.
"""

from typing import Final

from kalda.records.errors import CorruptRecordError, NeedMoreBytes

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10


def _read_unsigned(buffer: bytes | bytearray | memoryview, position: int, bytes_max: int) -> tuple[int, int]:
    value = 0
    size = len(buffer)
    for shift in range(0, 7 * bytes_max, 7):
        if position >= size:
            raise NeedMoreBytes(f"varint is cut at byte {position}")
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise CorruptRecordError(f"varint before byte {position} is longer than {bytes_max} bytes")


def read_raw_varint(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Read a 32-bit varint without undoing the zigzag: odd is negative, ``raw >> 1`` else the value.

    For loops that handle the one-byte case themselves: two bytes are tried first. Raises as `read_varint`.
    """
    if position + 1 < len(buffer):
        first = buffer[position]
        second = buffer[position + 1]
        if first > 0x7F and second < 0x80:
            return (first & 0x7F) | second << 7, position + 2
    raw, position = _read_unsigned(buffer, position, VARINT_BYTES_MAX)
    return raw & 0xFFFFFFFF, position


def read_raw_varlong(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Read a 64-bit varint without undoing the zigzag; see `read_raw_varint`."""
    if position + 1 < len(buffer):
        first = buffer[position]
        second = buffer[position + 1]
        if first > 0x7F and second < 0x80:
            return (first & 0x7F) | second << 7, position + 2
    raw, position = _read_unsigned(buffer, position, VARLONG_BYTES_MAX)
    return raw & 0xFFFFFFFFFFFFFFFF, position


def read_varint(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Read a 32-bit zigzag varint; return its value and the position behind it.

    ``read_varint(b"\x03", 0) == (-2, 1)``. Raises `NeedMoreBytes` at the buffer's end and
    `CorruptRecordError` for more than 5 bytes.
    """
    raw, position = read_raw_varint(buffer, position)
    return (raw >> 1) ^ -(raw & 1), position


def read_varlong(buffer: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """Read a 64-bit zigzag varint; return its value and the position behind it. Raises as `read_varint`."""
    raw, position = read_raw_varlong(buffer, position)
    return (raw >> 1) ^ -(raw & 1), position


def write_varint(out: bytearray, value: int) -> None:
    """Append `value` (32 or 64 bits, the encoding is the same) as a zigzag varint."""
    raw = value << 1 if value >= 0 else ~(value << 1)
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)


def varint(value: int) -> bytes:
    """Return `value` as a zigzag varint."""
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def varint_size(value: int) -> int:
    """Return how many bytes `write_varint` appends for `value`."""
    raw = value << 1 if value >= 0 else ~(value << 1)
    return max(1, (raw.bit_length() + 6) // 7)
