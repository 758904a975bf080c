"""Defines what decoding returns: one row for each value, and a failure for each value that is bad.

Row i of `Decoded.columns` belongs to value i, whatever bytes the other values hold. A tombstone
(null value) is a null row without a failure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from kalda.formats.spec import cut

MALFORMED: Final = "MalformedValue"
"""The bytes are not of the format: broken syntax, truncated, left-over bytes."""
MISMATCH: Final = "TypeMismatch"
"""The value is well formed, and a field is not of the declared type."""
NULL_FIELD: Final = "NullField"
"""A field that the schema declares NOT NULL is null or missing."""
INVALID_TEXT: Final = "InvalidText"
"""The bytes of a text are not valid UTF-8."""
BAD_FRAMING: Final = "BadFraming"
"""The value does not start with a schema registry's header."""
UNKNOWN_SCHEMA: Final = "UnknownSchema"
"""The registry has no schema with the id in the header, or one of another kind."""
TOO_LARGE: Final = "ValueTooLarge"
"""The value nests too deeply, or has too many fields or items."""
NO_COLUMN: Final = "FieldWithoutColumn"
"""Without a declared schema: an object has a field that is no column and would be lost."""
DECODER_FAILED: Final = "DecoderFailed"
"""The decoder has no answer for the value; the message has the exception."""


@dataclass(frozen=True, slots=True)
class DecodeFailure:
    """Why one value could not be decoded.

    Args:
        row: Index of the value in the decoded array.
        error_class: A stable name for the kind of failure, for example ``MalformedValue``.
        message: The field, what was found and what is expected.
        schema_id: Id of the registry's schema, or None.
        lost: The nested field of a registry's schema that is no column, or None.
    """

    row: int
    error_class: str
    message: str
    schema_id: int | None = None
    lost: str | None = None


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of decoded values, as many as there were values; null where a value is bad or null."""

    columns: pa.StructArray
    errors: tuple[DecodeFailure, ...]  # ordered by row

    def __post_init__(self) -> None:
        rows = [failure.row for failure in self.errors]
        assert rows == sorted(set(rows)), f"failures are not ordered by row: {rows[:20]}"

    def good(self) -> pa.BooleanArray:
        """Return which rows were decoded: true for all but bad values; a tombstone is true."""
        bad = [failure.row for failure in self.errors]
        mask = [True] * len(self.columns)
        for row in bad:
            mask[row] = False
        return pa.array(mask, pa.bool_())


class BadValueError(Exception):
    """A value is bad; decoders raise it for one value and report it as a `DecodeFailure`."""

    def __init__(self, error_class: str, message: str) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.message = message

    def at(self, row: int, schema_id: int | None = None) -> DecodeFailure:
        """Return the failure of the value at `row`."""
        return DecodeFailure(row, self.error_class, cut(self.message), schema_id)


class ValueDecoder(Protocol):
    """Decodes the values of one format. It is picklable and opens what it needs lazily, in the worker."""

    def schema(self) -> pa.Schema | None:
        """Return the columns of each decoded row, or None when only the values show which they are."""
        ...

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode an array of type binary or large_binary.

        Whether a value is good, and its row, depend on the columns and on its own bytes, not on other values.

        Raises:
            RegistryError: The schema registry does not answer.
            ColumnsChangedError: A value has a column that `Decoder.columns` did not find.
            BadValueError: One of the values is bad, or all of them are too much at once.
        """
        ...


@runtime_checkable
class Decoder(ValueDecoder, Protocol):
    """Decodes values whose columns need not be declared. Where `schema` is None, they are found first."""

    def columns(self, values: pa.BinaryArray) -> pa.StructType:
        """Return the columns that good values of these have, where `schema` is None.

        The types of several calls are merged with `kalda.formats.merging`.
        """
        ...

    def with_columns(self, columns: pa.StructType) -> "Decoder":
        """Return the decoder whose rows have these columns, which were found in all of the values.

        Raises:
            FormatError: There are more columns than a table can have.
        """
        ...


class Encoder(Protocol):
    """Encodes rows as values of one format. It is picklable."""

    def encode(self, rows: pa.StructArray) -> pa.BinaryArray:
        """Return one value for each row; a null row is a null value (tombstone).

        Raises:
            EncodeError: A row cannot be encoded; nothing is returned.
        """
        ...


class EncodeError(ValueError):
    """A row does not fit the schema that it is encoded with; the message names row, field and value."""


def spread(rows: pa.StructArray, positions: Sequence[int], length: int) -> pa.StructArray:
    """Return `length` rows with row i of `rows` at ``positions[i]`` and null elsewhere.

    ``spread([a, b], [0, 2], 4)`` is ``[a, null, b, null]``. `positions` rise.
    """
    assert len(rows) == len(positions), f"{len(rows)} rows for {len(positions)} positions"
    if len(positions) == length:
        return rows
    indices: list[int | None] = [None] * length
    for index, position in enumerate(positions):
        indices[position] = index
    return null_rows(rows.type, length) if not positions else rows.take(pa.array(indices, pa.int64()))


def joined(parts: Iterable[Decoded], kind: pa.DataType) -> Decoded:
    """Return the joined results of consecutive values; `kind` is the type of the rows if there are none."""
    failures: list[DecodeFailure] = []
    rows: list[pa.StructArray] = []
    start = 0
    for part in parts:
        rows.append(part.columns)
        failures += (
            part.errors if not start else [replace(each, row=start + each.row) for each in part.errors]
        )
        start += len(part.columns)
    columns = null_rows(kind, 0) if not rows else rows[0] if len(rows) == 1 else pa.concat_arrays(rows)
    return Decoded(columns, tuple(failures))


def null_rows(kind: pa.DataType, length: int) -> pa.StructArray:
    """Return an array of `length` nulls."""
    return pa.nulls(length, kind)


def nullable(kind: pa.DataType) -> pa.DataType:
    """Return a type with every field nullable: a null row has null fields, also where NOT NULL is
    declared."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, nullable(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(nullable(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, nullable(kind.item_type))
    return kind


def present(values: pa.BinaryArray) -> list[int] | None:
    """Return the positions of values that are not null, or None when all are present."""
    if values.null_count == 0:
        return None
    positions: list[int] = pc.indices_nonzero(values.is_valid()).to_pylist()
    return positions


def merged(failures: Iterable[DecodeFailure]) -> tuple[DecodeFailure, ...]:
    """Return failures ordered by row."""
    return tuple(sorted(failures, key=lambda failure: failure.row))
