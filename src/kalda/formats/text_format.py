"""Decodes values that are one column: bytes as they are (``raw``), or UTF-8 text (``string``)."""

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kalda.formats.decoded import INVALID_TEXT, BadValueError, Decoded, DecodeFailure
from kalda.formats.spec import FormatError, FormatSpec

VALUE: Final = "value"


class RawDecoder:
    """Returns the bytes in the column ``value``."""

    def __init__(self, spec: FormatSpec) -> None:
        spec.check_options(())
        _check_no_schema(spec)

    def schema(self) -> pa.Schema:
        """Return the column ``value binary``."""
        return pa.schema([(VALUE, pa.binary())])

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; see `kalda.formats.Decoder`."""
        return Decoded(_rows(values.cast(pa.binary())), ())


class StringDecoder:
    """Returns the texts in the column ``value``; bytes that are not UTF-8 are bad."""

    def __init__(self, spec: FormatSpec) -> None:
        spec.check_options(())
        _check_no_schema(spec)

    def schema(self) -> pa.Schema:
        """Return the column ``value string``."""
        return pa.schema([(VALUE, pa.string())])

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; see `kalda.formats.Decoder`."""
        try:
            return Decoded(_rows(values.cast(pa.string())), ())
        except pa.ArrowInvalid:
            pass
        texts: list[str | None] = []
        failures: list[DecodeFailure] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                texts.append(None if value is None else value.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                message = f"not UTF-8: {error.reason} at byte {error.start}"
                failures.append(BadValueError(INVALID_TEXT, message).at(row))
        return Decoded(_rows(pa.array(texts, pa.string())), tuple(failures))


class SingleColumnEncoder:
    """Writes the one column of rows as it is; it is called ``value`` or is the only one."""

    def __init__(self, spec: FormatSpec, columns: pa.Schema) -> None:
        spec.check_options(())
        _check_no_schema(spec)
        if len(columns) != 1 and VALUE not in columns.names:
            raise FormatError(
                f"format {spec.name} writes one column; name it {VALUE!r} (found: {columns.names})"
            )
        self._index: Final = columns.names.index(VALUE) if VALUE in columns.names else 0
        kind = columns.field(self._index).type
        if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            raise FormatError(f"format {spec.name} writes a string or binary column, not {kind}; cast it")

    def encode(self, rows: pa.StructArray) -> pa.BinaryArray:
        """Encode rows; see `kalda.formats.Encoder`."""
        return pc.struct_field(rows, [self._index]).cast(pa.binary())


def _rows(column: pa.Array) -> pa.StructArray:
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays([column], [VALUE], mask=mask)


def _check_no_schema(spec: FormatSpec) -> None:
    if spec.schema is not None:
        raise FormatError(f"format {spec.name} takes no schema; its column is {VALUE!r}")
