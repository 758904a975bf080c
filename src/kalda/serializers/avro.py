"""Avro with the schemas of a registry, in Confluent's framing."""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kalda.clients.errors import ClientConfigError
from kalda.common.public import public_in
from kalda.records.record import Header
from kalda.schemas.payloads.avro_check import AvroCheck
from kalda.schemas.payloads.framing import HEADER_BYTES, framed, schema_id_of
from kalda.serializers.registry_access import KnownSchemas, waiting
from kalda.serializers.registry_options import Config, Part, RegistryOptions, check_part

if TYPE_CHECKING:
    from kalda.formats.registry import RegisteredSchema, RegistryClient

_AVRO: Final = "AVRO"


@dataclass(frozen=True, slots=True)
class _Writer:
    head: bytes
    schema: Any


@dataclass(frozen=True, slots=True)
class _Reader:
    schema: Any
    check: AvroCheck


@public_in("kalda.serializers")
class AvroSerializer:
    """Writes Avro, and registers its schema.

        orders = AvroSerializer({"schema.registry.url": "http://127.0.0.1:8081"}, schema)
        Producer(bootstrap_servers="localhost:9092", value_serializer=orders)

    Args:
        config: The options of the registry, by Confluent's names.
        schema: The schema as JSON; with ``use.latest.version``, the registry's latest one counts without it.
        to_dict: Makes the dict, list or plain value that Avro writes of what the producer is given.
        part: Whether it is for the ``key`` or the ``value`` of records; their subjects differ.

    Raises:
        ClientConfigError: An option is not possible, or the schema is malformed.
    """

    def __init__(
        self,
        config: Config,
        schema: str | None = None,
        *,
        to_dict: Callable[[Any], Any] | None = None,
        part: Part = "value",
    ) -> None:
        check_part(part)
        self._options: Final = RegistryOptions.of(config)
        self._text: Final = schema
        self._to_dict: Final = to_dict
        self._part: Final[Part] = part
        if schema is None and not self._options.uses_latest:
            raise ClientConfigError("schema= is missing; give the schema, or set `use.latest.version`")
        self._record_name: Final = None if schema is None else _name_of(schema)
        self._schemas: Final = KnownSchemas[str, _Writer](self._options, self._ask)

    def serialize(self, topic: str, headers: Sequence[Header], data: Any) -> bytes | None:
        """Return the framed bytes of a key or value; asks the registry where needed, which may take time.

        Raises:
            SchemaRegistryError: The registry does not answer, or refuses the schema.
            ValueError: The value does not match the schema.
        """
        return waiting(lambda: self.serialize_nowait(topic, headers, data))

    def serialize_nowait(self, topic: str, headers: Sequence[Header], data: Any) -> bytes | None:
        """Return the same without asking the registry; the producers call this one.

        Raises:
            LoadRequiredError: The registry has to be asked.
            ValueError: The value does not match the schema.
        """
        if data is None:
            return None
        writer = self._schemas.get_nowait(self._options.subject(topic, self._part, self._record_name))
        from fastavro import schemaless_writer

        record = data if self._to_dict is None else self._to_dict(data)
        written = io.BytesIO()
        written.write(writer.head)
        try:
            schemaless_writer(written, writer.schema, record)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            raise ValueError(f"it does not match the Avro schema: {error}") from error
        return written.getvalue()

    def _ask(self, client: "RegistryClient", subject: str) -> _Writer:
        options = self._options
        if options.uses_latest:
            latest = client.latest(subject)
            return _Writer(framed(latest.id, b""), parsed_schema(latest))
        assert self._text is not None, "only a serializer that uses the latest version has no schema"
        parsed = _parsed(self._text, ())
        if options.registers:
            schema_id = client.register(subject, _AVRO, self._text, normalize=options.normalizes)
        else:
            schema_id, _ = client.find(subject, _AVRO, self._text, normalize=options.normalizes)
        return _Writer(framed(schema_id, b""), parsed)


@public_in("kalda.serializers")
class AvroDeserializer:
    """Reads Avro by the schemas that values name, of Confluent's framing.

    Args:
        config: The options of the registry, by Confluent's names.
        schema: The schema to read into, as JSON: its new fields get their defaults, and fields that it lacks
            are left out. Without it, each value is read as it was written.
        from_dict: Makes what the consumer returns of the dict, list or plain value that Avro reads.

    Raises:
        ClientConfigError: An option is not possible, or the schema is malformed.
    """

    def __init__(
        self, config: Config, schema: str | None = None, *, from_dict: Callable[[Any], Any] | None = None
    ) -> None:
        self._from_dict: Final = from_dict
        self._text: Final = schema
        self._reader_schema: Any = None
        if schema is not None:
            _name_of(schema)
        self._schemas: Final = KnownSchemas[int, _Reader](RegistryOptions.of(config), self._ask)

    def deserialize(self, topic: str, data: bytes, headers: Sequence[Header]) -> Any:
        """Return what framed bytes hold; asks the registry where needed, which may take time.

        Raises:
            SchemaRegistryError: The registry does not answer.
            ValueError: The bytes are not framed, not of their schema, or the registry does not know its id.
        """
        return waiting(lambda: self.deserialize_nowait(topic, data, headers))

    def deserialize_nowait(self, topic: str, data: bytes, headers: Sequence[Header]) -> Any:
        """Return the same without asking the registry; the consumers call this one.

        Raises:
            LoadRequiredError: The registry has to be asked.
            ValueError: As `deserialize` does.
        """
        reader = self._schemas.get_nowait(schema_id_of(data))
        for _, fault in reader.check.check([data]):
            # Before anything is built: a few bytes may claim an array of a billion items.
            raise fault
        from fastavro import schemaless_reader

        source = io.BytesIO(data)
        source.seek(HEADER_BYTES)
        try:
            value = schemaless_reader(source, reader.schema, self._reader_schema)
        except Exception as error:  # a boundary: logical types raise what their libraries do
            raise ValueError(f"it does not match the Avro schema: {error}") from error
        return value if self._from_dict is None else self._from_dict(value)

    def _ask(self, client: "RegistryClient", schema_id: int) -> _Reader:
        registered = client.schema(schema_id)
        if self._text is not None and self._reader_schema is None:
            self._reader_schema = _parsed(self._text, ())
        texts = [text for _, text in registered.references]
        return _Reader(parsed_schema(registered), AvroCheck(registered.text, texts))


def parsed_schema(registered: "RegisteredSchema") -> Any:
    """Return a schema as fastavro takes it.

    Raises:
        ValueError: It is of another type, or malformed.
    """
    if registered.kind != _AVRO:
        raise ValueError(f"schema {registered.id} is {registered.kind}, not {_AVRO}")
    return _parsed(registered.text, [text for _, text in registered.references])


def _parsed(text: str, references: Sequence[str]) -> Any:
    from fastavro import parse_schema

    named: dict[str, Any] = {}
    for each in references:
        parse_schema(json.loads(each), named)
    return parse_schema(json.loads(text), named)


def _name_of(text: str) -> str | None:
    """Return the full name of a schema's record; None for a schema of another type.

    Raises:
        ClientConfigError: The text is no JSON.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ClientConfigError(f"schema= is not an Avro schema: {error}") from error
    if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
        return None
    name, space = schema["name"], schema.get("namespace")
    return f"{space}.{name}" if space and "." not in name else str(name)
