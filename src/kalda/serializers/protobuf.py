"""Protobuf with the schemas of a registry, in Confluent's framing."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kalda.clients.errors import ClientConfigError
from kalda.common.public import public_in
from kalda.records.record import Header
from kalda.schemas.payloads.framing import framed, message_indexes_of, schema_id_of
from kalda.serializers.registry_access import KnownSchemas, waiting
from kalda.serializers.registry_options import Config, Part, RegistryOptions, check_part

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor

    from kalda.formats.registry import RegistryClient

M = TypeVar("M")

_PROTOBUF: Final = "PROTOBUF"
_KNOWN_FILES: Final = "google/protobuf/"
"""Files that every registry and compiler has."""


@dataclass(frozen=True, slots=True)
class _Schema:
    head: bytes


@public_in("kalda.serializers")
class ProtobufSerializer(Generic[M]):
    """Writes messages of Protobuf, and registers the file that they are defined in and those that it imports.

    Args:
        config: The options of the registry, by Confluent's names.
        message_type: The class that protoc made of the message.
        part: Whether it is for the ``key`` or the ``value`` of records; their subjects differ.

    Raises:
        ClientConfigError: An option is not possible, or the type is no message.
    """

    def __init__(self, config: Config, message_type: type[M], *, part: Part = "value") -> None:
        check_part(part)
        self._options: Final = RegistryOptions.of(config)
        self._kind: Final = message_type
        self._part: Final[Part] = part
        self._descriptor: Final = _descriptor(message_type)
        self._schemas: Final = KnownSchemas[str, _Schema](self._options, self._ask)

    def serialize(self, topic: str, headers: Sequence[Header], data: M | None) -> bytes | None:
        """Return the framed bytes of a message; asks the registry where needed, which may take time.

        Raises:
            SchemaRegistryError: The registry does not answer, or refuses the schema.
            ValueError: The value is no message of the type, or lacks a required field.
        """
        return waiting(lambda: self.serialize_nowait(topic, headers, data))

    def serialize_nowait(self, topic: str, headers: Sequence[Header], data: M | None) -> bytes | None:
        """Return the same without asking the registry; the producers call this one.

        Raises:
            LoadRequiredError: The registry has to be asked.
            ValueError: As `serialize` does.
        """
        if data is None:
            return None
        message: Any = data
        if not isinstance(data, self._kind):
            raise ValueError(f"it is a {type(data).__qualname__}, not a {self._descriptor.full_name}")
        subject = self._options.subject(topic, self._part, self._descriptor.full_name)
        schema = self._schemas.get_nowait(subject)
        try:
            payload: bytes = type(message).SerializeToString(message)  # a field may be called so
        except Exception as error:  # a boundary: EncodeError is of the library
            raise ValueError(f"it cannot be written: {error}") from error
        return schema.head + payload

    def _ask(self, client: "RegistryClient", subject: str) -> _Schema:
        options, file = self._options, self._descriptor.file
        if options.uses_latest:
            schema_id = client.latest(subject).id
        else:
            schema_id, _ = self._registered(client, subject, file, ())
        return _Schema(framed(schema_id, b"", _indexes_of(self._descriptor)))

    def _registered(
        self, client: "RegistryClient", subject: str, file: "FileDescriptor", path: tuple[str, ...]
    ) -> tuple[int, int]:
        """Return id and version of a file, registered after those that it imports, under their names."""
        from kalda.formats.registry import SchemaReference

        references: list[SchemaReference] = []
        for each in file.dependencies:
            if not each.name.startswith(_KNOWN_FILES):
                _, version = self._registered(client, each.name, each, (*path, file.name))
                references.append(SchemaReference(each.name, each.name, version))
        text = base64.b64encode(file.serialized_pb).decode()
        normalize = self._options.normalizes
        if self._options.registers:
            schema_id = client.register(subject, _PROTOBUF, text, references, normalize=normalize)
            if not path:
                return schema_id, 0
        return client.find(subject, _PROTOBUF, text, references, normalize=normalize)


@public_in("kalda.serializers")
class ProtobufDeserializer(Generic[M]):
    """Reads messages of Protobuf of Confluent's framing; the type says how, so no registry is asked.

    Args:
        message_type: The class that protoc made of the message.

    Raises:
        ClientConfigError: The type is no message.
    """

    def __init__(self, message_type: type[M]) -> None:
        _descriptor(message_type)
        self._kind: Final = message_type

    def deserialize(self, topic: str, data: bytes, headers: Sequence[Header]) -> M:
        """Return the message that framed bytes hold.

        Raises:
            ValueError: The bytes are not framed, or no message of the type.
        """
        schema_id_of(data)
        _, start = message_indexes_of(data)
        kind: Any = self._kind
        try:
            read: M = kind.FromString(data[start:])
        except Exception as error:  # a boundary: DecodeError is of the library
            raise ValueError(f"it is no {kind.DESCRIPTOR.full_name}: {error}") from error
        return read


def _descriptor(kind: type) -> "Descriptor":
    descriptor: Descriptor | None = getattr(kind, "DESCRIPTOR", None)
    if descriptor is None or not hasattr(descriptor, "fields_by_name"):
        raise ClientConfigError(f"message_type is {kind!r}; it takes a class of messages that protoc made")
    return descriptor


def _indexes_of(descriptor: "Descriptor") -> list[int]:
    """Return where a message stands in its file: ``[1, 0]`` is the first message nested in the second."""
    indexes: list[int] = []
    inner = descriptor
    while inner.containing_type is not None:
        outer = inner.containing_type
        indexes.insert(0, [each.name for each in outer.nested_types].index(inner.name))
        inner = outer
    return [list(inner.file.message_types_by_name).index(inner.name), *indexes]
