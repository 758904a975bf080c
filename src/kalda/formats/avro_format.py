"""Decodes Avro values: ``avro`` by a declared schema, ``avro-sr`` by the schema whose id each value names.

Schemas of plain fields, nested records, enums and nullable fields decode column by column. What has arrays,
maps or a reader schema that differs from the writer's is decoded by fastavro, value by value.
"""

import copy
import io
import re
from collections.abc import Sequence
from typing import Final

import fastavro
import numpy as np
import pyarrow as pa

from kalda.common.overriding import override
from kalda.formats.avro_bytes import checker
from kalda.formats.avro_columns import Columns
from kalda.formats.avro_logical import converter
from kalda.formats.avro_resolution import Resolution, check_resolution
from kalda.formats.avro_schema import VALUE, AvroSchema, is_columnar, parse_avro, parse_written
from kalda.formats.decoded import (
    MALFORMED,
    Decoded,
    DecodeFailure,
    joined,
    merged,
    null_rows,
    present,
    spread,
)
from kalda.formats.framing import (
    HEADER_BYTES,
    columns_of_good,
    decode_framed,
    framed_columns,
    slices_of,
    value_ranges,
)
from kalda.formats.merging import leaf_count
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

_BYTES_MAX: Final = 512 << 10
"""Bytes of values that are decoded at once; as Python objects they take some hundred times as much."""
_CELLS_MAX: Final = 1 << 22
"""Rows times fields of the writer's schema that are decoded at once."""

_ADDRESS: Final = re.compile(r" from <_io\.BytesIO object at 0x[0-9a-f]+>")
"""What fastavro says of its source, which differs each time."""


class AvroDecoder:
    """Decodes values without framing, by a declared schema."""

    def __init__(self, spec: FormatSpec) -> None:
        spec.check_options(())
        if not isinstance(spec.schema, str):
            raise FormatError("format avro needs a schema: the Avro schema as JSON, in schema or schema_file")
        self._schema: Final = parse_avro(spec.schema)

    def schema(self) -> pa.Schema:
        """Return the columns of the schema."""
        return pa.schema(list(self._schema.type))

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; see `kalda.formats.Decoder`."""
        return decode_avro(values, self._schema, None, 0)


class RegistryAvroDecoder:
    """Decodes values with the framing of a schema registry.

    With a schema, or the latest one of ``subject``, all values get its columns by Avro's schema resolution.
    Without one the columns are those of the schemas that the values name.
    """

    def __init__(self, spec: FormatSpec) -> None:
        spec.check_options((*REGISTRY_OPTIONS, *SUBJECT_OPTIONS))
        self._spec: Final = spec
        if spec.schema is not None and not set(SUBJECT_OPTIONS).isdisjoint(spec.options):
            raise FormatError("schema and subject are both given; give one")
        if spec.schema is not None and not isinstance(spec.schema, str):
            raise FormatError("the schema of format avro-sr is an Avro schema as JSON")
        self._reader: AvroSchema | None = None if spec.schema is None else parse_avro(spec.schema)
        self._client: Final = RegistryClient(registry_settings(spec))
        self._writers: Final = ParsedSchemas(self._client, "AVRO", _parsed)
        self._type: pa.DataType | None = None

    def schema(self) -> pa.Schema | None:
        """Return the columns of the declared schema or of the subject's latest one; None without these.

        Raises:
            RegistryError: The registry does not answer.
        """
        if self._type is not None:
            return pa.schema(list(self._type))
        reader = self.reader()
        return None if reader is None else pa.schema(list(reader.type))

    def columns(self, values: pa.BinaryArray) -> pa.StructType:
        """Return the columns of the schemas that good values name; see `kalda.formats.Decoder`."""
        return framed_columns(values, self.columns_of)

    def with_columns(self, columns: pa.StructType) -> "RegistryAvroDecoder":
        """Return the decoder whose rows have these columns."""
        decoder = copy.copy(self)
        decoder._type = columns
        return decoder

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; see `kalda.formats.Decoder`."""
        reader = self.reader()
        kind = self._type if reader is None else reader.type
        assert kind is not None, "columns are found before values are decoded"
        return decode_framed(values, self.decode_id, kind)

    def reader(self) -> AvroSchema | None:
        """Return the declared schema or the subject's latest one; None without these.

        Raises:
            FormatError: The subject has no Avro schema.
            RegistryError: The registry does not answer.
        """
        if self._reader is None:
            found = subject_schema(self._client, self._spec, "AVRO")
            self._reader = None if found is None else parse_avro(found.text, _references(found))
        return self._reader

    def columns_of(self, schema_id: int, framed: pa.BinaryArray) -> pa.StructType:
        """Return the columns of values of one id; none when none is good."""
        return columns_of_good(framed, lambda values: self.decode_id(schema_id, values))

    def decode_id(self, schema_id: int, framed: pa.BinaryArray) -> Decoded:
        """Decode values of one id to the columns of its schema, or of the declared one.

        Raises:
            UnknownSchemaError: The registry has no such schema.
            FormatError: The schema cannot be decoded.
        """
        writer, reader = self._writers.get(schema_id), self.reader()
        if reader is None and writer.refusal is not None:
            raise FormatError(f"schema {schema_id} cannot be decoded: {writer.refusal}")
        return decode_avro(framed, writer, reader, HEADER_BYTES)


