"""Reads DER, the binary form of certificates and keys, as far as key stores and names need it."""

from collections.abc import Iterator
from typing import NamedTuple

SEQUENCE = 0x30
SET = 0x31
OBJECT_IDENTIFIER = 0x06
OCTET_STRING = 0x04
_LONG_FORM = 0x80


class DerError(ValueError):
    """Bytes are not DER."""


class Element(NamedTuple):
    """One element: its tag, its content, and the whole of it."""

    tag: int
    content: bytes
    encoded: bytes


def elements(data: bytes) -> Iterator[Element]:
    """Yield the elements that stand one behind the other in `data`.

    Raises:
        DerError: an element ends behind `data`, or its length has more than four bytes.
    """
    position = 0
    while position < len(data):
        start = position
        try:
            tag, length = data[position], data[position + 1]
        except IndexError:
            raise DerError(f"an element at byte {start} has no length") from None
        position += 2
        if length & _LONG_FORM:
            count = length & ~_LONG_FORM
            if not 1 <= count <= 4 or position + count > len(data):
                raise DerError(f"the element at byte {start} has a length of {count} bytes")
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        end = position + length
        if end > len(data):
            raise DerError(f"the element at byte {start} ends at {end} of {len(data)} bytes")
        yield Element(tag, data[position:end], data[start:end])
        position = end


def object_identifier(content: bytes) -> str:
    """Return an object identifier in its dotted form.

    Raises:
        DerError: it ends within a number.
    """
    numbers: list[int] = []
    value = 0
    pending = True
    for byte in content:
        value = value << 7 | byte & 0x7F
        pending = bool(byte & 0x80)
        if not pending:
            numbers.append(value)
            value = 0
    if pending:
        raise DerError("an object identifier ends within a number")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
