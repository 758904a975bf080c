"""Gives records the columns of a table: keys and values as text, as bytes, or as the fields of a schema."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from kalda.records.columnar_fields import HEADERS_TYPE
from kalda.topic_queries.push_down import TIMESTAMP

if TYPE_CHECKING:
    from kalda.formats.decoded import Decoder

_RAW: Final[Mapping[str, str]] = {"key_bytes": "key", "value_bytes": "value"}
_FRAME_BEGIN: Final = b"\0"
_YEAR_1_MS: Final = -62_135_596_800_000
_YEAR_10000_MS: Final = 253_402_300_800_000


class UndecodableValueError(Exception):
    """A value is not of the declared format; the message names the record and the reason."""


class Columns:
    """The columns of topics.

    Args:
        decoder: What makes structs of values; None for text or bytes.
        skips_errors: Whether a row is left out if its value is needed and cannot be decoded.
        has_raw: Whether there are also the columns key_bytes and value_bytes, as the records have them.
        decode: Returns what begins as a payload with a schema's id does as JSON; None if it is none. Texts
            of such keys and values are then JSON.
    """

    def __init__(
        self,
        *,
        is_key_text: bool = True,
        is_value_text: bool = True,
        decoder: "Decoder | None" = None,
        skips_errors: bool = False,
        has_raw: bool = False,
        decode: Callable[[bytes], str | None] | None = None,
    ) -> None:
        self._is_key_text: Final = is_key_text
        self._is_value_text: Final = is_value_text
        self._decoder: Final = decoder
        self._skips_errors: Final = skips_errors
        declared = None if decoder is None else decoder.schema()
        value_type = _bytes_type(is_value_text) if declared is None else pa.struct(list(declared))
        self.schema: Final = pa.schema(
            [
                ("key", _bytes_type(is_key_text)),
                ("value", value_type),
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("timestamp", TIMESTAMP),
                ("headers", HEADERS_TYPE),
                *([(name, pa.binary()) for name in _RAW] if has_raw else []),
            ]
        )
        text = _text if decode is None else partial(_decoded_text, decode)
        self._makers: Final[Mapping[str, Callable[[pa.Array], pa.Array]]] = {
            "timestamp": _microseconds,
            **({"key": text} if is_key_text else {}),
            **({"value": text} if is_value_text and decoder is None else {}),
        }

    def of_records(self, records: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """Return the named columns of records, which have the columns of `poll_arrow`.

        Raises:
            UndecodableValueError: a value is not of the declared format.
        """
        values = None
        if self._decoder is not None and "value" in names:
            decoded = self._decoder.decode(records["value"])
            values = decoded.columns
            if decoded.errors:
                first = decoded.errors[0]
                if not self._skips_errors:
                    where = f"{records['topic'][first.row]}-{records['partition'][first.row]}"
                    raise UndecodableValueError(
                        f"the value at offset {records['offset'][first.row]} of {where}: {first.message}"
                    )
                good = decoded.good()
                records, values = records.filter(good), values.filter(good)
        arrays = [
            values
            if name == "value" and values is not None
            else self._makers[name](records[name])
            if name in self._makers
            else records[_RAW[name]].cast(pa.binary())
            if name in _RAW
            else records[name]
            for name in names
        ]
        return pa.RecordBatch.from_arrays(
            arrays, schema=pa.schema([self.schema.field(name) for name in names])
        )


def _bytes_type(is_text: bool) -> pa.DataType:
    return pa.string() if is_text else pa.binary()


def _decoded_text(decode: Callable[[bytes], str | None], data: pa.BinaryArray) -> pa.StringArray:
    if not pc.any(pc.starts_with(data, _FRAME_BEGIN)).as_py():
        return _text(data)
    return pa.array((_text_of(each, decode) for each in data.to_pylist()), pa.string())


def _text_of(data: bytes | None, decode: Callable[[bytes], str | None]) -> str | None:
    if data is None:
        return None
    found = decode(data) if data.startswith(_FRAME_BEGIN) else None
    return data.decode(errors="replace") if found is None else found


def _text(data: pa.BinaryArray) -> pa.StringArray:
    try:
        return data.cast(pa.string())
    except pa.ArrowInvalid:  # some of it is no UTF-8
        return pa.array(
            [None if each is None else each.decode(errors="replace") for each in data.to_pylist()],
            pa.string(),
        )


def _microseconds(times: pa.Array) -> pa.Array:
    """Return times in DuckDB's unit; null where a producer sent what is no date."""
    numbers = times.view(pa.int64())
    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is not None and (bounds["min"] < _YEAR_1_MS or bounds["max"] >= _YEAR_10000_MS):
        is_date = pc.and_(pc.greater_equal(numbers, _YEAR_1_MS), pc.less(numbers, _YEAR_10000_MS))
        times = pc.if_else(is_date, times, pa.scalar(None, times.type))
    return times.cast(TIMESTAMP)
