"""Encodes rows as JSON, CSV, Avro and Protobuf values, with or without a schema registry's framing.

What is written here, the decoder of the same format reads back as the same rows. An encoder is opened for the
columns of its rows, so that a schema that does not fit them is an error before the first row.
"""

import base64
import io
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, cast

import fastavro
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from kalda.common.json_text import float_word
from kalda.formats.avro_schema import TIMESTAMP_MICROS, AvroSchema, parse_avro
from kalda.formats.decoded import EncodeError
from kalda.formats.exact import check_written, written
from kalda.formats.framing import HEADER_BYTES
from kalda.formats.json_rows import EPOCH_MICROS, NumberText, json_text
from kalda.formats.protobuf_schema import WRAPPERS, ProtobufSchema, compile_proto, is_map, message_type
from kalda.formats.registry import OPTIONS as REGISTRY_OPTIONS
from kalda.formats.registry import (
    SUBJECT_OPTIONS,
    RegisteredSchema,
    RegistryClient,
    registry_settings,
    subject_schema,
)
from kalda.formats.spec import FormatError, FormatSpec
from kalda.formats.temporal import day_text
from kalda.schemas.payloads.framing import message_path

Convert = Callable[[Any], object]


class JsonEncoder:
    """Writes one JSON object per row; null fields are left out unless ``null_fields`` is ``keep``."""

    def __init__(self, spec: FormatSpec, columns: pa.Schema) -> None:
        spec.check_options(("timestamp_format", "null_fields"))
        self._timestamps: Final = spec.choice("timestamp_format", ("iso", *EPOCH_MICROS))
        self._keeps_nulls: Final = spec.choice("null_fields", ("omit", "keep")) == "keep"
        self._columns: Final = columns
        json_value(pa.struct(list(columns)), self._timestamps, self._keeps_nulls)

    def encode(self, rows: pa.StructArray) -> pa.BinaryArray:
        """Encode rows; see `kalda.formats.Encoder`."""
        convert = json_value(rows.type, self._timestamps, self._keeps_nulls)
        dump = json_text if _has_decimal(rows.type) else _DUMP
        return pa.array(
            [None if row is None else dump(convert(row)).encode() for row in _plain(rows)], pa.binary()
        )


class RegistryJsonEncoder:
    """Writes JSON objects with a registry's framing, under a JSON Schema of the subject."""

    def __init__(self, spec: FormatSpec, columns: pa.Schema) -> None:
        own = ("timestamp_format", "null_fields")
        spec.check_options((*REGISTRY_OPTIONS, *SUBJECT_OPTIONS, *own))
        self._target: Final = WrittenSchema(spec, "JSON")
        options = {name: value for name, value in spec.options.items() if name in own}
        self._inner: Final = JsonEncoder(FormatSpec("json", None, None, options), columns)

    def encode(self, rows: pa.StructArray) -> pa.BinaryArray:
        """Encode rows; see `kalda.formats.Encoder`.

        Raises:
            RegistryError: The registry does not answer, or refuses the schema.
        """
        head = self._target.head()
        values = self._inner.encode(rows).to_pylist()
        return pa.array([None if value is None else head + value for value in values], pa.binary())


class WrittenSchema:
    """The registered schema that rows are written with: a given one, or one that the registry has.

    Raises:
        FormatError: Neither is named.
    """

    def __init__(self, spec: FormatSpec, kind: str) -> None:
        if not isinstance(spec.schema, str | None):
            raise FormatError(f"the schema of format {spec.name} is one of a registry, as text")
        self._client: Final = RegistryClient(registry_settings(spec))
        self._spec: Final = spec
        self._kind: Final = kind
        self._id: int | None = None
        if "schema.id" not in spec.options and not spec.options.get("subject"):
            raise FormatError(
                f"format {spec.name} needs the option subject to write, for example subject: orders-value"
            )

    def found(self) -> RegisteredSchema | None:
        """Return the schema that the registry has, where none is given; raises `RegistryError`."""
        if self._spec.schema is not None:
            return None
        found = subject_schema(self._client, self._spec, self._kind)
        self._id = None if found is None else found.id
        return found

    def head(self, text: str | None = None) -> bytes:
        """Return the framing of values, after the schema is registered; raises `RegistryError`.

        `text` is what is registered where the options give no schema.
        """
        if self._id is None:
            text = self._spec.schema if isinstance(self._spec.schema, str) else text
            if text is None:
                found = self.found()
                assert found is not None, "a subject or an id is named"
                self._id = found.id
            else:
                self._id = self._client.register(self._spec.options["subject"], self._kind, text)
        return _head(self._id)


