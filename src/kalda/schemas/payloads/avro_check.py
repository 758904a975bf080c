"""Checks Avro payloads by a walk over their bytes; no value is made.

A payload must end where its schema ends. Lengths, varints (32 bits for int), booleans, UTF-8, branches of
unions, indexes of enums, and blocks of arrays and maps are checked. Logical types are not.

A reader gets the bytes and a position and returns the position behind its value, so that reading past the end
is an IndexError or a comparison with the length.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kalda.schemas.payloads.errors import BadPayloadError, UnusableSchemaError
from kalda.schemas.payloads.framing import HEADER_BYTES

Reader = Callable[[bytes, int], int]

DEPTH_MAX: Final = 100
"""Recursive types nest no deeper; a payload of 200 bytes could make Python's stack end."""
EMPTY_ITEMS_MAX: Final = 100_000
"""Items of an array that take no byte; the count alone would make a long loop."""
_NODES_MAX: Final = 20_000
_LONG_BYTES_MAX: Final = 10
_PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


class _BadError(Exception):
    """A value is wrong; readers around it add where it stands."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []

    def as_payload_error(self) -> BadPayloadError:
        path = ""
        for part in reversed(self.path):
            path += part if part.startswith("[") or not path else f".{part}"
        return BadPayloadError(self.reason, path)


class AvroCheck:
    """Checks the payloads of one schema.

    Args:
        text: The schema.
        references: The texts of the schemas that it uses, each after those that it uses itself.

    Raises:
        UnusableSchemaError: A type is unknown or malformed.
    """

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        compiler = _Compiler()
        for reference in references:
            compiler.read(_document(reference))
        node = _document(text)
        self._read: Final = compiler.read(node)
        self._record_name: Final = compiler.name_of(node)

    def record_name_of(self, value: bytes) -> str | None:
        """Return the full name of a record, enum or fixed; None for other types."""
        return self._record_name

    def check(self, values: Sequence[bytes]) -> list[tuple[int, BadPayloadError]]:
        """Return the index and the fault of each framed value that is not of the schema."""
        read = self._read
        faults = []
        for index, value in enumerate(values):
            try:
                end = read(value, HEADER_BYTES)
                if end != len(value):
                    raise _BadError(f"{len(value) - end} bytes follow the end of the value")
            except _BadError as bad:
                faults.append((index, bad.as_payload_error()))
            except IndexError:
                faults.append((index, self._ending(value)))
            except RecursionError:
                faults.append((index, BadPayloadError(f"the value nests deeper than {DEPTH_MAX} levels")))
        return faults

    def _ending(self, value: bytes) -> BadPayloadError:
        """Return the fault of a value that ends too early, with the field where it ends."""
        try:
            # Bytes that each have another one behind them end no varint, so the field says that it is wrong.
            self._read(value + b"\x80" * _LONG_BYTES_MAX, HEADER_BYTES)
        except _BadError as bad:
            bad.reason = f"the value ends inside this field, after {len(value) - HEADER_BYTES} bytes"
            return bad.as_payload_error()
        except (IndexError, RecursionError):
            pass
        return BadPayloadError(f"the value ends too early, after {len(value) - HEADER_BYTES} bytes")


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # Confluent's registry takes a primitive without quotes too.
        if text.strip() in _PRIMITIVES:
            return text.strip()
        raise UnusableSchemaError("the Avro schema is no JSON") from None


class _Compiler:
    """Makes readers of the types of a schema; named types may be used before they end."""

    def __init__(self) -> None:
        self._named: Final[dict[str, list[Reader]]] = {}
        self._takes_nothing: Final[dict[str, bool]] = {}
        self._count = 0

    def name_of(self, node: Any) -> str | None:
        if not isinstance(node, dict) or "name" not in node:
            return None
        return _full_name(node, "")

    def read(self, node: Any, namespace: str = "", depth: int = 0) -> Reader:
        self._count += 1
        if self._count > _NODES_MAX or depth > DEPTH_MAX:
            raise UnusableSchemaError(
                f"the Avro schema has more than {_NODES_MAX} types or nests deeper than {DEPTH_MAX}"
            )
        if isinstance(node, list):
            return _union([self.read(each, namespace, depth + 1) for each in node])
        if isinstance(node, str):
            return self._by_name(node, namespace)
        if not isinstance(node, dict):
            raise UnusableSchemaError(f"the Avro schema has the type {str(node)[:100]!r}")
        kind = node.get("type")
        if isinstance(kind, (dict, list)):
            return self.read(kind, namespace, depth + 1)
        if kind == "array":
            items = node.get("items")
            return _array(self.read(items, namespace, depth + 1), self._is_empty(items, namespace))
        if kind == "map":
            return _map(self.read(node.get("values"), namespace, depth + 1))
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, node, namespace, depth)
        return self._by_name(str(kind), namespace)

    def _by_name(self, name: str, namespace: str) -> Reader:
        if name in _READERS:
            return _READERS[name]
        for full in (name if "." in name else f"{namespace}.{name}" if namespace else name, name):
            if full in self._named:
                holder = self._named[full]
                # A type inside itself has no reader yet.
                return holder[0] if holder else _later(holder)
        raise UnusableSchemaError(f"the Avro schema uses the type {name[:100]!r}, which is not defined")

    def _define(self, kind: str, node: Mapping[str, Any], namespace: str, depth: int) -> Reader:
        full = _full_name(node, namespace)
        holder: list[Reader] = []
        self._named[full] = holder
        try:
            if kind == "enum":
                reader = _enum(len(node["symbols"]))
            elif kind == "fixed":
                reader = _fixed(int(node["size"]))
                self._takes_nothing[full] = not int(node["size"])
            else:
                inner = full.rpartition(".")[0]
                fields = [
                    (str(field["name"]), self.read(field["type"], inner, depth + 1))
                    for field in node["fields"]
                ]
                self._takes_nothing[full] = all(
                    self._is_empty(field["type"], inner) for field in node["fields"]
                )
                reader = _record(fields)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, UnusableSchemaError):
                raise
            raise UnusableSchemaError(
                f"the type {full[:100]!r} of the Avro schema is malformed: {error!r}"
            ) from None
        holder.append(reader)
        return reader

    def _is_empty(self, node: Any, namespace: str) -> bool:
        """Return whether each value of a type takes no byte."""
        if isinstance(node, dict):
            kind = node.get("type")
            if kind in ("record", "error", "fixed"):
                return self._takes_nothing.get(_full_name(node, namespace), False)
            return self._is_empty(kind, namespace)
        if node == "null":
            return True
        if isinstance(node, str):
            full = node if "." in node or not namespace else f"{namespace}.{node}"
            return self._takes_nothing.get(full, self._takes_nothing.get(node, False))
        return False


def _full_name(node: Mapping[str, Any], namespace: str) -> str:
    name = str(node.get("name"))
    space = str(node.get("namespace", namespace) or "")
    return name if "." in name or not space else f"{space}.{name}"


# Readers.


def _later(holder: Sequence[Reader]) -> Reader:
    """Return a reader of a type that is not complete yet."""
    return lambda data, at: holder[0](data, at)


def _null(data: bytes, at: int) -> int:
    return at


def _boolean(data: bytes, at: int) -> int:
    if data[at] > 1:
        raise _BadError(f"a boolean is the byte {data[at]:02x}; 00 and 01 are allowed")
    return at + 1


def _raw(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned varint of up to 64 bits and the position behind it."""
    value = 0
    for shift in range(0, 7 * _LONG_BYTES_MAX, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, at
    raise _BadError("a number is longer than 64 bits")


def _long(data: bytes, at: int) -> int:
    # Without a call and a loop for up to three bytes, which most numbers have.
    if data[at] < 0x80:
        return at + 1
    if data[at + 1] < 0x80:
        return at + 2
    if data[at + 2] < 0x80:
        return at + 3
    return _raw(data, at)[1]


def _int(data: bytes, at: int) -> int:
    if data[at] < 0x80:
        return at + 1
    if data[at + 1] < 0x80:
        return at + 2
    if data[at + 2] < 0x80:
        return at + 3
    value, at = _raw(data, at)
    if value >> 32:
        raise _BadError(f"an int is {(value >> 1) ^ -(value & 1)}, which has more than 32 bits")
    return at


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Return the length of bytes or text, and where they begin."""
    raw = data[at]
    at += 1
    if raw > 0x7F:
        raw, at = _raw(data, at - 1)
    if raw & 1:
        raise _BadError(f"a length is {-(raw >> 1) - 1}")
    return raw >> 1, at


def _bytes(data: bytes, at: int) -> int:
    size, at = _length(data, at)
    if size > len(data) - at:
        raise _BadError(
            f"the value ends inside this field, which has {size} bytes; {len(data) - at} are left"
        )
    return at + size


def _string(data: bytes, at: int) -> int:
    raw = data[at]
    if raw > 0x7F or raw & 1:
        size, at = _length(data, at)
    else:
        size = raw >> 1
        at += 1
    end = at + size
    if end > len(data):
        raise _BadError(
            f"the value ends inside this field, which has {size} bytes; {len(data) - at} are left"
        )
    if not data[at:end].isascii():
        try:
            data[at:end].decode()
        except UnicodeDecodeError as error:
            raise _BadError(f"a text is not UTF-8: {error.reason} at byte {error.start}") from None
    return end


def _fixed(size: int) -> Reader:
    def fixed(data: bytes, at: int) -> int:
        if size > len(data) - at:
            raise _BadError(
                f"the value ends inside this field, which has {size} bytes; {len(data) - at} are left"
            )
        return at + size

    return fixed


def _enum(count: int) -> Reader:
    def enum(data: bytes, at: int) -> int:
        raw = data[at]
        at += 1
        if raw > 0x7F:
            raw, at = _raw(data, at - 1)
        if raw & 1 or raw >> 1 >= count:
            raise _BadError(f"the index of an enum is {(raw >> 1) ^ -(raw & 1)}; it has {count} symbols")
        return at

    return enum


def _union(branches: Sequence[Reader]) -> Reader:
    count = len(branches)

    def union(data: bytes, at: int) -> int:
        raw = data[at]
        at += 1
        if raw > 0x7F:
            raw, at = _raw(data, at - 1)
        if raw & 1 or raw >> 1 >= count:
            raise _BadError(f"the branch of a union is {(raw >> 1) ^ -(raw & 1)}; it has {count} branches")
        return branches[raw >> 1](data, at)

    return union


def _record(fields: Sequence[tuple[str, Reader]]) -> Reader:
    def record(data: bytes, at: int) -> int:
        name = ""
        try:
            for name, read in fields:  # noqa: B007 - the handler names the field
                at = read(data, at)
        except _BadError as bad:
            bad.path.append(name)
            raise
        return at

    return record


def _block(data: bytes, at: int) -> tuple[int, int, int]:
    """Return the items of a block, where it begins, and where it says that it ends; -1 if it does not say."""
    raw = data[at]
    at += 1
    if raw > 0x7F:
        raw, at = _raw(data, at - 1)
    if not raw & 1:
        return raw >> 1, at, -1
    count = (raw >> 1) + 1
    raw, at = _raw(data, at)
    size = (raw >> 1) ^ -(raw & 1)
    if not 0 <= size <= len(data) - at:
        raise _BadError(f"a block has {size} bytes; {len(data) - at} are left")
    return count, at, at + size


def _array(item: Reader, is_empty: bool) -> Reader:
    def array(data: bytes, at: int) -> int:
        index = 0
        try:
            while True:
                # Without a call where a block has up to 63 items and no size.
                raw = data[at]
                if not raw:
                    return at + 1
                if raw < 0x80 and not raw & 1:
                    count, at, end = raw >> 1, at + 1, -1
                else:
                    count, at, end = _block(data, at)
                if not count:
                    return at
                if count > (EMPTY_ITEMS_MAX if is_empty else len(data) - at):
                    raise _BadError(f"a block has {count} items, and {len(data) - at} bytes are left")
                for _ in range(count):
                    at = item(data, at)
                    index += 1
                if end not in (-1, at):
                    raise _BadError(f"a block ends at byte {at}; its size says {end}")
        except _BadError as bad:
            bad.path.append(f"[{index}]")
            raise

    return array


def _map(value: Reader) -> Reader:
    def entries(data: bytes, at: int) -> int:
        while True:
            count, at, end = _block(data, at)
            if not count:
                return at
            if count > len(data) - at:
                raise _BadError(f"a block has {count} entries, and {len(data) - at} bytes are left")
            for _ in range(count):
                key_at = at
                at = _string(data, at)
                try:
                    at = value(data, at)
                except _BadError as bad:
                    size, begin = _length(data, key_at)
                    bad.path.append(f"[{data[begin : begin + size].decode()!r:.60}]")
                    raise
            if end not in (-1, at):
                raise _BadError(f"a block ends at byte {at}; its size says {end}")

    return entries


_READERS: Final[Mapping[str, Reader]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _fixed(4),
    "double": _fixed(8),
    "bytes": _bytes,
    "string": _string,
}
