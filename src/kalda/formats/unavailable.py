"""Finds Debezium's placeholder of values that a change event does not hold.

PostgreSQL leaves a large value that did not change (TOAST) out of its log, and Oracle a LOB; Debezium then
writes a placeholder in the form that the column's type has. It looks like a value, and would replace the real
one.
"""

import base64
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kalda.common.json_text import strict_json
from kalda.common.types import UUID
from kalda.formats.spec import FormatError

DEFAULT: Final = "__debezium_unavailable_value"
_HEX: Final = "hex:"


class Placeholder:
    """The forms that a placeholder takes; picklable.

    Args:
        text: `unavailable.value.placeholder` of the connector; ``hex:`` and digits stand for bytes.

    Raises:
        FormatError: The text says ``hex:`` and no bytes.
    """

    def __init__(self, text: str = DEFAULT) -> None:
        try:
            self._bytes: Final = bytes.fromhex(text[4:]) if text.startswith(_HEX) else text.encode()
        except ValueError as error:
            raise FormatError(
                f"option unavailable_value is {text!r}; an even count of hexadecimal digits must follow hex:"
            ) from error
        if not self._bytes:
            raise FormatError("option unavailable_value is empty; to switch it off, write none")
        name = self._bytes.decode(errors="replace")
        hashed = UUID(bytes=_md5(self._bytes), version=3)
        texts = [
            name,
            base64.b64encode(self._bytes).decode(),
            base64.urlsafe_b64encode(self._bytes).decode(),
            base64.urlsafe_b64encode(self._bytes).decode().rstrip("="),
            self._bytes.hex(),
            str(hashed),
        ]
        self._name: Final = name
        self._items: Final = tuple(dict.fromkeys(texts))
        self._numbers: Final = [each - 256 if each > 127 else each for each in self._bytes]
        nested = [[each] for each in self._items]
        self._texts: Final = (
            *self._items,
            *map(strict_json, (*nested, self._numbers, {name: name})),
        )

    def rows(self, column: pa.Array) -> list[int]:
        """Return the rows of a column whose value is the placeholder."""
        kind = column.type
        types = pa.types
        if types.is_string(kind):
            return _equal(column, self._texts)
        if types.is_binary(kind):
            return _equal(column, [self._bytes])
        if types.is_list(kind):
            return self._lists(column)
        if types.is_map(kind) and types.is_string(kind.key_type):
            return [
                row for row, value in enumerate(column.to_pylist()) if value and value[0][0] == self._name
            ]
        if types.is_struct(kind) and kind.get_field_index(self._name) >= 0:
            rows: list[int] = pc.indices_nonzero(pc.struct_field(column, self._name).is_valid()).to_pylist()
            return rows
        return []

    def _lists(self, column: pa.ListArray) -> list[int]:
        item = column.type.value_type
        if pa.types.is_integer(item):
            length, expected = len(self._numbers), self._numbers
            fits = pc.equal(pc.list_value_length(column), length)
            return [
                row
                for row in pc.indices_nonzero(pc.fill_null(fits, False)).to_pylist()
                if column[row].as_py() == expected
            ]
        single = pc.indices_nonzero(pc.fill_null(pc.equal(pc.list_value_length(column), 1), False))
        items = column.take(single).flatten()
        rows: list[int] = single.take(pa.array(self.rows(items), pa.int64())).to_pylist()
        return rows


def _equal(column: pa.Array, texts: Sequence[object]) -> list[int]:
    found: list[int] = pc.indices_nonzero(pc.is_in(column, pa.array(texts, column.type))).to_pylist()
    return found


def _md5(data: bytes) -> bytes:
    import hashlib

    return hashlib.md5(data, usedforsecurity=False).digest()
