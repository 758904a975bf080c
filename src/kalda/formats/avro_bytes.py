"""Checks that bytes are a value of an Avro schema; fastavro reads more than the specification allows.

fastavro takes a negative index of an enum or a union as one from the end, any byte but 0 as true, and numbers
of any length. This check accepts what `kalda.formats.avro_columns` accepts, so that a value is good or bad
whichever of the two decodes it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kalda.formats.avro_resolution import branch_of, source_of

Check = Callable[[bytes, int], int]
"""Checks the value that starts at an index, and returns where it ends."""
_VARINT_BYTES_MAX: Final = 10
_WIDTHS: Final = {"null": 0, "float": 4, "double": 8}


def checker(written: object, wanted: object) -> Check:
    """Return the function that checks values of an expanded Avro type.

    Args:
        written: The type of the bytes.
        wanted: The reader's type. Of fields that it does not have, only where they end matters; ``None``
            stands for no type.
    """
    is_read = wanted is not None
    if isinstance(written, list):
        return _union([checker(each, wanted) for each in written])
    if isinstance(written, Mapping):
        other = branch_of(wanted, written)
        match written["type"]:
            case "record" | "error":
                return _record(written, other)
            case "array":
                return _blocks(checker(written["items"], _inner(other, "items")), False)
            case "map":
                return _blocks(checker(written["values"], _inner(other, "values")), True)
            case "enum":
                return _number(0, len(written["symbols"]) - 1) if is_read else _number()
            case "fixed":
                return _fixed(int(str(written["size"])))
            case kind:
                return checker(kind, wanted)
    match written:
        case "boolean":
            return _boolean if is_read else _fixed(1)
        case "int":
            return _number(-(1 << 31), (1 << 31) - 1) if is_read else _number()
        case "long":
            return _number()
        case "bytes" | "string":
            return _sized
    return _fixed(_WIDTHS[str(written)])


def _inner(wanted: object, key: str) -> object:
    return wanted.get(key) if isinstance(wanted, Mapping) else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends; bits beyond the 64th are left out, as by Java."""
    found = data[at]
    at += 1
    if found < 0x80:
        return (found >> 1) ^ -(found & 1), at
    value = found & 0x7F
    shift = 7
    while found & 0x80:
        if shift == 7 * _VARINT_BYTES_MAX:
            raise ValueError("a number is too long")
        found = data[at]
        value |= (found & 0x7F) << shift
        shift += 7
        at += 1
    value &= (1 << 64) - 1
    return (value >> 1) ^ -(value & 1), at


def _number(least: int = -(1 << 63), most: int = (1 << 63) - 1) -> Check:
    def check(data: bytes, at: int) -> int:
        value, at = _varint(data, at)
        if not least <= value <= most:
            raise ValueError(f"the number {value} is not in {least} to {most}")
        return at

    return check


def _boolean(data: bytes, at: int) -> int:
    if data[at] > 1:
        raise ValueError(f"the byte {data[at]} is no boolean")
    return at + 1


def _fixed(width: int) -> Check:
    return lambda data, at: at + width


def _sized(data: bytes, at: int) -> int:
    size, at = _varint(data, at)
    if not 0 <= size <= len(data) - at:
        raise ValueError(f"{size} bytes are expected, and there are {len(data) - at}")
    return at + size


def _union(branches: list[Check]) -> Check:
    def check(data: bytes, at: int) -> int:
        index, at = _varint(data, at)
        if not 0 <= index < len(branches):
            raise ValueError(f"there is no branch {index} of the union")
        return branches[index](data, at)

    return check


def _record(written: Mapping[Any, Any], wanted: object) -> Check:
    readers: dict[object, object] = {}
    if isinstance(wanted, Mapping):
        names = [field["name"] for field in written["fields"]]
        readers = {source_of(field, names): field["type"] for field in wanted.get("fields", ())}
    checks = [checker(field["type"], readers.get(field["name"])) for field in written["fields"]]

    def check(data: bytes, at: int) -> int:
        for each in checks:
            at = each(data, at)
        return at

    return check


def _blocks(item: Check, is_map: bool) -> Check:
    """Return the check of the blocks of an array or a map."""

    def check(data: bytes, at: int) -> int:
        while True:
            count, at = _varint(data, at)
            if not count:
                return at
            if count < 0:
                _, at = _varint(data, at)
            for _ in range(abs(count)):
                at = item(data, _sized(data, at) if is_map else at)
                if at > len(data):
                    raise ValueError("the value ends too early")

    return check
