"""Decodes JSON values column by column with Arrow's reader, and finds exactly the bad ones when it refuses a
batch.

Why joining the values by newlines cannot shift rows: only values that start with ``{`` and end with ``}`` are
joined. After a ``}`` that ends a value, a newline and a ``{`` follow, which is no JSON inside an object, an
array or a text (a raw newline in a text is malformed). So each value starts a row of its own, and as many
rows as values means one row for each. Both checks are needed: the first and last byte, and the
number of rows.
"""

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from kalda.formats.ddl import DEPTH_MAX, parse_schema
from kalda.formats.decimals import read_type
from kalda.formats.decoded import (
    TOO_LARGE,
    BadValueError,
    Decoded,
    DecodeFailure,
    joined,
    merged,
    null_rows,
    nullable,
    present,
    spread,
)
from kalda.formats.framing import slices_of, value_ranges
from kalda.formats.json_rows import (
    DOUBLE_DIGITS,
    EPOCH_MICROS,
    OBJECTS_MAX,
    Convert,
    FieldNames,
    Path,
    base64_bytes,
    check_columns,
    converter,
    field_names,
    infer,
    nesting,
    openers,
    parse_json,
    parse_object,
    value_at,
)
from kalda.formats.merging import (
    COLUMNS_MAX,
    FIELDS_MAX,
    is_unknown,
    item_leaves,
    leaf_count,
    merged_all,
    struct_array,
    struct_of,
)
from kalda.formats.spec import FormatError, FormatSpec
from kalda.formats.temporal import parse_temporal

OPTIONS: Final = ("timestamp_format",)
INFERRED_BYTES: Final = 128 << 10
"""Values that show their columns at once: Arrow's reader makes each field of one a column for all."""
_FIELDS_MAX: Final = 1 << 15
"""Fields that Arrow's reader may find by itself at once; with many different ones it takes seconds."""
_ITEM_LEAVES_MAX: Final = 500
"""Plain columns of an array's item without a declared schema."""
_CELLS_MAX: Final = 1 << 24
"""Objects times fields that Arrow's reader may make of a slice; each takes up to 16 bytes."""
_EXPONENTS: Final = re.compile(
    rb'[:\[,]\s*"?\s*[-+]?[\d.]+[eE][-+]?\d+\s*"?\s*[,\]}]|[:\[,]\s*"[-+.\deE\s]*\\u00[2-6]'
)
"""Numbers with an exponent, and texts of numbers that may have one: `kalda.formats.decimals`."""
_WORDS: Final = re.compile(rb"[:\[,]\s*(?:-?Inf(?!inity)|-NaN)")
"""Words that Arrow's reader takes for numbers and JSON's usual extension does not."""


_NEGATIVE_ZERO: Final = re.compile(rb"-0\s*[,\]}]")
"""The whole number -0, which is 0; Arrow's reader makes -0.0 of it in a floating-point column."""