def _parsed(schema: RegisteredSchema) -> AvroSchema:
    return parse_written(schema.text, _references(schema))


def _references(schema: RegisteredSchema) -> tuple[str, ...]:
    return tuple(text for _, text in schema.references)


def decode_avro(
    values: pa.BinaryArray, writer: AvroSchema, reader: AvroSchema | None, skipped: int
) -> Decoded:
    """Decode values of one schema.

    Args:
        values: The values.
        writer: The schema that they were written with.
        reader: The schema whose columns are wanted; None for the writer's.
        skipped: How many bytes of framing each value starts with.

    Raises:
        FormatError: The values do not mean what the reader's schema says.
    """
    if reader is not None and reader.expanded != writer.expanded:
        check_resolution(writer.expanded, reader.expanded)
    kind = writer.type if reader is None else reader.type
    rows_max = max(1, _CELLS_MAX // max(leaf_count(writer.type), leaf_count(kind)))
    slices = slices_of(values, _BYTES_MAX, rows_max)
    return joined((_decode_slice(each, writer, reader, skipped) for each in slices), kind)


def _decode_slice(
    values: pa.BinaryArray, writer: AvroSchema, reader: AvroSchema | None, skipped: int
) -> Decoded:
    kind = writer.type if reader is None else reader.type
    positions = present(values)
    found = values if positions is None else values.drop_null()
    places = range(len(values)) if positions is None else positions
    if not len(found):
        return Decoded(null_rows(kind, len(values)), ())
    resolution = Resolution.of(writer, reader) if is_columnar(writer.expanded) else None
    if resolution is not None:
        data, starts, ends = value_ranges(found)
        columns = Columns(data, np.minimum(starts + skipped, ends), ends)
        rows = resolution.resolved(columns.decode(resolution.written))
        if not columns.failures:
            return Decoded(spread(rows, places, len(values)), ())
        good = [index for index in range(len(found)) if index not in columns.failures]
        failures = [
            DecodeFailure(places[index], error_class, cut(message))
            for index, (error_class, message) in columns.failures.items()
        ]
        rows = rows.take(pa.array(good, pa.int64()))
        return Decoded(spread(rows, [places[index] for index in good], len(values)), merged(failures))
    return _decode_each(found, places, len(values), writer, reader, skipped)


class _WholeReads(io.BytesIO):
    """Bytes that end with an error: what fastavro passes over, for a reader without the field, may be cut."""

    @override
    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        if size is not None and len(found) < size:
            raise EOFError(f"{size} bytes are expected, and there are {len(found)}")
        return found


def _decode_each(
    values: pa.BinaryArray,
    places: Sequence[int],
    length: int,
    writer: AvroSchema,
    reader: AvroSchema | None,
    skipped: int,
) -> Decoded:
    wanted = writer if reader is None else reader
    convert = converter(wanted.expanded, writer.expanded)
    check = checker(writer.expanded, wanted.expanded)
    rows: list[object] = []
    good: list[int] = []
    failures: list[DecodeFailure] = []
    for place, value in zip(places, values.to_pylist(), strict=True):
        source = io.BytesIO(value) if reader is None else _WholeReads(value)
        source.seek(skipped)
        try:
            row: object = fastavro.schemaless_reader(
                source, writer.plain, None if reader is None else reader.plain
            )
            left = len(value) - source.tell()
            if left:
                raise ValueError(f"{left} bytes are left behind the value")
            if check(value, skipped) != len(value):
                raise ValueError("it is not as long as its numbers say")
            if convert is not None:
                row = convert(row)
        except (
            Exception
        ) as error:  # fastavro raises what its C code meets: EOFError, IndexError, TypeError, ...
            reason = _ADDRESS.sub("", str(error))
            message = f"not a value of the Avro schema: {type(error).__name__} {reason}"
            failures.append(DecodeFailure(place, MALFORMED, cut(message)))
        else:
            rows.append(row if wanted.is_record else {VALUE: row})
            good.append(place)
    try:
        columns = pa.array(rows, wanted.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        columns, good = _fitting(rows, good, wanted.type, failures)
    return Decoded(spread(columns, good, length), merged(failures))


def _fitting(
    rows: list[object], places: list[int], kind: pa.DataType, failures: list[DecodeFailure]
) -> tuple[pa.StructArray, list[int]]:
    """Return the rows that fit a type and their places; the others become failures."""
    kept: list[object] = []
    good: list[int] = []
    for row, place in zip(rows, places, strict=True):
        try:
            pa.array([row], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            failures.append(DecodeFailure(place, MALFORMED, cut(f"a field has no such value: {error}")))
        else:
            kept.append(row)
            good.append(place)
    return pa.array(kept, kind), good