_DUMP: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _plain(rows: pa.StructArray) -> list[Any]:
    """Return rows as Python values, with timestamps as microseconds and dates as days since 1970."""
    try:
        found: list[Any] = _numbers(rows).to_pylist(maps_as_pydicts="strict")
    except (OverflowError, ValueError) as error:  # a time of day, or a key of a map that is one
        raise EncodeError(f"the rows have a value that Python does not have: {error}") from error
    return found


def _numbers(array: pa.Array) -> pa.Array:
    """Return an array with integers for dates and timestamps; other times are refused before."""
    kind = array.type
    if array.offset and pa.types.is_nested(kind):
        array = array.take(pa.array(range(len(array)), pa.int64()))  # Arrow takes no mask beside such offsets
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind):
        if not len(kind):
            return array
        columns = [_numbers(array.field(i)) for i in range(len(kind))]
        return pa.StructArray.from_arrays(columns, [f.name for f in kind], mask=mask)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(array.offsets, _numbers(array.values), mask=mask)
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(array.offsets, array.keys, _numbers(array.items), mask=mask)
    if pa.types.is_timestamp(kind):
        # What is finer than a microsecond is cut off, as in tables.
        return array.cast(pa.timestamp("us", tz=kind.tz), safe=kind.unit != "ns").cast(pa.int64())
    return array.cast(pa.int32()) if pa.types.is_date32(kind) else array


def json_value(kind: pa.DataType, timestamps: str, keeps_nulls: bool) -> Convert:
    """Return the function that makes a Python value of a type what JSON holds for it.

    Raises:
        FormatError: JSON has nothing for the type.
    """
    types = pa.types
    if types.is_struct(kind):
        fields = [(f.name, json_value(f.type, timestamps, keeps_nulls)) for f in kind]

        def struct(row: Any) -> object:
            made = {}
            for name, convert in fields:
                value = row[name]
                if value is not None:
                    made[name] = convert(value)
                elif keeps_nulls:
                    made[name] = None
            return made

        return struct
    if types.is_list(kind) or types.is_large_list(kind):
        item = json_value(kind.value_type, timestamps, keeps_nulls)
        return lambda values: [None if value is None else item(value) for value in values]
    if types.is_map(kind) and types.is_string(kind.key_type):
        entry = json_value(kind.item_type, timestamps, keeps_nulls)
        return lambda values: {key: None if value is None else entry(value) for key, value in values.items()}
    if types.is_timestamp(kind):
        if timestamps == "iso":
            return lambda micros: _iso(micros, bool(kind.tz))
        factor = EPOCH_MICROS[timestamps]
        return lambda micros: micros // factor
    if types.is_date32(kind):
        return day_text
    if types.is_decimal(kind):
        return lambda number: NumberText(f"{number:f}")
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    if types.is_floating(kind):
        return float_word
    if types.is_integer(kind) or types.is_boolean(kind) or types.is_string(kind):
        return lambda value: value
    if types.is_large_string(kind) or types.is_null(kind):
        return lambda value: value
    raise FormatError(f"a column of type {kind} cannot be written as JSON; cast it to a text or a number")


def _iso(micros: int, is_utc: bool) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    days, rest = divmod(seconds, 86_400)
    text = f"{day_text(days)}T{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    if fraction:
        text += f".{fraction:06}".rstrip("0")
    return text + ("Z" if is_utc else "")


