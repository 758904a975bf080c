"""Decodes JSON values column by column with Arrow's reader, and finds exactly the bad ones when it refuses a
batch.

Why joining the values by newlines cannot shift rows: only values that start with ``{`` and end with ``}`` are
joined. After a ``}`` that ends a value, a newline and a ``{`` follow, which is no JSON inside an object, an
array or a text (a raw newline in a text is malformed). So each value starts a row of its own, and as many
rows as values means one row for each. A maintainer must keep both checks: first and last byte, and the count
of rows.
"""

import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from kalda.formats.ddl import parse_schema
from kalda.formats.decoded import (
    BadValueError,
    Decoded,
    DecodeFailure,
    merged,
    null_rows,
    nullable,
    present,
    spread,
)
from kalda.formats.json_rows import EPOCH_MICROS, Convert, converter, infer, parse_json
from kalda.formats.moments import base64_bytes, parse_moments
from kalda.formats.spec import FormatError, FormatSpec

OPTIONS: Final = ("timestamp_format",)
_WORDS: Final = re.compile(rb"[:\[,]\s*(?:-?Inf(?!inity)|-NaN)")
"""Words that Arrow's reader takes for numbers and JSON's usual extension does not."""


class JsonDecoder:
    """Decodes one JSON object per value, by a declared schema or by what each batch holds.

    Without a schema the columns follow from the batch: columns that are null in the whole batch are missing,
    and fields of several kinds are texts. Merging the schemas of batches is up to the caller.
    """

    def __init__(self, spec: FormatSpec) -> None:
        spec.check_options(OPTIONS)
        self._timestamps = spec.choice("timestamp_format", ("iso", *EPOCH_MICROS))
        self._schema = None if spec.schema is None else parse_schema(spec.schema)
        self._convert: Convert | None = None
        self._texts: dict[str, pa.Field] = {}
        self._read_schema: pa.Schema | None = None
        self._type: pa.DataType | None = None
        if self._schema is not None:
            _check_types(pa.struct(list(self._schema)), "")
            self._type = nullable(pa.struct(list(self._schema)))
            if not any(map(_has_map, self._schema.types)):
                self._read_schema = pa.schema([self._read_field(f) for f in self._schema])

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the compiled functions, which are made again where they are used."""
        return self.__dict__ | {"_convert": None}

    def schema(self) -> pa.Schema | None:
        """Return the declared columns, all nullable, or None when they are inferred."""
        return None if self._type is None else pa.schema(list(self._type))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; see `kalda.formats.Decoder`."""
        positions = present(values)
        found = values if positions is None else values.drop_null()
        rows = self._decode_all(found) if len(found) else null_rows(self._type or pa.struct([]), 0)
        if rows is not None:
            if positions is None:
                return Decoded(rows, ())
            return Decoded(spread(rows, positions, len(values)), ())
        return self._decode_each(found, positions or range(len(values)), len(values))

    def _decode_all(self, values: pa.BinaryArray) -> pa.StructArray | None:
        """Return the rows of values that Arrow's reader takes as a whole, or None."""
        if self._type is not None and self._read_schema is None:
            return None
        joined = _joined(values)
        if joined is None:
            return None
        try:
            if self._read_schema is None:
                rows = self._read_inferred(joined)
            else:
                rows = _read(joined, self._read_schema, "ignore")
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
            return None
        if len(rows) != len(values):
            return None
        if self._type is None or self._schema is None:
            return rows
        if _lacks_required(rows, pa.struct(list(self._schema))):
            return None
        return self._finished(rows, self._type)

    def _read_inferred(self, joined: bytes) -> pa.StructArray:
        """Read with inferred types, where texts that look like timestamps stay texts."""
        hints = pa.schema(list(self._texts.values())) if self._texts else None
        try:
            rows = _read(joined, hints, "infer")
        except pa.ArrowInvalid:
            if hints is None:
                raise
            self._texts.clear()
            rows = _read(joined, None, "infer")
        moments = [f for f in rows.type if _has_moment(f.type)]
        if moments:
            if len(self._texts) + len(moments) > 10_000:
                self._texts.clear()
            hinted = {f.name: pa.field(f.name, _as_texts(f.type)) for f in moments}
            rows = _read(joined, pa.schema(list((self._texts | hinted).values())), "infer")
            self._texts |= hinted
        names = [f.name for f in rows.type if not _is_empty(f.type)]
        order = [name for name in names if name not in self._texts or _any_valid(rows.field(name))]
        return _without_empty(rows, order)

    def _decode_each(self, values: pa.BinaryArray, positions: range | list[int], length: int) -> Decoded:
        failures: list[DecodeFailure] = []
        parsed: list[object] = []
        good: list[int] = []
        convert, kind = self._convert, self._type
        if kind is not None and convert is None:
            assert self._schema is not None
            convert = self._convert = converter(pa.struct(list(self._schema)), self._timestamps)
        for position, value in zip(positions, values.to_pylist(), strict=True):
            try:
                row = parse_json(value)
                if convert is not None:
                    row = convert(row, "")
                elif not isinstance(row, dict):
                    converter(pa.struct([]), "iso")(row, "")
            except BadValueError as error:
                failures.append(error.at(position))
            else:
                parsed.append(row)
                good.append(position)
        if convert is None:
            kind = infer(parsed) or pa.struct([])
            inferred = converter(kind, "iso")
            kept, parsed_rows = good, parsed
            good, parsed = [], []
            for position, row in zip(kept, parsed_rows, strict=True):
                try:
                    parsed.append(inferred(row, ""))
                except BadValueError as error:
                    failures.append(error.at(position))
                else:
                    good.append(position)
        rows = pa.array(parsed, kind)
        return Decoded(spread(rows, good, length), merged(failures))

    def _read_field(self, field: pa.Field) -> pa.Field:
        return pa.field(field.name, self._read_type(field.type))

    def _read_type(self, kind: pa.DataType) -> pa.DataType:
        """Return the type that Arrow's reader reads for a declared one; `_finished` goes back."""
        types = pa.types
        if types.is_struct(kind):
            return pa.struct([self._read_field(f) for f in kind])
        if types.is_list(kind):
            return pa.list_(self._read_type(kind.value_type))
        if types.is_timestamp(kind):
            return pa.string() if self._timestamps == "iso" else pa.int64()
        if types.is_date(kind) or types.is_binary(kind):
            return pa.string()
        return pa.float64() if types.is_floating(kind) else kind

    def _finished(self, array: pa.Array, kind: pa.DataType) -> pa.Array | None:
        """Return what was read as the declared type, or None when a text is not of that type."""
        types = pa.types
        if array.type == kind:
            return array
        if types.is_struct(kind):
            children = [self._finished(array.field(i), f.type) for i, f in enumerate(kind)]
            if any(child is None for child in children):
                return None
            mask = array.is_null() if array.null_count else None
            return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
        if types.is_list(kind):
            items = self._finished(array.values, kind.value_type)
            if items is None:
                return None
            mask = array.is_null() if array.null_count else None
            return pa.ListArray.from_arrays(array.offsets, items, type=kind, mask=mask)
        if types.is_timestamp(kind):
            if self._timestamps != "iso":
                try:
                    micros = pc.multiply_checked(array, EPOCH_MICROS[self._timestamps])
                except pa.ArrowInvalid:
                    return None
                return micros.cast(kind)
            return parse_moments(array, kind)
        if types.is_date(kind):
            return parse_moments(array, kind)
        if types.is_binary(kind):
            decoded = [None if text is None else base64_bytes(text) for text in array.to_pylist()]
            finished = pa.array(decoded, kind)
            return finished if finished.null_count == array.null_count else None
        return array.cast(kind, safe=False)


