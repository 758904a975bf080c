"""Turns rows of columns into the columns of records: key, value, and what a record may have beside them.

It is used wherever a pipeline writes a topic. Equal keys give equal bytes, on every path and in every
version, because the bytes choose the partition and what compaction removes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from kalda.common.json_text import float_word
from kalda.formats.decoded import EncodeError
from kalda.pipelines.sql import calendar

RECORD_COLUMNS: Final = ("headers", "partition", "timestamp", "topic")
"""Columns of rows that a record takes as they are, beside `key` and `value`."""


class TopicRowError(ValueError):
    """Rows lack a column that the topic needs; the message names it and the columns that there are."""


class ValueEncoder(Protocol):
    """The part of an encoder of `kalda.formats` that is used here."""

    def encode(self, rows: pa.StructArray) -> pa.BinaryArray:
        """Return one value for each row."""
        ...


@dataclass(frozen=True, slots=True)
class TopicRows:
    """How rows become records.

    Args:
        key: the columns of the key; empty for the column `key`, if there is one. One column is written as its
            text, or as it is if it is binary; several become a JSON object.
        value: encodes the columns of the row; None writes the column `value` as it is.
    """

    key: tuple[str, ...] = ()
    value: ValueEncoder | None = None

    def records(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return records with the rows' values.

        Raises:
            TopicRowError: a column is missing.
            EncodeError: a row cannot be encoded.
        """
        if self.value is None:
            values = _binary(self._column(rows, "value"), "value")
            names = [name for name in RECORD_COLUMNS if name in rows.schema.names]
        else:
            fields = pa.StructArray.from_arrays(rows.columns, fields=list(rows.schema))
            values = self.value.encode(fields)
            names = []
        columns = {"value": values} | {name: rows.column(name) for name in names}
        return self._with_keys(rows, columns)

    def tombstones(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return records without values that delete the rows' keys.

        Raises:
            TopicRowError: there is no key.
        """
        if not self.key and "key" not in rows.schema.names:
            raise TopicRowError(
                "a deleted row needs a key; set `key` of the topic to the columns that identify a row"
            )
        return self._with_keys(rows, {"value": pa.nulls(rows.num_rows, pa.binary())})

    def keys(self, rows: pa.RecordBatch) -> pa.BinaryArray | None:
        """Return the keys of rows; None where records have none.

        Raises:
            TopicRowError: a column is missing.
            EncodeError: a key has a part that no text is known for.
        """
        if not self.key:
            return _binary(rows.column("key"), "key") if "key" in rows.schema.names else None
        if len(self.key) == 1:
            column = self._column(rows, self.key[0])
            if pa.types.is_nested(column.type):
                raise TopicRowError(
                    f"the key {self.key[0]} is {column.type}; select its parts in the transform"
                )
            return _as_text(column)
        columns = [self._column(rows, name) for name in self.key]
        rows_of_keys = zip(*(map(_named, _plain(column)) for column in columns), strict=True)
        texts = [
            json.dumps(dict(zip(self.key, values, strict=True)), separators=(",", ":"), default=str).encode()
            for values in rows_of_keys
        ]
        return pa.array(texts, pa.binary())

    def _with_keys(self, rows: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.RecordBatch:
        keys = self.keys(rows)
        if keys is not None:
            columns["key"] = keys
        return pa.RecordBatch.from_pydict(columns)

    @staticmethod
    def _column(rows: pa.RecordBatch, name: str) -> pa.Array:
        if name not in rows.schema.names:
            raise TopicRowError(_absent(name, rows.schema.names))
        return rows.column(name)


def _plain(column: pa.Array) -> list[object]:
    """Return the values of a part of a key; times in years that Python does not have are texts."""
    texts = _texts_of_years_beyond(1, 9999, column, "+00:00")
    if texts is not None:
        column = pc.if_else(texts.is_valid(), pa.scalar(None, column.type), column)
    try:
        found: list[object] = column.to_pylist()
    except (OverflowError, ValueError) as error:
        raise EncodeError(f"a key has a value that Python does not have: {error}") from error
    if texts is None:
        return found
    return [value if text is None else text for value, text in zip(found, texts.to_pylist(), strict=True)]


def _texts_of_years_beyond(first: int, last: int, column: pa.Array, zone: str) -> pa.StringArray | None:
    """Return the texts of dates and timestamps in other years than some, null for the rest.

    Without such a value the result is None.
    """
    kind = column.type
    if not (pa.types.is_date32(kind) or pa.types.is_timestamp(kind)) or calendar.is_plain(column):
        return None
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    factor = 1 if pa.types.is_date(kind) else calendar.DAY_MICROS
    low, high = calendar.days_of(first, 1, 1) * factor, (calendar.days_of(last, 12, 31) + 1) * factor
    numbers = column.cast(pa.int32() if factor == 1 else pa.int64())
    beyond = pc.fill_null(pc.or_(pc.less(numbers, low), pc.greater_equal(numbers, high)), False)
    texts = calendar.text(column)
    if getattr(kind, "tz", None):
        texts = pc.binary_join_element_wise(texts, zone, "")
    return pc.if_else(beyond, texts, None)


def _named(value: object) -> object:
    """Return a value of a key; a number that JSON does not have is its name."""
    return float_word(value) if isinstance(value, float) else value


def _absent(name: str, names: Sequence[str]) -> str:
    return f"the rows have no column {name}; they have {', '.join(names)}. Select it in the transform" + (
        ", or set the `value` of the topic to a format" if name == "value" else ""
    )


def _binary(column: pa.Array, name: str) -> pa.Array:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column.cast(pa.binary())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.cast(pa.string()).cast(pa.binary())
    raise TopicRowError(
        f"the column {name} is {column.type}; a record takes binary or string. Encode it in the transform, "
        "or set a format"
    )


def _as_text(column: pa.Array) -> pa.BinaryArray:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return column.cast(pa.binary())
    texts = pc.cast(column, pa.string())
    beyond = _texts_of_years_beyond(*_YEARS_OF_ARROW, column, "Z")
    return (texts if beyond is None else pc.coalesce(beyond, texts)).cast(pa.binary())


_YEARS_OF_ARROW: Final = (-32_767, 32_767)
"""Years that Arrow writes as they are; it shows others as one of these."""
