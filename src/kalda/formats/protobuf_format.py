"""Decodes Protobuf values: ``protobuf`` by a declared message, ``protobuf-sr`` by the schema each names.

Messages are parsed one by one in C; their fields become columns one by one. Protobuf has no checksum and
ignores fields that it does not know, so not every damage of a value can be seen. It also passes over what a
field of the schema cannot hold: a number that a proto2 enum lacks, bytes of another type. The field then
looks as if it were not there, so such a value is bad.
"""

import base64
import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from google.protobuf import unknown_fields
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from kalda.formats.decoded import (
    MALFORMED,
    MISMATCH,
    TOO_LARGE,
    UNKNOWN_SCHEMA,
    BadValueError,
    Decoded,
    DecodeFailure,
    merged,
    null_rows,
    present,
    spread,
)
from kalda.formats.framing import HEADER_BYTES, decode_framed, framed_columns, scattered
from kalda.formats.merging import item_leaves, merged_all
from kalda.formats.misfits import fitted
from kalda.formats.protobuf_schema import (
    WRAPPERS,
    ProtobufSchema,
    compile_proto,
    field_type,
    is_map,
    message_type,
)
from kalda.formats.registry import OPTIONS as REGISTRY_OPTIONS
from kalda.formats.registry import (
    SUBJECT_OPTIONS,
    ParsedSchemas,
    RegisteredSchema,
    RegistryClient,
    registry_settings,
    subject_schema,
)
from kalda.formats.spec import FormatError, FormatSpec, cut

