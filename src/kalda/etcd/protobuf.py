"""Encodes and decodes fields of protocol buffers: varints and length-delimited values, all that etcd uses.

Encoding follows https://protobuf.dev/programming-guides/encoding/. A field with its default value (0, empty)
is left out, as in proto3.
"""

from collections.abc import Iterator
from typing import Final

_VARINT: Final = 0
_FIXED_64: Final = 1
_BYTES: Final = 2
_FIXED_32: Final = 5
_TWO_TO_64: Final = 1 << 64
_SIGN: Final = 1 << 63
_VARINT_BITS_MAX: Final = 70

Value = int | bytes


class ProtobufError(ValueError):
    """Bytes are no message of protocol buffers."""


def varint(value: int) -> bytes:
    """Encode an int64; a negative one takes ten bytes."""
    if value < 0:
        value += _TWO_TO_64
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def integer_field(number: int, value: int) -> bytes:
    """Encode a number or a truth value."""
    return varint(number << 3 | _VARINT) + varint(value) if value else b""


def bytes_field(number: int, value: bytes) -> bytes:
    """Encode bytes or text."""
    return message_field(number, value) if value else b""


def message_field(number: int, value: bytes) -> bytes:
    """Encode a message, which is not left out where it is empty."""
    return varint(number << 3 | _BYTES) + varint(len(value)) + value


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Iterate over the fields of a message: number and value. Fixed-size fields are skipped.

    Raises:
        ProtobufError: the bytes are no message.
    """
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield tag >> 3, value
        elif kind == _BYTES:
            length, position = _varint(data, position)
            stop = position + length
            if length < 0 or stop > end:
                raise ProtobufError(f"a field of {length} bytes at {position} ends behind {end}")
            yield tag >> 3, data[position:stop]
            position = stop
        elif kind in (_FIXED_64, _FIXED_32):
            position += 8 if kind == _FIXED_64 else 4
        else:
            raise ProtobufError(f"wire type {kind} at {position}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(data) or shift >= _VARINT_BITS_MAX:
            raise ProtobufError(f"a varint at {position} does not end")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return result - _TWO_TO_64 if result & _SIGN else result, position