def _has_decimal(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_decimal(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_decimal(kind))


class CsvEncoder:
    """Writes one line of CSV per row, without a line break at its end."""

    def __init__(self, spec: FormatSpec, columns: pa.Schema) -> None:
        spec.check_options(("delimiter", "quote", "null_value"))
        self._delimiter: Final = spec.options.get("delimiter", ",").replace("\\t", "\t")
        self._quote: Final = spec.options.get("quote", '"')
        self._null: Final = spec.options.get("null_value", "")
        for field in columns:
            if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
                raise FormatError(f"{field.name} has type {field.type}, which a line of CSV cannot hold")
            json_value(field.type, "iso", True)

    def encode(self, rows: pa.StructArray) -> pa.BinaryArray:
        """Encode rows; see `kalda.formats.Encoder`."""
        # The name of a number that is none, as NaN, has no quotes here.
        converts = [
            float if pa.types.is_floating(f.type) else json_value(f.type, "iso", True) for f in rows.type
        ]
        names = [f.name for f in rows.type]
        found: list[bytes | None] = []
        for index, row in enumerate(_plain(rows)):
            if row is None:
                found.append(None)
                continue
            cells = [
                self._null if row[name] is None else self._cell(convert(row[name]))
                for name, convert in zip(names, converts, strict=True)
            ]
            text = self._delimiter.join(cells)
            if "\n" in text or "\r" in text:
                raise EncodeError(
                    f"row {index} has a text with a line break, which a value of CSV cannot hold"
                )
            found.append(text.encode())
        return pa.array(found, pa.binary())

    def _cell(self, value: object) -> str:
        """Return the text of a value; texts are quoted, so that none is read back as null."""
        if isinstance(value, float):
            return str(float_word(value))
        if isinstance(value, bool):
            return "true" if value else "false"
        if type(value) is str:
            return f"{self._quote}{value.replace(self._quote, self._quote * 2)}{self._quote}"
        return str(value)


class AvroEncoder:
    """Writes Avro values; with a registry, under a schema that is registered for the subject."""

    def __init__(self, spec: FormatSpec, columns: pa.Schema) -> None:
        is_framed = spec.name == "avro-sr"
        spec.check_options((*REGISTRY_OPTIONS, *SUBJECT_OPTIONS) if is_framed else ())
        if spec.schema is not None and not isinstance(spec.schema, str):
            raise FormatError(f"the schema of format {spec.name} is an Avro schema as JSON")
        text = spec.schema if spec.schema is not None else json.dumps(avro_schema_of(columns))
        self._target: Final = WrittenSchema(spec, "AVRO") if is_framed else None
        references: tuple[str, ...] = ()
        if self._target is not None and "schema.id" in spec.options:
            found = self._target.found()
            assert found is not None, "an id is named"
            text, references = found.text, tuple(each for _, each in found.references)
        self._schema: Final[AvroSchema] = parse_avro(text, references)
        if not self._schema.is_record:
            raise FormatError("rows are written as Avro records; the schema is none")
        wanted = {field.name for field in self._schema.type}
        if unknown := [name for name in columns.names if name not in wanted]:
            raise FormatError(f"the Avro schema has no field for the columns {', '.join(unknown)}")
        check_written(pa.struct(list(columns)), self._schema.type)
        self._convert = _in_units(self._schema.expanded)

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the compiled function, which is made again where it is used."""
        return self.__dict__ | {"_convert": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._convert = _in_units(self._schema.expanded)

    def encode(self, rows: pa.StructArray) -> pa.BinaryArray:
        """Encode rows; see `kalda.formats.Encoder`.

        Raises:
            RegistryError: The registry does not answer, or refuses the schema.
        """
        head = b"" if self._target is None else self._target.head(self._schema.text)
        found: list[bytes | None] = []
        for index, row in enumerate(_plain(written(rows, self._schema.type))):
            if row is None:
                found.append(None)
                continue
            stream = io.BytesIO()
            stream.write(head)
            try:
                made = row if self._convert is None else self._convert(row)
                fastavro.schemaless_writer(stream, cast(Any, self._schema.parsed), made)
            except Exception as error:  # fastavro raises what its C code meets
                raise EncodeError(f"row {index} does not fit the Avro schema: {error}") from error
            found.append(stream.getvalue())
        return pa.array(found, pa.binary())


def _in_units(node: object) -> Convert | None:
    """Return the function from microseconds to the unit of an expanded Avro type; None where nothing changes.

    It also refuses a null for a boolean, which fastavro writes as false.
    """
    if node == "boolean":
        return _boolean
    if isinstance(node, list):
        others = [branch for branch in node if branch != "null"]
        inner = _in_units(others[0]) if len(others) == 1 else None
        return None if inner is None else lambda value: None if value is None else inner(value)
    if not isinstance(node, Mapping):
        return None
    kind, logical = node.get("type"), str(node.get("logicalType"))
    if kind == "long" and logical in TIMESTAMP_MICROS and TIMESTAMP_MICROS[logical] != (1, 1):
        factor, divisor = TIMESTAMP_MICROS[logical]
        return lambda micros: None if micros is None else micros * divisor // factor
    if kind in ("record", "error"):
        fields = [(field["name"], _in_units(field["type"])) for field in node["fields"]]
        converts = {name: convert for name, convert in fields if convert is not None}
        if not converts:
            return None
        return lambda row: (
            None
            if row is None
            else row | {name: convert(row[name]) for name, convert in converts.items() if name in row}
        )
    if kind in ("array", "map"):
        item = _in_units(node["items" if kind == "array" else "values"])
        if item is None:
            return None
        if kind == "array":
            return lambda values: None if values is None else [item(each) for each in values]
        return lambda values: None if values is None else {key: item(each) for key, each in values.items()}
    return _in_units(kind)


def _boolean(value: object) -> object:
    if value is None:
        raise ValueError("a boolean is null, and its type is no union with null")
    return value


def avro_schema_of(columns: pa.Schema, name: str = "Row") -> dict[str, object]:
    """Return the Avro schema of columns: every field is nullable with the default null.

    Raises:
        FormatError: A name is none in Avro, or a type has no counterpart.
    """
    fields = []
    for field in columns:
        if not (field.name.isascii() and field.name.isidentifier()):
            raise FormatError(
                f"{field.name!r} is no name in Avro: letters, digits and _ are; rename the column"
            )
        fields.append(
            {
                "name": field.name,
                "type": ["null", _avro_type(field.type, f"{name}_{field.name}")],
                "default": None,
            }
        )
    return {"type": "record", "name": name, "fields": fields}


def _avro_type(kind: pa.DataType, name: str) -> object:
    types = pa.types
    if types.is_struct(kind):
        return avro_schema_of(pa.schema(list(kind)), name)
    if types.is_list(kind):
        return {"type": "array", "items": ["null", _avro_type(kind.value_type, name)]}
    if types.is_map(kind) and types.is_string(kind.key_type):
        return {"type": "map", "values": ["null", _avro_type(kind.item_type, name)]}
    if types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if types.is_timestamp(kind):
        return {"type": "long", "logicalType": "timestamp-micros" if kind.tz else "local-timestamp-micros"}
    if types.is_date32(kind):
        return {"type": "int", "logicalType": "date"}
    names: Mapping[pa.DataType, str] = {
        pa.bool_(): "boolean",
        pa.int8(): "int",
        pa.int16(): "int",
        pa.int32(): "int",
        pa.int64(): "long",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.string(): "string",
        pa.large_string(): "string",
        pa.binary(): "bytes",
        pa.large_binary(): "bytes",
    }
    if kind not in names:
        raise FormatError(f"a column of type {kind} has no counterpart in Avro; cast it")
    return names[kind]


class ProtobufEncoder:
    """Writes Protobuf messages of a declared schema; with a registry, registered for the subject."""

    def __init__(self, spec: FormatSpec, columns: pa.Schema) -> None:
        is_framed = spec.name == "protobuf-sr"
        spec.check_options((*REGISTRY_OPTIONS, *SUBJECT_OPTIONS, "message") if is_framed else ("message",))
        self._target: Final = WrittenSchema(spec, "PROTOBUF") if is_framed else None
        text = spec.schema
        references: tuple[tuple[str, str], ...] = ()
        if self._target is not None and "schema.id" in spec.options:
            found = self._target.found()
            assert found is not None, "an id is named"
            text, references = found.text, found.references
        if not isinstance(text, str):
            raise FormatError(f"format {spec.name} needs a schema to write: .proto text")
        if is_framed and text.startswith("base64:"):
            raise FormatError("a schema registry takes .proto text, not a descriptor set")
        self._descriptors: Final = compile_proto(text, references)
        self._name: Final = spec.options.get("message")
        self._schema: ProtobufSchema | None = None
        self._type: Final = message_type(self._message()[1])
        if unknown := [name for name in columns.names if self._type.get_field_index(name) < 0]:
            raise FormatError(f"the Protobuf message has no field for the columns {', '.join(unknown)}")
        check_written(pa.struct(list(columns)), self._type)

    def __getstate__(self) -> dict[str, object]:
        """Return the state without descriptors, which cannot be pickled."""
        return self.__dict__ | {"_schema": None}

    def encode(self, rows: pa.StructArray) -> pa.BinaryArray:
        """Encode rows; see `kalda.formats.Encoder`.

        Raises:
            RegistryError: The registry does not answer, or refuses the schema.
        """
        schema, descriptor = self._message()
        make = schema.factory(descriptor)
        head = b"" if self._target is None else self._target.head() + _path(descriptor)
        found: list[bytes | None] = []
        for index, row in enumerate(_plain(written(rows, self._type))):
            if row is None:
                found.append(None)
                continue
            try:
                found.append(head + make.SerializeToString(make(**_arguments(descriptor, row))))
            except Exception as error:  # a field may be of any kind, and so is what its setter raises
                raise EncodeError(f"row {index} does not fit the Protobuf message: {error}") from error
        return pa.array(found, pa.binary())

    def _message(self) -> tuple[ProtobufSchema, Descriptor]:
        if self._schema is None:
            self._schema = ProtobufSchema(self._descriptors)
        return self._schema, self._schema.message(self._name)


def _arguments(descriptor: Descriptor, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a message's constructor for a row."""
    made: dict[str, Any] = {}
    for name, value in row.items():
        if value is None:
            continue
        field = descriptor.fields_by_name[name]
        if is_map(field):
            entry = field.message_type.fields_by_name["value"]
            made[name] = {key: _argument(entry, item) for key, item in value.items()}
        elif field.is_repeated:
            made[name] = [_argument(field, item) for item in value]
        else:
            made[name] = _argument(field, value)
    return made


def _argument(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == "google.protobuf.Timestamp":
            seconds, micros = divmod(value, 1_000_000)
            return {"seconds": seconds, "nanos": micros * 1000}
        return {"value": value} if name in WRAPPERS else _arguments(field.message_type, value)
    return int(value) if isinstance(value, Decimal) else value


def _path(descriptor: Descriptor) -> bytes:
    """Return the indexes of a message as the registry's framing has them."""
    indexes: list[int] = []
    node: Descriptor | None = descriptor
    while node is not None:
        parent = node.containing_type
        siblings = parent.nested_types if parent is not None else node.file.message_types_by_name.values()
        indexes.insert(0, [each.name for each in siblings].index(node.name))
        node = parent
    return message_path(indexes)


def _head(schema_id: int) -> bytes:
    head = b"\0" + schema_id.to_bytes(4, "big")
    assert len(head) == HEADER_BYTES
    return head