_INDEXES_MAX: Final = 64
_CELLS_MAX: Final = 1 << 20
"""Fields of messages that are decoded at once; a message of two bytes may have any number of them."""
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
        self._type: Final = self.reader().type

    def __getstate__(self) -> dict[str, object]:
        """Return the state without descriptors, which cannot be pickled."""
        return self.__dict__ | {"_reader": None}

    def schema(self) -> pa.Schema:
        """Return the fields of the message."""
        return pa.schema(list(self._type))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; see `kalda.formats.Decoder`."""
        positions = present(values)
        if positions is None:
            return self.reader().decode(values.to_pylist())
        decoded = self.reader().decode(values.drop_null().to_pylist())
        failures = [replace(each, row=positions[each.row]) for each in decoded.errors]
        return Decoded(spread(decoded.columns, positions, len(values)), tuple(failures))

    def reader(self) -> "MessageReader":
        """Return the reader of the declared message."""
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
        spec.check_options((*REGISTRY_OPTIONS, *SUBJECT_OPTIONS, "message"))
        self._client: Final = RegistryClient(registry_settings(spec))
        self._spec: Final = spec
        if spec.schema is not None and not isinstance(spec.schema, str):
            raise FormatError("the schema of format protobuf-sr is .proto text or a descriptor set")
        has_subject = not set(SUBJECT_OPTIONS).isdisjoint(spec.options)
        if spec.schema is not None and has_subject:
            raise FormatError("schema and subject are both given; give one")
        if spec.schema is None and not has_subject and "message" in spec.options:
            raise FormatError("option message needs a schema; without one, values name their message")
        self._declared = (
            None
            if spec.schema is None
            else ProtobufDecoder(FormatSpec("protobuf", spec.schema, None, _only_message(spec)))
        )
        self._schemas: Final = ParsedSchemas(self._client, "PROTOBUF", _compiled)
        self._readers: dict[tuple[int, tuple[int, ...]], MessageReader] = {}
        self._type: pa.DataType | None = None

    def __getstate__(self) -> dict[str, object]:
        """Return the state without descriptors, which cannot be pickled."""
        return self.__dict__ | {"_readers": {}}

    def schema(self) -> pa.Schema | None:
        """Return the fields of the declared message; None without one."""
        if self._type is not None:
            return pa.schema(list(self._type))
        if self._declared is None:
            found = subject_schema(self._client, self._spec, "PROTOBUF")
            if found is not None:
                descriptors = base64.b64encode(compile_proto(found.text, found.references)).decode()
                spec = FormatSpec("protobuf", f"base64:{descriptors}", None, _only_message(self._spec))
                self._declared = ProtobufDecoder(spec)
        return None if self._declared is None else self._declared.schema()

    def columns(self, values: pa.BinaryArray) -> pa.StructType:
        """Return the columns of the messages that good values name; see `kalda.formats.Decoder`."""
        return framed_columns(values, self._columns_of)

    def with_columns(self, columns: pa.StructType) -> "RegistryProtobufDecoder":
        """Return the decoder whose rows have these columns."""
        decoder = copy.copy(self)
        decoder._type = columns
        return decoder

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; see `kalda.formats.Decoder`."""
        schema = self.schema()
        assert schema is not None, "columns are found before values are decoded"
        kind = pa.struct(list(schema))
        return decode_framed(values, lambda number, framed: self._decode_id(number, framed, kind), kind)

    def _columns_of(self, schema_id: int, framed: pa.BinaryArray) -> pa.StructType:
        kinds = []
        for indexes, places, payloads in _messages(framed, []):
            with suppress(FormatError):
                reader = self._reader(schema_id, indexes)
                if len(reader.decode(payloads).errors) < len(places):
                    kinds.append(reader.type)
        return merged_all(kinds)

    def _decode_id(self, schema_id: int, framed: pa.BinaryArray, kind: pa.DataType) -> Decoded:
        """Decode values of one schema, those of each of its messages for themselves."""
        self._schemas.get(schema_id)
        failures: list[DecodeFailure] = []
        parts: list[tuple[list[int], pa.StructArray]] = []
        for indexes, places, payloads in _messages(framed, failures):
            try:
                decoded = fitted(self._reader(schema_id, indexes).decode(payloads), kind)
            except FormatError as error:
                bad = BadValueError(UNKNOWN_SCHEMA, str(error))
                failures += [bad.at(place) for place in places]
                continue
            failures += [replace(each, row=places[each.row]) for each in decoded.errors]
            if len(decoded.errors) < len(places):
                parts.append((places, decoded.columns))
        return Decoded(scattered(parts, len(framed), kind), merged(failures))

    def _reader(self, schema_id: int, indexes: tuple[int, ...]) -> "MessageReader":
        """Return the reader of a message.

        Raises:
            UnknownSchemaError, FormatError: The registry has no such schema, or it has no such message.
        """
        schema = self._schemas.get(schema_id)
        if self._declared is not None:
            schema.message_at(indexes)
            return self._declared.reader()
        key = schema_id, indexes
        if key not in self._readers:
            self._readers[key] = MessageReader(schema, schema.message_at(indexes))
        return self._readers[key]


def _compiled(schema: RegisteredSchema) -> ProtobufSchema:
    return ProtobufSchema(compile_proto(schema.text, schema.references))


def _messages(
    framed: pa.BinaryArray, failures: list[DecodeFailure]
) -> list[tuple[tuple[int, ...], list[int], list[bytes]]]:
    """Return the indexes of each message, and the places and the payloads of its values."""
    found: dict[tuple[int, ...], tuple[list[int], list[bytes]]] = {}
    for place, value in enumerate(framed.to_pylist()):
        head = _indexes(value)
        if head is None:
            failures.append(BadValueError(MALFORMED, "the indexes of the message are cut").at(place))
            continue
        places, payloads = found.setdefault(head[0], ([], []))
        places.append(place)
        payloads.append(value[head[1] :])
    return [(indexes, *rest) for indexes, rest in found.items()]