def _joined(values: pa.BinaryArray) -> bytes | None:
    """Return the values joined by newlines, or None when one of them is not in braces or not UTF-8."""
    width = 8 if pa.types.is_large_binary(values.type) else 4
    _, offsets_buffer, data_buffer = values.buffers()
    if data_buffer is None:
        return None
    kind = np.int64 if width == 8 else np.int32
    start = values.offset * width
    offsets = np.frombuffer(offsets_buffer, kind, len(values) + 1, start).astype(np.int64)
    starts, ends = offsets[:-1], offsets[1:]
    if not np.all(ends - starts >= 2):
        return None
    data = np.frombuffer(data_buffer, np.uint8)
    if not (np.all(data[starts] == 0x7B) and np.all(data[ends - 1] == 0x7D)):
        return None
    if int(ends[-1]) - int(starts[0]) + len(values) > 1 << 31:
        return None
    whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    joined: bytes = pc.binary_join(whole, pa.scalar(b"\n", values.type))[0].as_buffer().to_pybytes()
    if not joined.isascii():
        try:
            joined.decode()
        except UnicodeDecodeError:
            return None
    if (b"Inf" in joined or b"-NaN" in joined) and _WORDS.search(joined):
        return None
    return joined


def _read(joined: bytes, schema: pa.Schema | None, unexpected: str) -> pa.StructArray:
    table = pj.read_json(
        pa.BufferReader(joined),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(joined) + 1),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    )
    if not table.num_columns:
        return pa.array([{}] * table.num_rows, pa.struct([]))
    rows = table.to_struct_array()
    return rows.chunk(0) if rows.num_chunks == 1 else rows.combine_chunks()


