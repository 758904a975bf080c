"""Decodes Protobuf values: ``protobuf`` by a declared message, ``protobuf-sr`` by the schema each names.

Messages are parsed one by one in C; their fields become columns one by one. Protobuf has no checksum and
ignores fields that it does not know, so not every damage of a value can be seen.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from kalda.formats.decoded import (
    MALFORMED,
    MISMATCH,
    BadValueError,
    Decoded,
    DecodeFailure,
    merged,
    null_rows,
    present,
    spread,
)
from kalda.formats.framing import HEADER_BYTES, decode_framed
from kalda.formats.protobuf_schema import (
    WRAPPERS,
    ProtobufSchema,
    compile_proto,
    field_type,
    is_map,
    message_type,
)
from kalda.formats.registry import OPTIONS as REGISTRY_OPTIONS
from kalda.formats.registry import RegistryClient, UnknownSchemaError, registry_settings
from kalda.formats.spec import FormatError, FormatSpec, cut

_INDEXES_MAX: Final = 64
Read = Callable[[Any], object]


class ProtobufDecoder:
    """Decodes values without framing, by a declared message."""

    def __init__(self, spec: FormatSpec) -> None:
        spec.check_options(("message",))
        if not isinstance(spec.schema, str):
            raise FormatError("format protobuf needs a schema: .proto text or a descriptor set")
        self._descriptors: Final = compile_proto(spec.schema)
        self._message: Final = spec.options.get("message")
        self._reader: MessageReader | None = None
        self._type: Final = self._reading().type

    def __getstate__(self) -> dict[str, object]:
        """Return the state without descriptors, which cannot be pickled."""
        return self.__dict__ | {"_reader": None}

    def schema(self) -> pa.Schema:
        """Return the fields of the message."""
        return pa.schema(list(self._type))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; see `kalda.formats.Decoder`."""
        return self._reading().decode(values, lambda value: value)

    def _reading(self) -> "MessageReader":
        if self._reader is None:
            schema = ProtobufSchema(self._descriptors)
            self._reader = MessageReader(schema, schema.message(self._message))
        return self._reader


