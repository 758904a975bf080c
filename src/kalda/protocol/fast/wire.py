"""Reads the wire types that the fast codecs share, from a memoryview at a position.

Every function returns the value and the position after it. A read beyond the buffer raises `struct.error` or
`IndexError`. A slice of a memoryview does not raise, so each length is checked against `limit`. The entry
points of the fast codecs turn these errors into `ProtocolError`.
"""

from struct import Struct
from typing import Final, NamedTuple

from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.wire_format import take_elements

ELEMENTS_MAX: Final = 50_000
"""Topics, partitions and tagged fields that one Produce or Fetch request may have together. They are parsed
in one piece, up to a microsecond each. A broker has 20,000 partitions or so."""

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")

_VARINT_BYTES_MAX: Final = 5
"""An unsigned varint of the protocol has at most 32 bits: five groups of seven."""


class NodeEndpoint(NamedTuple):
    """Where the broker that leads a partition is found (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None


def read_unsigned_varint(frame: memoryview, position: int) -> tuple[int, int]:
    """Read an unsigned varint of up to 32 bits."""
    value = frame[position]
    if value < 0x80:
        return value, position + 1
    value &= 0x7F
    for group in range(1, _VARINT_BYTES_MAX):
        byte = frame[position + group]
        value |= (byte & 0x7F) << (7 * group)
        if byte < 0x80:
            return value & 0xFFFFFFFF, position + group + 1
    raise ProtocolError(f"varint at position {position} is longer than {_VARINT_BYTES_MAX} bytes")


def write_unsigned_varint(value: int) -> bytes:
    """Write an unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def read_string(frame: memoryview, position: int, limit: int, flexible: bool) -> tuple[bytes | None, int]:
    """Read a nullable string as its UTF-8 bytes."""
    if flexible:
        length, position = read_unsigned_varint(frame, position)
        length -= 1
    else:
        (length,) = INT16.unpack_from(frame, position)
        position += 2
    if length < 0:
        if length < -1:
            raise ProtocolError(f"string length {length} is negative")
        return None, position
    end = position + length
    if end > limit:
        raise ProtocolError(f"string of {length} bytes passes the end of the request")
    return bytes(frame[position:end]), end


def read_text(frame: memoryview, position: int, limit: int, flexible: bool) -> tuple[bytes, int]:
    """Read a string that may not be null, as its UTF-8 bytes."""
    value, position = read_string(frame, position, limit, flexible)
    if value is None:
        raise ProtocolError("a string that may not be null is null")
    return value, position


def read_array_count(frame: memoryview, position: int, limit: int, flexible: bool) -> tuple[int, int]:
    """Read the element count of an array that may not be null; an element takes a byte at the least."""
    if flexible:
        count, position = read_unsigned_varint(frame, position)
        count -= 1
    else:
        (count,) = INT32.unpack_from(frame, position)
        position += 4
    if count < 0:
        raise ProtocolError(f"array count {count} is negative")
    if count > limit - position:
        raise ProtocolError(f"array of {count} elements in {limit - position} bytes")
    return count, position


def skip_tagged_fields(
    frame: memoryview, position: int, limit: int, room: int = ELEMENTS_MAX
) -> tuple[int, int]:
    """Skip a tagged-fields section whose tags rise; return what `wire_format.skip_tagged_fields` does."""
    if not frame[position]:
        return position + 1, room
    count, position = read_unsigned_varint(frame, position)
    room = take_elements(room, count, ELEMENTS_MAX)
    previous = -1
    for _ in range(count):
        previous, length, position = read_tag(frame, position, limit, previous)
        position += length
    return position, room


def read_tag(frame: memoryview, position: int, limit: int, previous: int) -> tuple[int, int, int]:
    """Read one tag and its length; tags come in rising order (KIP-482)."""
    tag, position = read_unsigned_varint(frame, position)
    length, position = read_unsigned_varint(frame, position)
    if tag <= previous:
        raise ProtocolError(f"tag {tag} follows tag {previous}")
    if length > limit - position:
        raise ProtocolError(f"tagged field {tag} of {length} bytes passes the end of the request")
    return tag, length, position


def append_node_endpoints(out: bytearray, endpoints: tuple[NodeEndpoint, ...]) -> None:
    """Append a tagged-fields section that holds the endpoints under tag 0, or is empty (KIP-951)."""
    if not endpoints:
        out.append(0)
        return
    field = bytearray(write_unsigned_varint(len(endpoints) + 1))
    for endpoint in endpoints:
        field += INT32.pack(endpoint.node_id)
        append_nullable_string(field, endpoint.host, True)
        field += INT32.pack(endpoint.port)
        append_nullable_string(field, endpoint.rack, True)
        field.append(0)
    out += b"\x01\x00"
    out += write_unsigned_varint(len(field))
    out += field


def append_nullable_string(out: bytearray, text: str | None, flexible: bool) -> None:
    """Append a nullable string."""
    if text is None:
        out += b"\x00" if flexible else b"\xff\xff"
        return
    raw = text.encode()
    out += write_unsigned_varint(len(raw) + 1) if flexible else INT16.pack(len(raw))
    out += raw


_ONE_BYTE: Final = [bytes([value]) for value in range(0x80)]