def _lacks_required(array: pa.Array, declared: pa.DataType) -> bool:
    """Return whether a NOT NULL field is null where its parent is not."""
    if pa.types.is_struct(declared):
        flat = array.flatten() if array.null_count else [array.field(i) for i in range(len(declared))]
        parents = array.null_count
        return any(
            (not field.nullable and child.null_count > parents) or _lacks_required(child, field.type)
            for child, field in zip(flat, declared, strict=True)
        )
    if pa.types.is_list(declared):
        return _lacks_required(array.flatten(), declared.value_type)
    return False


def _check_types(kind: pa.DataType, path: str) -> None:
    types = pa.types
    if types.is_struct(kind):
        for field in kind:
            _check_types(field.type, f"{path}.{field.name}" if path else field.name)
    elif types.is_list(kind):
        _check_types(kind.value_type, f"{path}[]")
    elif types.is_map(kind):
        if not types.is_string(kind.key_type):
            raise FormatError(f"{path} is a map with keys of type {kind.key_type}; keys of JSON are strings")
        _check_types(kind.item_type, f"{path}.*")
    elif not (
        types.is_integer(kind)
        or kind in (pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary())
        or types.is_decimal128(kind)
        or types.is_date32(kind)
        or (types.is_timestamp(kind) and kind.unit == "us")
    ):
        raise FormatError(
            f"{path} has type {kind}, which JSON values do not have; see the types of kalda.formats.ddl"
        )


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_map(f.type) for f in kind)
    return pa.types.is_map(kind) or (pa.types.is_list(kind) and _has_map(kind.value_type))


def _has_moment(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_moment(f.type) for f in kind)
    if pa.types.is_list(kind):
        return _has_moment(kind.value_type)
    return bool(pa.types.is_temporal(kind))


def _as_texts(kind: pa.DataType) -> pa.DataType:
    """Return a type with texts in place of dates and timestamps, and without what is only null."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _as_texts(f.type)) for f in kind if not _is_empty(f.type)])
    if pa.types.is_list(kind):
        return pa.list_(_as_texts(kind.value_type))
    return pa.string() if pa.types.is_temporal(kind) else kind


def _is_empty(kind: pa.DataType) -> bool:
    """Return whether a type has no value but null, or objects and arrays of such."""
    if pa.types.is_struct(kind):
        return all(_is_empty(f.type) for f in kind)
    if pa.types.is_list(kind):
        return _is_empty(kind.value_type)
    return bool(pa.types.is_null(kind))


def _any_valid(array: pa.Array) -> bool:
    return bool(array.null_count < len(array))


def _without_empty(array: pa.StructArray, names: list[str]) -> pa.StructArray:
    """Return the named columns, without nested fields that are null in all rows."""
    fields = [_pruned(array.field(name)) for name in names]
    if not fields:
        return pa.array([{}] * len(array), pa.struct([]))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(fields, names, mask=mask)


def _pruned(array: pa.Array) -> pa.Array:
    if pa.types.is_struct(array.type):
        return _without_empty(array, [f.name for f in array.type if not _is_empty(f.type)])
    if pa.types.is_list(array.type):
        items = _pruned(array.values)
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(array.offsets, items, mask=mask)
    return array
