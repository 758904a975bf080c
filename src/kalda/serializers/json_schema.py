"""JSON with the JSON schemas of a registry, in Confluent's framing."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kalda.clients.errors import ClientConfigError
from kalda.clients.json_values import parse, reader, write
from kalda.common.public import public_in
from kalda.records.record import Header
from kalda.schemas.payloads.framing import HEADER_BYTES, framed, schema_id_of
from kalda.schemas.payloads.json_check import JsonCheck
from kalda.serializers.registry_access import KnownSchemas, waiting
from kalda.serializers.registry_options import Config, Part, RegistryOptions, check_part

if TYPE_CHECKING:
    from kalda.formats.registry import RegisteredSchema, RegistryClient

_JSON: Final = "JSON"


@dataclass(frozen=True, slots=True)
class _Schema:
    id: int
    check: JsonCheck | None
    """None if values are not checked."""


@public_in("kalda.serializers")
class JsonSchemaSerializer:
    """Writes JSON that matches a JSON schema, and registers the schema.

    Args:
        config: The options of the registry, by Confluent's names; ``validate`` is whether values are checked.
        schema: The JSON schema; with ``use.latest.version``, the registry's latest one counts without it.
        to_dict: Makes what JSON can hold of what the producer is given. Without it, the producer takes what
            `json` takes: dataclasses, enums, dates and decimals too.
        part: Whether it is for the ``key`` or the ``value`` of records; their subjects differ.

    Raises:
        ClientConfigError: An option is not possible, or the schema is no JSON.
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
        self._options: Final = RegistryOptions.of(config, "validate")
        self._text: Final = schema
        self._to_dict: Final = to_dict
        self._part: Final[Part] = part
        if schema is None and not self._options.uses_latest:
            raise ClientConfigError("schema= is missing; give the schema, or set `use.latest.version`")
        self._title: Final = None if schema is None else _title_of(schema)
        self._schemas: Final = KnownSchemas[str, _Schema](self._options, self._ask)

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
        schema = self._schemas.get_nowait(self._options.subject(topic, self._part, self._title))
        value = framed(schema.id, write(data if self._to_dict is None else self._to_dict(data)))
        _check(schema, value)
        return value

    def _ask(self, client: "RegistryClient", subject: str) -> _Schema:
        options = self._options
        if options.uses_latest:
            return _schema_of(client.latest(subject), options)
        assert self._text is not None, "only a serializer that uses the latest version has no schema"
        check = JsonCheck(self._text) if options.validates else None
        if options.registers:
            schema_id = client.register(subject, _JSON, self._text, normalize=options.normalizes)
        else:
            schema_id, _ = client.find(subject, _JSON, self._text, normalize=options.normalizes)
        return _Schema(schema_id, check)


@public_in("kalda.serializers")
class JsonSchemaDeserializer:
    """Reads JSON, and checks it by the schema that each value names.

    Args:
        config: The options of the registry, by Confluent's names; ``validate`` is whether values are checked.
        kind: A type that values are read into, as that of `json`; without it, they are dicts and lists.
        from_dict: Makes what the consumer returns of what was read.

    Raises:
        ClientConfigError: An option is not possible, or JSON cannot be read into the type.
    """

    def __init__(
        self, config: Config, kind: type | None = None, *, from_dict: Callable[[Any], Any] | None = None
    ) -> None:
        self._options: Final = RegistryOptions.of(config, "validate")
        self._read: Final = None if kind is None else reader(kind)
        self._from_dict: Final = from_dict
        self._schemas: Final = KnownSchemas[int, _Schema](self._options, self._ask)

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
        schema_id = schema_id_of(data)
        if self._options.validates:
            _check(self._schemas.get_nowait(schema_id), data)
        value = parse(data[HEADER_BYTES:])
        if self._read is not None:
            value = self._read(value)
        return value if self._from_dict is None else self._from_dict(value)

    def _ask(self, client: "RegistryClient", schema_id: int) -> _Schema:
        return _schema_of(client.schema(schema_id), self._options)


def _schema_of(registered: "RegisteredSchema", options: RegistryOptions) -> _Schema:
    if registered.kind != _JSON:
        raise ValueError(f"schema {registered.id} is {registered.kind}, not {_JSON}")
    check = JsonCheck(registered.text, dict(registered.references)) if options.validates else None
    return _Schema(registered.id, check)


def _check(schema: _Schema, value: bytes) -> None:
    if schema.check is not None:
        for _, fault in schema.check.check([value]):
            raise fault


def _title_of(text: str) -> str | None:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ClientConfigError(f"schema= is not a JSON schema: {error}") from error
    title = schema.get("title") if isinstance(schema, dict) else None
    return title if isinstance(title, str) else None
