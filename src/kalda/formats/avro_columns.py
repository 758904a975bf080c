"""Decodes many Avro values of one schema at once: field by field over all values, with numpy.

Each value has a cursor; reading a field moves all cursors. A value that ends too early, or holds what its
schema does not allow, is marked and its cursor stays inside its own bytes, so no value can read another one.
Every index into the data is clipped to the value, and every length is checked.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from kalda.formats.avro_schema import TIMESTAMP_MICROS, AvroSchema
from kalda.formats.decoded import INVALID_TEXT, MALFORMED

Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


class Columns:
    """The columns of values, and which values are bad.

    Args:
        data: The bytes of all values.
        starts: Where each value starts; rising.
        ends: Where it ends.
    """

    def __init__(self, data: Bytes, starts: Ints, ends: Ints) -> None:
        self._data: Final = data
        self.failures: dict[int, tuple[str, str]] = {}
        """The class and the message of each bad value, by its index."""
        self._starts, self._ends = starts, ends

    def decode(self, schema: AvroSchema) -> pa.StructArray:
        """Return one row for each value; those of bad values are meaningless."""
        cursor = _Cursor(self._data, self._starts, self._ends, np.arange(len(self._starts)), self.failures)
        column = cursor.read(schema.expanded, schema.type if schema.is_record else schema.type[0].type, "")
        left = np.flatnonzero(cursor.ends - cursor.positions)
        for index in left:
            count = int(cursor.ends[index] - cursor.positions[index])
            self.failures.setdefault(int(index), (MALFORMED, f"{count} bytes are left behind the value"))
        if schema.is_record:
            return column
        return pa.StructArray.from_arrays([column], fields=list(schema.type))


class _Cursor:
    """Positions in some of the values; `rows` are the indices of these values."""

    def __init__(
        self, data: Bytes, positions: Ints, ends: Ints, rows: Ints, failures: dict[int, tuple[str, str]]
    ) -> None:
        self.data: Final = data
        self.positions = positions.copy()
        self.ends: Final = ends
        self.rows: Final = rows
        self.failures: Final = failures

    def read(self, node: object, kind: pa.DataType, path: str) -> pa.Array:
        """Read a value of an expanded Avro type at each position, as an Arrow array."""
        if isinstance(node, list):
            return self._union(node, kind, path)
        logical: object = None
        if isinstance(node, Mapping):
            logical, name = node.get("logicalType"), node.get("type")
            if name in ("record", "error"):
                fields = node["fields"]
                assert isinstance(fields, list)
                columns = [
                    self.read(f["type"], kind[i].type, f"{path}.{f['name']}".lstrip("."))
                    for i, f in enumerate(fields)
                ]
                return pa.StructArray.from_arrays(columns, fields=list(kind))
            if name == "enum":
                symbols = node["symbols"]
                assert isinstance(symbols, list)
                return self._enum(symbols, path)
            if name == "fixed":
                return self._binary(np.full(len(self.rows), int(str(node["size"])), np.int64), kind, path)
            if not isinstance(name, str):
                return self.read(name, kind, path)
            node = name
        match node:
            case "boolean":
                return self._boolean(path)
            case "int" | "long":
                return self._whole(kind, str(logical), path)
            case "float" | "double":
                return self._floating(4 if node == "float" else 8, kind, path)
        return self._binary(self._long(path), kind, path)

    def fail(self, bad: Bools, path: str, problem: str, error_class: str = MALFORMED) -> None:
        """Mark values as bad, and end their cursors."""
        if not bad.any():
            return
        message = f"{path or 'the value'} {problem}"
        for index in np.flatnonzero(bad):
            self.failures.setdefault(int(self.rows[index]), (error_class, message))
        self.positions[bad] = self.ends[bad]

    def _long(self, path: str) -> Ints:
        """Read a zigzag varint of up to ten bytes; 0 where there is none."""
        data, positions, ends = self.data, self.positions, self.ends
        bad = positions >= ends
        last = len(data) - 1
        found = data[np.minimum(positions, last)]
        value = (found & 0x7F).astype(np.uint64)
        positions = positions + 1
        more = np.flatnonzero((found & 0x80) != 0)
        shift = 7
        while more.size:
            if shift > 63:
                bad[more] = True
                break
            at = positions[more]
            short = at >= ends[more]
            bad[more[short]] = True
            found = data[np.minimum(at, last)]
            value[more] |= (found & 0x7F).astype(np.uint64) << np.uint64(shift)
            positions[more] += 1
            more = more[((found & 0x80) != 0) & ~short]
            shift += 7
        self.positions = np.minimum(positions, ends)
        number = (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)
        self.fail(bad, path, "is no number: the value ends too early, or the number is too long")
        if bad.any():
            number[bad] = 0
        return number

    def _whole(self, kind: pa.DataType, logical: str, path: str) -> pa.Array:
        number = self._long(path)
        if pa.types.is_int32(kind) or pa.types.is_date32(kind):
            bad = (number < -(1 << 31)) | (number >= 1 << 31)
            self.fail(bad, path, "does not fit an int")
            number[bad] = 0
            return pa.array(number.astype(np.int32), pa.int32()).cast(kind)
        if pa.types.is_timestamp(kind):
            factor, divisor = TIMESTAMP_MICROS[logical]
            limit = ((1 << 63) - 1) // factor
            bad = (number < -limit - (factor == 1)) | (number > limit)
            self.fail(bad, path, "does not fit a timestamp")
            number[bad] = 0
            return pa.array(number * factor // divisor, pa.int64()).cast(kind)
        return pa.array(number, pa.int64()).cast(kind)

    def _fixed_bytes(self, width: int, path: str) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
        """Read `width` bytes of each value; zeros where there are fewer."""
        bad = self.positions + width > self.ends
        at = np.where(bad, 0, self.positions)
        self.positions = self.positions + width
        self.fail(bad, path, f"is cut: {width} bytes are expected")
        if len(self.data) < width:
            return np.zeros((len(self.rows), width), np.uint8)
        found: np.ndarray[tuple[int, int], np.dtype[np.uint8]] = self.data[at[:, None] + np.arange(width)]
        return found

    def _boolean(self, path: str) -> pa.Array:
        found = self._fixed_bytes(1, path)[:, 0]
        self.fail(found > 1, path, "is no boolean")
        return pa.array(found == 1)

    def _floating(self, width: int, kind: pa.DataType, path: str) -> pa.Array:
        found = np.ascontiguousarray(self._fixed_bytes(width, path))
        return pa.array(found.view("<f4" if width == 4 else "<f8")[:, 0], kind)

    def _binary(self, lengths: Ints, kind: pa.DataType, path: str) -> pa.Array:
        """Read as many bytes of each value as `lengths` says."""
        bad = (lengths < 0) | (lengths > self.ends - self.positions)
        lengths = np.where(bad, 0, lengths)
        starts = self.positions
        self.positions = starts + lengths
        self.fail(bad, path, "is cut: its bytes are fewer than its length says")
        found = _gathered(self.data, starts, starts + lengths)
        if pa.types.is_string(kind):
            return self._text(found, path)
        return self._decimals(found, kind, path) if pa.types.is_decimal(kind) else found

    def _text(self, found: pa.BinaryArray, path: str) -> pa.StringArray:
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            pass
        texts: list[str] = []
        bad = np.zeros(len(found), np.bool_)
        for index, value in enumerate(found.to_pylist()):
            try:
                texts.append(value.decode())
            except UnicodeDecodeError:
                bad[index] = True
                texts.append("")
        self.fail(bad, path, "is not UTF-8", INVALID_TEXT)
        return pa.array(texts, pa.string())

    def _decimals(self, found: pa.BinaryArray, kind: pa.DataType, path: str) -> pa.Array:
        bad = np.zeros(len(found), np.bool_)
        limit = 10**kind.precision
        words = np.zeros((len(found), 2), np.uint64)
        mask = (1 << 64) - 1
        for index, value in enumerate(found.to_pylist()):
            number = int.from_bytes(value, "big", signed=True) if len(value) <= 32 else limit
            if -limit < number < limit:
                words[index] = number & mask, (number >> 64) & mask
            else:
                bad[index] = True
        self.fail(bad, path, f"does not fit decimal({kind.precision},{kind.scale})")
        return pa.Array.from_buffers(kind, len(found), [None, pa.py_buffer(words.tobytes())])

    def _enum(self, symbols: list[object], path: str) -> pa.StringArray:
        number = self._long(path)
        bad = (number < 0) | (number >= len(symbols))
        self.fail(bad, path, f"is no symbol of the enum: it has {len(symbols)}")
        number[bad] = 0
        return pa.array(symbols, pa.string()).take(pa.array(number))

    def _union(self, branches: list[object], kind: pa.DataType, path: str) -> pa.Array:
        """Read a union of null and one other type."""
        null = branches.index("null")
        branch = self._long(path)
        self.fail((branch < 0) | (branch > 1), path, "has no such branch of the union")
        valid = branch == 1 - null
        chosen = np.flatnonzero(valid)
        part = _Cursor(self.data, self.positions[chosen], self.ends[chosen], self.rows[chosen], self.failures)
        if len(chosen):
            values = part.read(branches[1 - null], kind, path)
            self.positions[chosen] = part.positions
        else:
            values = pa.nulls(0, kind)
        if len(chosen) == len(valid):
            return values
        return values.take(pa.array(np.cumsum(valid) - 1, pa.int64(), mask=~valid))


def _gathered(data: Bytes, starts: Ints, ends: Ints) -> pa.BinaryArray:
    """Return the bytes from each start to its end as an array.

    The ranges rise and do not overlap, so they and the gaps between them are the items of one binary array
    over the data; every second item is taken, which copies in C.
    """
    if not len(starts):
        return pa.array([], pa.binary())
    offsets = np.empty(2 * len(starts), np.int64)
    offsets[0::2], offsets[1::2] = starts, ends
    items = pa.Array.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)]
    )
    return items.take(pa.array(np.arange(0, len(offsets), 2))).cast(pa.binary())