class RegistryProtobufDecoder:
    """Decodes values with the framing of a schema registry and the indexes of their message.

    With a schema, all values get the columns of its message. Fields go by their numbers, as Protobuf's
    evolution does. Without one the columns are those of the messages that a batch names.
    """

    def __init__(self, spec: FormatSpec) -> None:
        spec.check_options((*REGISTRY_OPTIONS, "message"))
        self._client: Final = RegistryClient(registry_settings(spec))
        if spec.schema is not None and not isinstance(spec.schema, str):
            raise FormatError("the schema of format protobuf-sr is .proto text or a descriptor set")
        if spec.schema is None and "message" in spec.options:
            raise FormatError("option message needs a schema; without one, values name their message")
        self._declared: Final = (
            None
            if spec.schema is None
            else ProtobufDecoder(FormatSpec("protobuf", spec.schema, None, _only_message(spec)))
        )
        self._schemas: dict[int, ProtobufSchema] = {}
        self._readers: dict[tuple[int, tuple[int, ...]], MessageReader] = {}

    def __getstate__(self) -> dict[str, object]:
        """Return the state without descriptors, which cannot be pickled."""
        return self.__dict__ | {"_schemas": {}, "_readers": {}}

    def schema(self) -> pa.Schema | None:
        """Return the fields of the declared message; None without one."""
        return None if self._declared is None else self._declared.schema()

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; see `kalda.formats.Decoder`."""
        schema = self.schema()
        return decode_framed(values, self._decode_id, None if schema is None else pa.struct(list(schema)))

    def _decode_id(self, schema_id: int, framed: pa.BinaryArray) -> Decoded:
        schema = self._schema(schema_id)
        heads: list[tuple[tuple[int, ...], int] | None] = [_indexes(value) for value in framed.to_pylist()]
        names = {head[0] for head in heads if head is not None}
        if len(names) > 1:
            raise FormatError(f"values of schema {schema_id} in one batch name {len(names)} messages of it")
        indexes = next(iter(names), (0,))
        if self._declared is not None:
            reader = self._declared._reading()
        else:
            key = schema_id, indexes
            if key not in self._readers:
                self._readers[key] = MessageReader(schema, schema.message_at(indexes))
            reader = self._readers[key]
        starts = iter(heads)

        def payload(value: bytes) -> bytes:
            head = next(starts)
            if head is None:
                raise BadValueError(MALFORMED, "the indexes of the message are cut")
            return value[head[1] :]

        return reader.decode(framed, payload)

    def _schema(self, schema_id: int) -> ProtobufSchema:
        if schema_id not in self._schemas:
            found = self._client.schema(schema_id)
            if found.kind != "PROTOBUF":
                raise UnknownSchemaError(f"schema {schema_id} is {found.kind}, not PROTOBUF")
            self._schemas[schema_id] = ProtobufSchema(compile_proto(found.text, found.references))
        return self._schemas[schema_id]


class MessageReader:
    """Parses the values of one message type."""

    def __init__(self, schema: ProtobufSchema, descriptor: Descriptor) -> None:
        self._schema: Final = schema  # keeps the pool of the descriptors
        self._make: Final = schema.factory(descriptor)
        self.type: Final = message_type(descriptor)
        self._fields: Final = [
            (_reader_of(field), field_type(field, (descriptor.full_name,))) for field in descriptor.fields
        ]

    def decode(self, values: pa.BinaryArray, payload: Callable[[bytes], bytes]) -> Decoded:
        """Decode values; `payload` returns what follows the framing, and is called once for each in order."""
        positions = present(values)
        places: Sequence[int] = range(len(values)) if positions is None else positions
        found = values if positions is None else values.drop_null()
        failures: list[DecodeFailure] = []
        good: list[int] = []
        messages: list[Any] = []
        for place, value in zip(places, found.to_pylist(), strict=True):
            try:
                messages.append(self._make.FromString(payload(value)))
            except BadValueError as error:
                failures.append(error.at(place))
            except (DecodeError, UnicodeDecodeError) as error:
                failures.append(DecodeFailure(place, MALFORMED, cut(f"not a Protobuf message: {error}")))
            else:
                good.append(place)
        if not messages:
            return Decoded(null_rows(self.type, len(values)), tuple(failures))
        try:
            rows = self._rows(messages)
        except (pa.ArrowException, ValueError, OverflowError):
            rows, good = self._fitting(messages, good, failures)
        return Decoded(spread(rows, good, len(values)), merged(failures))

    def _rows(self, messages: list[Any]) -> pa.StructArray:
        if not self._fields:
            return pa.array([{}] * len(messages), self.type)
        columns = [pa.array([read(message) for message in messages], kind) for read, kind in self._fields]
        return pa.StructArray.from_arrays(columns, fields=list(self.type))

    def _fitting(
        self, messages: list[Any], places: list[int], failures: list[DecodeFailure]
    ) -> tuple[pa.StructArray, list[int]]:
        """Return the rows of messages that fit the columns; a timestamp may lie beyond 64 bits."""
        kept: list[pa.StructArray] = []
        good: list[int] = []
        for message, place in zip(messages, places, strict=True):
            try:
                kept.append(self._rows([message]))
            except (pa.ArrowException, ValueError, OverflowError) as error:
                failures.append(DecodeFailure(place, MISMATCH, cut(f"a field does not fit: {error}")))
            else:
                good.append(place)
        return (pa.concat_arrays(kept) if kept else null_rows(self.type, 0)), good


def _reader_of(field: FieldDescriptor) -> Read:
    """Return the function that reads a field of a message as ``pyarrow.array`` takes it."""
    name = field.name
    if is_map(field):
        value = _converter(field.message_type.fields_by_name["value"])
        if value is None:
            return lambda message: list(getattr(message, name).items())
        return lambda message: [(key, value(getattr(message, name)[key])) for key in getattr(message, name)]
    convert = _converter(field)
    if field.is_repeated:
        if convert is None:
            return lambda message: list(getattr(message, name))
        return lambda message: [convert(item) for item in getattr(message, name)]
    if field.has_presence:
        if convert is None:
            return lambda message: getattr(message, name) if message.HasField(name) else None
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    if convert is None:
        return lambda message: getattr(message, name)
    return lambda message: convert(getattr(message, name))


def _converter(field: FieldDescriptor) -> Read | None:
    """Return what makes a value of a field a value of its column; None for no conversion."""
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == "google.protobuf.Timestamp":
            return lambda moment: moment.seconds * 1_000_000 + moment.nanos // 1000
        if name in WRAPPERS:
            return lambda wrapper: wrapper.value
        readers = [(child.name, _reader_of(child)) for child in field.message_type.fields]
        return lambda message: {child: read(message) for child, read in readers}
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda number: names.get(number, str(number))
    return None


def _indexes(value: bytes) -> tuple[tuple[int, ...], int] | None:
    """Return the indexes of the message behind the header and where they end; None if they are cut."""
    position = HEADER_BYTES
    numbers: list[int] = []
    count = 1
    while len(numbers) < count:
        shift = number = 0
        while True:
            if position >= len(value) or shift > 35:
                return None
            byte = value[position]
            position += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        number = (number >> 1) ^ -(number & 1)
        if count == 1 and not numbers:
            if number == 0:
                return (0,), position  # the common message 0 is one zero byte
            if not 0 < number <= _INDEXES_MAX:
                return None
            count = number + 1
        numbers.append(number)
    return tuple(numbers[1:]), position


def _only_message(spec: FormatSpec) -> dict[str, str]:
    return {name: value for name, value in spec.options.items() if name == "message"}
