"""Decodes values that are one line of CSV each, by a declared schema, with Arrow's reader.

Why joining the lines cannot shift rows: only values without a line break are joined, so a value is at most
one row, and as many rows as values means one row for each. An open quote that swallows the next line shows in
the count.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from kalda.formats.bisection import decode_by_halves
from kalda.formats.ddl import parse_schema
from kalda.formats.decimals import parse_decimals
from kalda.formats.decoded import (
    INVALID_TEXT,
    MALFORMED,
    MISMATCH,
    NULL_FIELD,
    BadValueError,
    Decoded,
    nullable,
)
from kalda.formats.spec import FormatError, FormatSpec
from kalda.formats.temporal import date_days, parse_temporal, timestamp_micros

OPTIONS: Final = ("delimiter", "quote", "escape", "null_value", "double_quote")
_HEXADECIMAL: Final = re.compile(rb"0[xX]")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class CsvDecoder:
    """Decodes lines of CSV; the columns stand in the order of the schema."""

    def __init__(self, spec: FormatSpec) -> None:
        spec.check_options(OPTIONS)
        if spec.schema is None:
            raise FormatError("format csv needs a schema: a line names no columns")
        declared = parse_schema(spec.schema)
        for field in declared:
            if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
                raise FormatError(f"{field.name} has type {field.type}, which a line of CSV cannot hold")
        self._required: Final = [field.name for field in declared if not field.nullable]
        self._type: Final = nullable(pa.struct(list(declared)))
        self._delimiter: Final = _sign(spec, "delimiter", ",")
        self._quote: Final = _sign(spec, "quote", '"')
        self._escape: Final = _sign(spec, "escape", "")
        self._null: Final = spec.options.get("null_value", "")
        self._double_quote: Final = spec.boolean("double_quote", True)
        self._takes_empty: Final = len(declared) == 1 and not self._null
        """Whether an empty value is a line: of one column that is null."""
        self._last_line: Final = b"\n" + self._delimiter.join([self._null] * len(declared)).encode() + b"\n"

    def schema(self) -> pa.Schema:
        """Return the declared columns, all nullable."""
        return pa.schema(list(self._type))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; see `kalda.formats.Decoder`."""
        return decode_by_halves(values, self._decode_all, self._type)

    def _decode_all(self, values: pa.BinaryArray) -> pa.StructArray:
        joined = self._joined(values)
        has_plus = b"+" in joined
        kinds = {f.name: _read_type(f.type, has_plus) for f in self._type}
        table = self._read(joined, kinds)
        if table.num_rows != len(values) + 1:
            raise BadValueError(MALFORMED, "a quote is not closed")
        doubtful = [name for name in kinds if _has_infinity(table.column(name))]
        if _HEXADECIMAL.search(joined):
            doubtful += [name for name in kinds if pa.types.is_integer(kinds[name])]
        if doubtful:
            texts = self._read(joined, kinds | dict.fromkeys(doubtful, pa.string()))
            for name in doubtful:
                _check_numbers(name, texts.column(name), kinds[name])
        table = table.slice(0, len(values))
        columns = [_finished(table.column(f.name).combine_chunks(), f) for f in self._type]
        for name in self._required:
            if table.column(name).null_count:
                raise BadValueError(NULL_FIELD, f"{name} is null; it is NOT NULL")
        return pa.StructArray.from_arrays(columns, fields=list(self._type))

    def _read(self, joined: bytes, kinds: Mapping[str, pa.DataType]) -> pa.Table:
        try:
            return pcsv.read_csv(
                pa.BufferReader(joined),
                read_options=pcsv.ReadOptions(
                    use_threads=False, block_size=len(joined) + 1, column_names=list(kinds)
                ),
                parse_options=pcsv.ParseOptions(
                    delimiter=self._delimiter,
                    quote_char=self._quote or False,
                    double_quote=self._double_quote,
                    escape_char=self._escape or False,
                    newlines_in_values=False,
                    ignore_empty_lines=False,
                ),
                convert_options=pcsv.ConvertOptions(
                    column_types=kinds,
                    null_values=[self._null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    check_utf8=True,
                ),
            )
        except pa.ArrowInvalid as error:
            text = str(error)
            raise BadValueError(MISMATCH if "conversion" in text else MALFORMED, text) from error

    def _joined(self, values: pa.BinaryArray) -> bytes:
        while pc.any(marked := pc.starts_with(values, _BYTE_ORDER_MARK)).as_py():
            # Arrow's reader leaves out the mark of the first line alone.
            values = pc.if_else(marked, pc.binary_slice(values, len(_BYTE_ORDER_MARK)), values)
        if (
            pc.any(pc.match_substring(values, b"\n")).as_py()
            or pc.any(pc.match_substring(values, b"\r")).as_py()
        ):
            if len(values) > 1:
                raise BadValueError(MALFORMED, "a line break")
            line = values[0].as_py().removesuffix(b"\n").removesuffix(b"\r")
            if b"\n" in line or b"\r" in line:
                raise BadValueError(MALFORMED, "the value has several lines; one line of CSV is expected")
            if not line and not self._takes_empty:
                raise BadValueError(MALFORMED, "the value is empty; one line of CSV is expected")
            return bytes(line) + self._last_line
        if not self._takes_empty and not np.all(np.asarray(pc.binary_length(values))):
            raise BadValueError(MALFORMED, "the value is empty; one line of CSV is expected")
        whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        joined: bytes = pc.binary_join(whole, pa.scalar(b"\n", values.type))[0].as_buffer().to_pybytes()
        return joined + self._last_line


def _sign(spec: FormatSpec, name: str, default: str) -> str:
    text = spec.options.get(name, default).replace("\\t", "\t")
    if (len(text) != 1 and not (text == "" and name != "delimiter")) or text in ("\n", "\r"):
        raise FormatError(f"option {name}={text!r} of format csv is not one character")
    if not text.isascii():
        raise FormatError(f"option {name}={text!r} of format csv is not an ASCII character")
    return text


def _read_type(kind: pa.DataType, has_plus: bool) -> pa.DataType:
    """Return the type that Arrow's reader is asked for; it takes no sign but minus before an integer."""
    types = pa.types
    is_text = types.is_temporal(kind) or types.is_decimal(kind) or (has_plus and types.is_integer(kind))
    return pa.string() if is_text else kind


def _has_infinity(column: pa.ChunkedArray) -> bool:
    return pa.types.is_floating(column.type) and bool(pc.any(pc.is_inf(column)).as_py())


def _check_numbers(name: str, texts: pa.ChunkedArray, kind: pa.DataType) -> None:
    """Check texts of numbers: Arrow's reader makes infinity of large ones and takes ``0x1F`` for 31."""
    for text in texts.filter(pc.match_substring_regex(texts, r"\d")).to_pylist():
        is_hexadecimal = pa.types.is_integer(kind) and "x" in text.lower()
        if is_hexadecimal or (
            pa.types.is_floating(kind) and pc.is_inf(pa.scalar(float(text)).cast(kind, safe=False)).as_py()
        ):
            raise BadValueError(MISMATCH, f"{name} is {text[:60]!r}; a {kind} is expected")


def _finished(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return a column as its declared type; some types were read as texts."""
    if column.type == field.type:
        return column
    if pa.types.is_integer(field.type):
        return _integers(pc.ascii_trim(column, " \t"), field)
    if pa.types.is_decimal(field.type):
        parsed = parse_decimals(pc.ascii_trim(column, " \t"), field.type)
        if parsed is None:
            shown = ", ".join(repr(text[:60]) for text in column[:1].to_pylist() if text is not None)
            raise BadValueError(MISMATCH, f"{field.name} is {shown}; a {field.type} is expected")
        return parsed
    parsed = parse_temporal(column, field.type)
    if parsed is not None:
        return parsed
    parse: Callable[[str], int | None] = date_days if pa.types.is_date(field.type) else timestamp_micros
    found: list[int | None] = []
    for text in column.to_pylist():
        number = None if text is None else parse(text)
        if number is None and text is not None:
            error_class = INVALID_TEXT if "\ufffd" in text else MISMATCH
            raise BadValueError(error_class, f"{field.name} is {text[:60]!r}; a {field.type} is expected")
        found.append(number)
    return pa.array(found, field.type)


def _integers(texts: pa.StringArray, field: pa.Field) -> pa.Array:
    """Return texts of whole numbers, which may have a plus, as integers."""
    bad = texts.filter(pc.invert(pc.match_substring_regex(texts, r"^[+-]?[0-9]+$")))
    if not len(bad):
        try:
            return pc.replace_substring_regex(texts, r"^\+", "").cast(field.type)
        except pa.ArrowInvalid:
            bad = texts.drop_null()
    raise BadValueError(MISMATCH, f"{field.name} is {bad[0].as_py()[:60]!r}; a {field.type} is expected")
