"""Reads the framing of a schema registry: a zero byte, the schema's id in four bytes, then the payload.

Protobuf has the indexes of the message between the id and the payload: a count and that many numbers, as
zigzag varints; the single byte 0 stands for the first message. ``[1, 0]`` is the first message nested in the
second one.
"""

from collections.abc import Sequence
from typing import Final

from kalda.schemas.payloads.errors import BadPayloadError

HEADER_BYTES: Final = 5
_ID_BYTES: Final = HEADER_BYTES - 1
_INDEXES_MAX: Final = 64
"""Messages nest no deeper in practice; a count beyond is a wrong payload."""
_VARINT_BYTES_MAX: Final = 10


def schema_id_of(value: bytes) -> int:
    """Return the id of the schema that a value is framed with.

    Raises:
        BadPayloadError: The value does not begin with the framing.
    """
    if len(value) >= HEADER_BYTES and value[0] == 0:
        return int.from_bytes(value[1:HEADER_BYTES], "big")
    if not value:
        raise BadPayloadError(
            "the value is empty; a framed value begins with 00 and four bytes of a schema id"
        )
    if value[0] != 0:
        raise BadPayloadError(
            f"the first byte is {value[0]:02x}; a framed value begins with 00 and four bytes of a schema id"
        )
    raise BadPayloadError(
        f"the schema id is truncated: {len(value) - 1} of {_ID_BYTES} bytes follow the first byte"
    )


def message_indexes_of(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes of a framed Protobuf value, and the position of its payload.

    Raises:
        BadPayloadError: The indexes are cut short, negative or too many.
    """
    if value[HEADER_BYTES : HEADER_BYTES + 1] == b"\x00":
        return (0,), HEADER_BYTES + 1
    count, at = _zigzag(value, HEADER_BYTES)
    if count == 0:
        return (0,), at
    if not 0 < count <= _INDEXES_MAX:
        raise BadPayloadError(f"the number of message indexes is {count}; 0 to {_INDEXES_MAX} are allowed")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(value, at)
        if index < 0:
            raise BadPayloadError(f"a message index is {index}; the least is 0")
        indexes.append(index)
    return tuple(indexes), at


def framed(schema_id: int, payload: bytes, indexes: Sequence[int] | None = None) -> bytes:
    """Return a payload with the framing; `indexes` are those of the message in Protobuf."""
    head = b"\x00" + schema_id.to_bytes(_ID_BYTES, "big")
    return head + (b"" if indexes is None else message_path(indexes)) + payload


def message_path(indexes: Sequence[int]) -> bytes:
    """Return message indexes as they stand in front of a Protobuf payload."""
    if list(indexes) == [0]:
        return b"\x00"
    return b"".join(_written(number) for number in (len(indexes), *indexes))


def _written(number: int) -> bytes:
    raw = (number << 1) ^ (number >> 63)
    written = bytearray()
    while raw > 0x7F:
        written.append(raw & 0x7F | 0x80)
        raw >>= 7
    written.append(raw)
    return bytes(written)


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        if at >= len(value):
            raise BadPayloadError("the value ends inside its message indexes")
        byte = value[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
    raise BadPayloadError("a message index is longer than ten bytes")