class JsonDecoder:
    """Decodes one JSON object per value, by a declared schema or by the columns that the values have.

    Without a schema, `columns` finds them: fields of several kinds are texts, and those that are null in all
    values are left out.

    Args:
        spec: The format.
        rows: Where values have the objects whose fields are columns. Without a schema, a value is bad if a
            field there is not null and is no column; elsewhere such fields are ignored.
    """

    def __init__(self, spec: FormatSpec, rows: Sequence[Path] = ((),)) -> None:
        spec.check_options(OPTIONS)
        self._timestamps = spec.choice("timestamp_format", ("iso", *EPOCH_MICROS))
        self._schema: pa.Schema | None = None
        self._is_inferred = False
        self._rows: Final = tuple(rows)
        self._kept: dict[Path, FieldNames | None] = {}
        self._parse: Callable[[bytes], object] = parse_json
        self._convert: Convert | None = None
        self._read_schema: pa.Schema | None = None
        self._seen_schema: pa.Schema | None = None
        self._type: pa.DataType | None = None
        self._item_leaves = 0
        self._fields_max = COLUMNS_MAX
        self._has_decimals = False
        self._has_floats = False
        if spec.schema is not None:
            declared = parse_schema(spec.schema)
            _check_types(pa.struct(list(declared)), "")
            self._set_columns(declared)

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the compiled functions, which are made again where they are used."""
        return self.__dict__ | {"_convert": None}

    def schema(self) -> pa.Schema | None:
        """Return the declared columns, all nullable, or None when the values have to show them."""
        return None if self._type is None else pa.schema(list(self._type))

    def columns(self, values: pa.BinaryArray) -> pa.StructType:
        """Return the columns that some values have; see `kalda.formats.Decoder`."""
        found = values.drop_null()
        kinds = [self._kind_of(part) for part in slices_of(found, INFERRED_BYTES)]
        return merged_all(kinds)

    def with_columns(self, columns: pa.StructType) -> "JsonDecoder":
        """Return the decoder whose rows have these columns.

        Raises:
            FormatError: The items of an array have more fields than columns can be made of.
        """
        leaves = item_leaves(columns)
        if leaves > _ITEM_LEAVES_MAX:
            raise FormatError(
                f"the items of an array have {leaves} different fields; up to {_ITEM_LEAVES_MAX} can be "
                "columns: declare a schema with those that you need"
            )
        decoder = copy.copy(self)
        decoder._is_inferred = True
        decoder._parse = partial(parse_object, rows=self._rows)
        decoder._set_columns(pa.schema(list(columns)))
        found = {path: type_at(columns, path) for path in self._rows}
        # Each field of a row is a column. Those inside of one are not, where they are too many.
        decoder._kept = {
            path: field_names(kind)
            for path, kind in found.items()
            if kind is not None and any(pa.types.is_nested(field.type) for field in kind)
        }
        decoder._fields_max = FIELDS_MAX if decoder._kept else COLUMNS_MAX
        return decoder

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; see `kalda.formats.Decoder`."""
        assert self._type is not None, "columns are found before values are decoded"
        positions = present(values)
        found = values if positions is None else values.drop_null()
        self._check_size(found)
        rows = self._decode_all(found) if len(found) else null_rows(self._type, 0)
        if rows is None and self._kept and len(found) > 1 and not _may_infer(_bytes_of(found)):
            middle = len(values) // 2
            return joined(map(self.decode, (values.slice(0, middle), values.slice(middle))), self._type)
        if rows is not None:
            if positions is None:
                return Decoded(rows, ())
            return Decoded(spread(rows, positions, len(values)), ())
        return self._decode_each(found, positions or range(len(values)), len(values))

    def read(self, values: pa.BinaryArray) -> pa.StructArray | None:
        """Return values without nulls as Arrow's reader reads them, by themselves; None if it does not.

        Texts that look like timestamps may be timestamps. What is null in all of them is there.
        """
        text = _joined(values)
        if text is None or not _may_infer(text):
            return None
        try:
            rows = _read(text, None, "infer")
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        kinds = [type_at(rows.type, path) for path in self._rows]
        is_wide = any(kind and leaf_count(inferred_type(kind)) > COLUMNS_MAX for kind in kinds)
        return rows if len(rows) == len(values) and not is_wide else None

    def _set_columns(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._type = nullable(pa.struct(list(schema)))
        self._item_leaves = item_leaves(self._type)
        self._has_decimals = _has(self._type, pa.types.is_decimal)
        self._has_floats = _has(self._type, pa.types.is_floating)
        if not _has(self._type, pa.types.is_map):
            self._read_schema = self._seen_schema = pa.schema([self._read_field(f) for f in schema])

    def _check_size(self, values: pa.BinaryArray) -> None:
        """Check that objects in arrays do not take far more memory as columns than as JSON."""
        if self._item_leaves < 2 or len(values) <= self._is_inferred:
            return  # without a declared schema, what is too large does not depend on the columns
        data, starts, ends = value_ranges(values)
        cells = len(openers(data[starts[0] : ends[-1]])) * self._item_leaves
        if cells > _CELLS_MAX:
            raise BadValueError(
                TOO_LARGE,
                f"the value's arrays have up to {cells} fields; {_CELLS_MAX} can be columns at once",
            )

    def _kind_of(self, values: pa.BinaryArray) -> pa.StructType:
        rows = self.read(values)
        if rows is not None:
            return inferred_type(rows.type)
        return infer_all(self.parsed(values))

    def parsed(self, values: pa.BinaryArray) -> Iterator[dict[str, object]]:
        """Yield the objects of the values that are good whatever the columns are."""
        for value in values.to_pylist():
            with suppress(BadValueError):
                yield parse_object(value, self._rows)

    def _decode_all(self, values: pa.BinaryArray) -> pa.StructArray | None:
        """Return the rows of values that Arrow's reader takes as a whole, or None."""
        if self._read_schema is None:
            return None
        text = _joined(values)
        if text is None or (self._is_inferred and _has_wide_value(text, values, self._fields_max)):
            return None
        if self._has_decimals and _EXPONENTS.search(text):
            return None
        if self._has_floats and _NEGATIVE_ZERO.search(text):
            return None
        try:
            rows = self._read_kept(text) if self._kept else _read(text, self._read_schema, "ignore")
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
            return None
        if len(rows) != len(values):
            return None
        assert self._schema is not None
        if self._kept:
            is_whole = self._has_columns_of(rows.type)
        else:
            is_whole = not _lacks_required(rows, pa.struct(list(self._schema)))
        return self._finished(rows, self._type) if is_whole else None

    def _read_kept(self, text: bytes) -> pa.StructArray:
        """Return rows with a field for each that the values have.

        Fields that are null in all values are no columns, and are known from the first values with them.
        """
        try:
            return _read(text, self._seen_schema, "error")
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if not _may_infer(text):
                raise
        rows = _read(text, self._read_schema, "infer")
        if self._has_columns_of(rows.type) and leaf_count(rows.type) <= leaf_count(self._type) + FIELDS_MAX:
            self._seen_schema = pa.schema(list(rows.type))
        return rows

    def _has_columns_of(self, own: pa.DataType) -> bool:
        """Return whether no field of a row is lost."""
        return all(_has_columns(type_at(own, path), type_at(self._type, path)) for path in self._kept)

    def _decode_each(self, values: pa.BinaryArray, positions: range | list[int], length: int) -> Decoded:
        failures: list[DecodeFailure] = []
        parsed: list[object] = []
        good: list[int] = []
        assert self._schema is not None
        if self._convert is None:
            self._convert = converter(pa.struct(list(self._schema)), self._timestamps)
        convert, parse = self._convert, self._parse
        for position, value in zip(positions, values.to_pylist(), strict=True):
            try:
                found = parse(value)
                row = convert(found, "")
                for path, names in self._kept.items():
                    part, place = value_at(found, path), ".".join(path)
                    if value.count(b":") > self._fields_max:
                        _check_shown(type_at(self._type, path), infer([part]), place)
                    check_columns(part, names, place)
            except BadValueError as error:
                failures.append(error.at(position))
            else:
                parsed.append(row)
                good.append(position)
        return Decoded(spread(pa.array(parsed, self._type), good, length), merged(failures))

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
        if types.is_decimal(kind):
            return read_type(kind)
        return pa.float64() if types.is_floating(kind) else kind

    def _finished(self, array: pa.Array, kind: pa.DataType) -> pa.Array | None:
        """Return what was read as the declared type, or None when a text is not of that type."""
        types = pa.types
        if types.is_floating(kind):
            made = array.cast(kind, safe=False)
            # Arrow's reader rounds to infinity what is a little too large.
            return None if pc.any(pc.is_inf(made)).as_py() else made
        if array.type == kind and not (types.is_nested(kind) and _has(kind, types.is_floating)):
            return array
        if types.is_decimal(kind):
            try:
                return array.cast(kind)
            except pa.ArrowInvalid:
                return None
        if types.is_struct(kind):
            children = [self._finished(array.field(i), f.type) for i, f in enumerate(kind)]
            if any(child is None for child in children):
                return None
            return struct_array(children, kind, array)
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
            return parse_temporal(array, kind)
        if types.is_date(kind):
            return parse_temporal(array, kind)
        if types.is_binary(kind):
            decoded = [None if text is None else base64_bytes(text) for text in array.to_pylist()]
            finished = pa.array(decoded, kind)
            return finished if finished.null_count == array.null_count else None
        return array.cast(kind, safe=False)


def _joined(values: pa.BinaryArray) -> bytes | None:
    """Return the values joined by newlines, or None when one of them is not for Arrow's reader.

    It is not UTF-8 in braces, or nests deeper than a type: the reader recurses in C, beyond Python's guards.
    """
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
    places = openers(data[starts[0] : ends[-1]]) + starts[0]
    counts = np.diff(np.searchsorted(places, np.append(starts, ends[-1])))
    for index in np.flatnonzero(counts > DEPTH_MAX):
        if nesting(data[starts[index] : ends[index]].tobytes()) > DEPTH_MAX:
            return None
    if _has_long_number(data[starts[0] : ends[-1]]):
        return None
    whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    text: bytes = pc.binary_join(whole, pa.scalar(b"\n", values.type))[0].as_buffer().to_pybytes()
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError:
            return None
    if (b"Inf" in text or b"-NaN" in text) and _WORDS.search(text):
        return None
    return text


def _has_long_number(data: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> bool:
    """Return whether there may be a number beyond double, which Arrow's reader overlooks where it ignores it.

    A run of as many digits covers three of the bytes that are looked at.
    """
    step = DOUBLE_DIGITS // 3
    is_digit = data[::step] - 0x30 < 10
    return bool(np.any(is_digit[:-2] & is_digit[1:-1] & is_digit[2:])) and (
        re.search(rb"\d{%d}" % DOUBLE_DIGITS, data.tobytes()) is not None
    )


def _read(text: bytes, schema: pa.Schema | None, unexpected: str) -> pa.StructArray:
    table = pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
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


def _has(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a type, or a part of it, is of some kind."""
    if pa.types.is_struct(kind):
        return any(_has(f.type, test) for f in kind)
    return test(kind) or (pa.types.is_list(kind) and _has(kind.value_type, test))


def _check_shown(kind: pa.DataType, own: pa.DataType, path: str) -> None:
    """Refuse an object of more fields than a struct may have, where the column is a struct.

    By itself such an object is a text. Its fields would be ignored here, as if a schema were declared.

    Raises:
        BadValueError: there is such an object.
    """
    if pa.types.is_list(kind) and pa.types.is_list(own):
        _check_shown(kind.value_type, own.value_type, f"{path}[]")
    if not pa.types.is_struct(kind):
        return
    if pa.types.is_string(own):
        raise BadValueError(
            TOO_LARGE, f"{path} has more than {FIELDS_MAX} fields; declare a schema with those that you need"
        )
    for field in own if pa.types.is_struct(own) else ():
        index = kind.get_field_index(field.name)
        if index >= 0:
            _check_shown(kind.field(index).type, field.type, f"{path}.{field.name}".lstrip("."))


def _has_columns(own: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether each field with a value of a type that Arrow's reader found is one of another type."""
    if pa.types.is_list(own) and pa.types.is_list(kind):
        return _has_columns(own.value_type, kind.value_type)
    if not (pa.types.is_struct(own) and pa.types.is_struct(kind)):
        return True
    columns = {field.name: field.type for field in kind}
    return all(
        _has_columns(field.type, columns[field.name]) if field.name in columns else is_unknown(field.type)
        for field in own
    )


def type_at(kind: pa.DataType, path: Path) -> pa.DataType | None:
    """Return the type of a struct inside of another; None without one."""
    for name in path:
        index = kind.get_field_index(name) if pa.types.is_struct(kind) else -1
        if index < 0:
            return None
        kind = kind.field(index).type
    return kind if pa.types.is_struct(kind) else None


def _may_infer(text: bytes) -> bool:
    """Return whether Arrow's reader may find the fields of so many objects by itself."""
    objects, fields = text.count(b"{"), text.count(b":")
    return objects <= OBJECTS_MAX and fields <= _FIELDS_MAX and fields * objects <= _CELLS_MAX


def _bytes_of(values: pa.BinaryArray) -> bytes:
    data, starts, ends = value_ranges(values)
    return bytes(data[starts[0] : ends[-1]])


def _has_wide_value(text: bytes, values: pa.BinaryArray, fields_max: int) -> bool:
    """Return whether a value may be too large, as `parse_object` and `_check_shown` define it."""
    if text.count(b":") <= fields_max and text.count(b"{") <= OBJECTS_MAX:
        return False
    return any(
        value.count(b":") > fields_max or value.count(b"{") > OBJECTS_MAX for value in values.to_pylist()
    )


def inferred_type(kind: pa.DataType, depth: int = 0) -> pa.DataType:
    """Return a type that Arrow's reader found as `kalda.formats.json_rows.infer` finds it."""
    if pa.types.is_struct(kind):
        return struct_of(
            ((field.name, inferred_type(field.type, depth + 1)) for field in kind), is_nested=depth > 0
        )
    if pa.types.is_list(kind):
        return pa.list_(inferred_type(kind.value_type, depth + 1))
    return pa.string() if pa.types.is_temporal(kind) else kind


def infer_all(objects: Iterable[object]) -> pa.StructType:
    """Return the columns of parsed objects; none without an object."""
    kind = infer(list(objects))
    return pa.struct([]) if pa.types.is_null(kind) else kind
