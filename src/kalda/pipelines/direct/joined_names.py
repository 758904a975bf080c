"""Makes one column of those whose names differ by case alone, as SQL and tables have one for all of them.

Each value says for itself which of the names it uses. The column has the first of the names; a value with
more than one of them is bad, and so is one that does not fit the type of the column.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kalda.formats.decoded import MISMATCH, Decoded, DecodeFailure
from kalda.formats.merging import merged, without_unions
from kalda.pipelines.direct.row_plan import DecodedValues, OpenValueDecoder, ValueDecoder
from kalda.pipelines.tables.fitting import convert

AMBIGUOUS_NAME: Final = "AmbiguousName"
"""The class of a value with two fields whose names differ by case alone."""

Failures = dict[int, tuple[str, str]]
"""Class and message by row."""


@dataclass(frozen=True, slots=True)
class NamesJoined:
    """A decoder whose columns differ by more than case."""

    decoder: ValueDecoder

    def schema(self) -> pa.Schema | None:
        """Return the columns; None where they are known only with data."""
        schema = self.decoder.schema()
        return None if schema is None else pa.schema(list(_joined_type(pa.struct(list(schema)))))

    def columns(self, values: pa.Array) -> pa.StructType:
        """Return the fields that good values of these have, under each of their names."""
        assert isinstance(self.decoder, OpenValueDecoder), "the decoder finds columns"
        return self.decoder.columns(values)

    def with_columns(self, columns: pa.StructType, texts: Collection[str] = ()) -> "NamesJoined":
        """Return the decoder for values with these fields."""
        assert isinstance(self.decoder, OpenValueDecoder), "the decoder finds columns"
        return NamesJoined(self.decoder.with_columns(columns, texts))

    def decode(self, values: pa.Array) -> DecodedValues:
        """Decode a column of values."""
        decoded = self.decoder.decode(values)
        kind = _joined_type(decoded.columns.type)
        if kind == decoded.columns.type:
            return decoded
        found: Failures = {}
        rows = _joined(decoded.columns, kind, "", found)
        bad: dict[int, DecodeFailure] = {row: DecodeFailure(row, *found[row]) for row in found}
        for each in decoded.errors:
            bad[each.row] = DecodeFailure(each.row, each.error_class, each.message, each.schema_id)
        if found:
            mask = pc.or_(rows.is_null(), pa.array([row in found for row in range(len(rows))]))
            rows = pa.StructArray.from_arrays(rows.flatten(), fields=list(kind), mask=mask)
        return Decoded(rows, tuple(bad[row] for row in sorted(bad)))


def _by_name(kind: pa.StructType) -> Mapping[str, Sequence[int]]:
    """Return the places of fields by their names in lower case."""
    places: dict[str, list[int]] = {}
    for index, each in enumerate(kind):
        places.setdefault(each.name.lower(), []).append(index)
    return places


def _joined_type(kind: pa.DataType) -> pa.DataType:
    if not pa.types.is_struct(kind):
        return kind
    fields = []
    for places in _by_name(kind).values():
        first = kind.field(places[0])
        joined = _joined_type(first.type)
        for place in places[1:]:
            joined = _widened(joined, _joined_type(kind.field(place).type))
        fields.append(pa.field(first.name, joined, first.nullable))
    return pa.struct(fields)


def _widened(own: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type of both; the own one where they would have nothing but their texts in common."""
    wider = _joined_type(without_unions(merged(own, other)))
    is_text = pa.types.is_string(wider) and not pa.types.is_null(own)
    return own if is_text else wider


def _joined(column: pa.Array, kind: pa.DataType, path: str, found: Failures) -> pa.Array:
    """Return the values of a structure with joined fields; note the rows in which that is not possible."""
    if column.type == kind or not pa.types.is_struct(kind):
        return column
    children = column.flatten()
    made = []
    for field, places in zip(kind, _by_name(column.type).values(), strict=True):
        joined = pa.nulls(len(column), field.type)
        for place in places:
            name = f"{path}{column.type.field(place).name}"
            values = _joined(children[place], _joined_type(children[place].type), f"{name}.", found)
            fitting, reasons = convert(values, field.type) if values.type != field.type else (values, {})
            for row, reason in reasons.items():
                found.setdefault(row, (MISMATCH, f"{name}: {reason}, which {path}{field.name} is"))
            both = pc.indices_nonzero(pc.and_(joined.is_valid(), fitting.is_valid())).to_pylist()
            message = (
                f"the value has {path}{field.name} and {name}, whose names differ by case alone; SQL and "
                "tables have one column for both"
            )
            for row in both:
                found.setdefault(row, (AMBIGUOUS_NAME, message))
            joined = fitting if joined.null_count == len(joined) else pc.coalesce(joined, fitting)
        made.append(joined)
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(made, fields=list(kind), mask=mask)
