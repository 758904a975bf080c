"""Decodes keys and values by the schemas of the registry, to JSON.

A payload is decoded only after the check of its schema has passed it, whose cost is bounded by the payload's
size; the libraries that decode believe a length that a payload claims. Schemas are made ready before the
records are rendered, in a thread, because Protobuf's compiler takes tens of milliseconds.
"""

import base64
import datetime
import decimal
import io
import logging
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kalda.clients.values import ConsumerRecord
from kalda.common.json_text import strict_json
from kalda.common.received_json import loads_received
from kalda.http.background import Background
from kalda.http.errors import HttpError
from kalda.http.registry.registry import Registry
from kalda.http.registry.subjects import DEFAULT_CONTEXT
from kalda.schemas.errors import SchemaError
from kalda.schemas.payloads.checks import make_check
from kalda.schemas.payloads.errors import BadPayloadError, UnusableSchemaError
from kalda.schemas.payloads.framing import HEADER_BYTES, message_indexes_of, schema_id_of
from kalda.schemas.payloads.proto_compiler import compile_proto

logger: Final = logging.getLogger(__name__)

BytesRecord = ConsumerRecord[bytes, bytes] | ConsumerRecord[bytes | None, bytes | None]

SCHEMAS_MAX: Final = 512
"""Schemas that are kept ready."""

Decode = Callable[[bytes], object]
"""Returns what a framed payload says, in values of JSON and those of the formats' libraries."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry."""

    type: str
    """``AVRO``, ``JSON`` or ``PROTOBUF``."""
    text: str
    dependencies: Mapping[str, str]
    """The text of each schema that it refers to, by the name of the reference, in the order of use."""


FindSchema = Callable[[int], RegisteredSchema | None]
RunInThread = Callable[[Callable[[RegisteredSchema], Decode], RegisteredSchema], Awaitable[Decode]]


class SchemaDecoders:
    """The schemas that are loaded, and those that cannot be used.

    Args:
        find: Returns a schema by its id, without waiting.
        run: Runs a function in a thread.
    """

    def __init__(self, find: FindSchema, run: RunInThread) -> None:
        self._find: Final = find
        self._run: Final = run
        self._ready: Final[OrderedDict[int, Decode | None]] = OrderedDict()

    async def prepare(self, records: Iterable[BytesRecord]) -> None:
        """Load the schemas of keys and values."""
        for record in records:
            await self.prepare_payloads((record.key, record.value))

    async def prepare_payloads(self, payloads: Iterable[bytes | None]) -> None:
        """Load the schemas of payloads."""
        for data in payloads:
            schema_id = _id_of(data)
            if schema_id is not None and schema_id not in self._ready:
                await self._make(schema_id)

    def is_ready(self, records: Iterable[BytesRecord]) -> bool:
        """Return whether `prepare` has nothing to do."""
        ids = (_id_of(data) for record in records for data in (record.key, record.value))
        return all(each is None or each in self._ready or self._find(each) is None for each in ids)

    def decode(self, data: bytes) -> str | None:
        """Return a payload as JSON on one line; None if it is not framed, or does not fit its schema."""
        schema_id = _id_of(data)
        decode = None if schema_id is None else self._ready.get(schema_id)
        if decode is None:
            return None
        try:
            return strict_json(_plain(decode(data)))
        except BadPayloadError:
            return None
        except Exception as error:
            # Libraries that decode raise of all kinds for what their check let pass.
            logger.debug("a payload of schema %s could not be decoded: %r", schema_id, error)
            return None

    async def _make(self, schema_id: int) -> None:
        schema = self._find(schema_id)
        if schema is None:
            # It may be registered later, or on its way here.
            return
        try:
            decode: Decode | None = await self._run(make_decode, schema)
        except (UnusableSchemaError, ModuleNotFoundError) as error:
            logger.warning("Schema %d cannot be used to decode: %s", schema_id, error)
            decode = None
        self._ready[schema_id] = decode
        if len(self._ready) > SCHEMAS_MAX:
            self._ready.popitem(last=False)


def schema_decoders(registry: Registry, background: Background) -> SchemaDecoders:
    """Return the decoders for the schemas of this process's registry."""

    def find(schema_id: int) -> RegisteredSchema | None:
        version = registry.state.by_id(schema_id, DEFAULT_CONTEXT)
        if version is None:
            return None
        try:
            stored = registry.stored(version)
        except (HttpError, SchemaError) as error:
            logger.info("Schema %d cannot be used to decode: %s", schema_id, error)
            return None
        return RegisteredSchema(stored.content.schema_type, stored.content.text, stored.dependencies)

    return SchemaDecoders(find, background.compute)


def make_decode(schema: RegisteredSchema) -> Decode:
    """Return a function that decodes the payloads of a schema.

    Raises:
        UnusableSchemaError: the schema is malformed, or of an unknown type.
        ModuleNotFoundError: a library is missing.
    """
    check = make_check(schema.type, schema.text, schema.dependencies)
    decode = {"AVRO": _avro, "JSON": _json, "PROTOBUF": _protobuf}[schema.type](schema)

    def checked(data: bytes) -> object:
        for _, error in check.check([data]):
            raise error
        return decode(data)

    return checked


def _avro(schema: RegisteredSchema) -> Decode:
    import fastavro

    named: dict[str, Any] = {}
    for text in schema.dependencies.values():
        fastavro.parse_schema(_document(text), named)
    parsed = fastavro.parse_schema(_document(schema.text), named)
    return lambda data: fastavro.schemaless_reader(io.BytesIO(data[HEADER_BYTES:]), parsed, None)


def _json(_: RegisteredSchema) -> Decode:
    return lambda data: loads_received(data[HEADER_BYTES:].decode())


def _protobuf(schema: RegisteredSchema) -> Decode:
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

    files = descriptor_pb2.FileDescriptorSet.FromString(
        compile_proto(schema.text, tuple(schema.dependencies.items()))
    )
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    main = files.file[-1]

    def decode(data: bytes) -> object:
        indexes, at = message_indexes_of(data)
        name = main.package
        messages: Any = main.message_type
        for index in indexes:
            if index >= len(messages):
                raise BadPayloadError(f"the schema has no message {index}")
            name = f"{name}.{messages[index].name}" if name else messages[index].name
            messages = messages[index].nested_type
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        return json_format.MessageToDict(
            kind.FromString(data[at:]), preserving_proto_field_name=True, descriptor_pool=pool
        )

    return decode


def _document(text: str) -> Any:
    try:
        return loads_received(text)
    except ValueError as error:
        raise UnusableSchemaError(f"it is not JSON: {error}") from None


def _id_of(data: bytes | None) -> int | None:
    try:
        return None if data is None else schema_id_of(data)
    except BadPayloadError:
        return None


def _plain(value: object) -> object:
    """Return a value of JSON: bytes as base64, numbers that no double holds exactly and times as texts."""
    match value:
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal() | uuid.UUID() | datetime.timedelta():
            return str(value)
        case _:
            return value