class MessageReader:
    """Parses the values of one message type."""

    def __init__(self, schema: ProtobufSchema, descriptor: Descriptor) -> None:
        self._schema: Final = schema  # keeps the pool of the descriptors
        self._make: Final = schema.factory(descriptor)
        self.type: Final = message_type(descriptor)
        self._fields: Final = [
            (_reader_of(field), field_type(field, (descriptor.full_name,))) for field in descriptor.fields
        ]
        self._item_leaves: Final = item_leaves(self.type)
        self._passed_over: Final = _finder(descriptor)

    def decode(self, payloads: Sequence[bytes]) -> Decoded:
        """Decode messages.

        Raises:
            BadValueError: They take too much memory as rows.
        """
        failures: list[DecodeFailure] = []
        good: list[int] = []
        messages: list[Any] = []
        for place, payload in enumerate(payloads):
            try:
                message = self._make.FromString(payload)
            except (DecodeError, UnicodeDecodeError) as error:
                failures.append(DecodeFailure(place, MALFORMED, cut(f"not a Protobuf message: {error}")))
                continue
            # Methods of the class: fields may have the names of methods.
            if not self._make.IsInitialized(message):
                missing = ", ".join(self._make.FindInitializationErrors(message))
                failures.append(
                    DecodeFailure(place, MALFORMED, cut(f"required fields are missing: {missing}"))
                )
                continue
            passed_over = self._passed_over(message)
            if passed_over is not None:
                failures.append(DecodeFailure(place, MISMATCH, cut(passed_over)))
                continue
            messages.append(message)
            good.append(place)
        if not messages:
            return Decoded(null_rows(self.type, len(payloads)), tuple(failures))
        if sum(map(len, payloads)) // 2 * self._item_leaves > _CELLS_MAX:  # an item takes two bytes at least
            cells = sum(map(_cells, messages))
            if cells > _CELLS_MAX:
                raise BadValueError(
                    TOO_LARGE, f"the value has {cells} fields; up to {_CELLS_MAX} are decoded"
                )
        try:
            rows = self._rows(messages)
        except (pa.ArrowException, ValueError, OverflowError):
            rows, good = self._fitting(messages, good, failures)
        return Decoded(spread(rows, good, len(payloads)), merged(failures))

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
            return lambda message: getattr(message, name) if _has(message, name) else None
        return lambda message: convert(getattr(message, name)) if _has(message, name) else None
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
        # Of several names of a number the first one counts.
        names = {value.number: value.name for value in reversed(field.enum_type.values)}
        return lambda number: names.get(number, str(number))
    return None


def _has(message: Any, name: str) -> bool:
    return bool(type(message).HasField(message, name))


def _finder(descriptor: Descriptor) -> Callable[[Any], str | None]:
    """Return what says which field of a message has bytes that its type cannot hold; None for none."""
    fields = descriptor.fields_by_number
    inner = []
    for field in descriptor.fields:
        kind = field.message_type.fields_by_name.get("value") if is_map(field) else field
        if kind is not None and kind.message_type is not None:
            inner.append((_messages_of(field), _finder(kind.message_type)))

    def find(message: Any) -> str | None:
        for unknown in unknown_fields.UnknownFieldSet(message):
            field = fields.get(unknown.field_number)
            if field is None:
                continue
            if field.enum_type is not None and not unknown.wire_type:
                return f"{field.full_name} has the number {unknown.data}, which its enum lacks"
            return f"{field.full_name} has bytes of another type, or a number that its enum lacks"
        for messages, finder in inner:
            for each in messages(message):
                found = finder(each)
                if found is not None:
                    return found
        return None

    return find


def _messages_of(field: FieldDescriptor) -> Callable[[Any], Iterable[Any]]:
    name = field.name
    if is_map(field):
        return lambda message: [getattr(message, name)[key] for key in getattr(message, name)]
    if field.is_repeated:
        return lambda message: getattr(message, name)
    return lambda message: (getattr(message, name),) if _has(message, name) else ()


def _cells(message: Any) -> int:
    """Return how many fields the message and those inside it have, set or not."""
    kind = type(message)
    count = len(kind.DESCRIPTOR.fields)
    for field, value in kind.ListFields(message):
        if field.message_type is None:
            count += len(value) if field.is_repeated else 0
        elif is_map(field):
            entry = field.message_type.fields_by_name["value"]
            count += 2 * len(value) + (
                sum(_cells(value[key]) for key in value) if entry.message_type is not None else 0
            )
        elif field.is_repeated:
            count += sum(map(_cells, value))
        else:
            count += _cells(value)
    return count


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
