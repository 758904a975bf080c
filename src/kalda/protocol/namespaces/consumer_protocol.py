"""Renames the topics in the bytes of the consumer protocol, which JoinGroup and SyncGroup carry.

The broker reads topics from these bytes: where it deletes offsets, and where classic members are in a group
of the consumer protocol. Only the names change; everything else, as a strategy's user data and what later
versions append, is copied. Bytes that are not of this protocol, as Kafka Connect's, are returned as they are.
"""

import struct
from collections.abc import Callable
from struct import Struct
from typing import Final

Rename = Callable[[bytes], bytes | None]
"""Returns the other name of a topic; None to leave the bytes as they are."""

_VERSION_MAX: Final = 100
"""Versions above are another protocol's bytes: the current one is 3, and a later one only appends."""

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


class _OtherProtocolError(Exception):
    """The bytes are not of the consumer protocol."""


def rename_subscription(data: bytes, rename: Rename) -> bytes:
    """Rename the topics of a subscription: those subscribed, and those of the partitions owned."""
    return _renamed(data, rename, _subscription)


def rename_assignment(data: bytes, rename: Rename) -> bytes:
    """Rename the topics of an assignment."""
    return _renamed(data, rename, _partitions)


def _renamed(data: bytes, rename: Rename, read: Callable[[bytes, int, bytearray, Rename], int]) -> bytes:
    if not data:
        return data
    try:
        (version,) = _INT16.unpack_from(data)
        if not 0 <= version <= _VERSION_MAX:
            return data
        out = bytearray(data[:2])
        position = read(data, 2, out, rename)
    except (struct.error, _OtherProtocolError):
        return data
    return bytes(out + data[position:])


def _subscription(data: bytes, position: int, out: bytearray, rename: Rename) -> int:
    version = _INT16.unpack_from(data)[0]
    count, position = _count(data, position, out)
    for _ in range(count):
        position = _name(data, position, out, rename)
    position = _copy_bytes(data, position, out)
    return _partitions(data, position, out, rename) if version >= 1 and position < len(data) else position


def _partitions(data: bytes, position: int, out: bytearray, rename: Rename) -> int:
    count, position = _count(data, position, out)
    for _ in range(count):
        position = _name(data, position, out, rename)
        partitions, after = _count(data, position, bytearray())
        end = after + 4 * partitions
        if end > len(data):
            raise _OtherProtocolError
        out += data[position:end]
        position = end
    return position


def _count(data: bytes, position: int, out: bytearray) -> tuple[int, int]:
    (count,) = _INT32.unpack_from(data, position)
    if not 0 <= count <= len(data):
        raise _OtherProtocolError
    out += data[position : position + 4]
    return count, position + 4


def _name(data: bytes, position: int, out: bytearray, rename: Rename) -> int:
    (size,) = _INT16.unpack_from(data, position)
    end: int = position + 2 + size
    if size < 0 or end > len(data):
        raise _OtherProtocolError
    renamed = rename(data[position + 2 : end])
    if renamed is None:
        raise _OtherProtocolError
    out += _INT16.pack(len(renamed))
    out += renamed
    return end


def _copy_bytes(data: bytes, position: int, out: bytearray) -> int:
    """Copy nullable bytes."""
    (size,) = _INT32.unpack_from(data, position)
    end: int = position + 4 + max(0, size)
    if size < -1 or end > len(data):
        raise _OtherProtocolError
    out += data[position:end]
    return end
