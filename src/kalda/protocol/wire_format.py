"""Codes the parts of the wire format that need code: unsigned varints, tagged sections, topic ids.

Readers take a buffer and a position and return the value and the position after it. They raise `IndexError`
where the buffer ends, which `codec` and `headers` turn into `ProtocolError`; for all other malformed input
they raise `ProtocolError` themselves.
"""

from functools import lru_cache
from typing import Final

from kalda.common.types import UUID
from kalda.protocol.protocol_errors import ProtocolError

Buffer = bytes | bytearray | memoryview

STRING_BYTES_MAX: Final = 0x7FFF
"""Kafka caps a string at what an int16 length can say, in the compact form too."""

ELEMENTS_MAX: Final = 1_000_000
"""Elements of arrays of structs and strings, and tagged fields, that one message may have together.

An empty element has 2 bytes on the wire and 70 or more in memory, so a frame of 100 MB of them would take
gigabytes and hold the event loop for many seconds. The largest honest message is the metadata of a whole
cluster, which with 200,000 partitions is far below. Numbers need no such bound: they grow by less than 10.
"""

NULL_IN_PLACE: Final = -1
NULL_IN_TAG: Final = 0
"""The mark of a struct that is null, where 1 means that one follows: a signed byte, but in the tagged
section an unsigned varint. Apache Kafka's generator makes this difference, KIP-482 does not mention it."""

_SHORT_UVARINTS: Final = tuple(bytes((value,)) for value in range(0x80))


def encode_uvarint(value: int) -> bytes:
    """Write an unsigned varint: 7 bits a byte, the lowest first, the top bit set on all but the last."""
    if value < 0x80:
        return _SHORT_UVARINTS[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 5 bytes."""
    value = 0
    for shift in range(0, 35, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ProtocolError(f"a varint before byte {position} has more than 5 bytes")


def take_elements(room: int, count: int, elements_max: int = ELEMENTS_MAX) -> int:
    """Return how many more elements a message may have after `count`, of the `room` that it had before.

    Raises:
        ProtocolError: these are more than `elements_max` with those before.
    """
    if count > room:
        raise ProtocolError(f"more than {elements_max} elements")
    return room - count


STEP_ELEMENTS: Final = 16
"""Elements after which the codecs that work in steps let other work come in: 10 to 50 microseconds."""


def skip_tagged_fields(buffer: Buffer, position: int, end: int, room: int = ELEMENTS_MAX) -> tuple[int, int]:
    """Step over a tagged section (KIP-482) of which no field is known, from its count on.

    Returns the position after it, and what the fields leave of `room`, as `take_elements` does.
    """
    if not buffer[position]:
        return position + 1, room
    count, position = read_uvarint(buffer, position)
    room = take_elements(room, count)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        position += size
        if position > end:
            raise ProtocolError(f"a tagged field of {size} bytes runs over the end at byte {end}")
    return position, room


# Every request that names a topic by id carries one of the few ids that the cluster knows, and building a
# UUID costs ten times a look-up. The bound keeps junk ids from growing the table.
@lru_cache(maxsize=8192)
def uuid_from_bytes(raw: bytes) -> UUID:
    """The id of 16 bytes."""
    return UUID(bytes=raw)
