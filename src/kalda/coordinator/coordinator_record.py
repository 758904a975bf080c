"""Records of the internal topics: a key and a value, each a message behind the version it is written in.

The version of a key says which kind of record it is, as in Kafka: in ``__consumer_offsets`` 0 and 1 are
committed offsets, 2 is a group, 3 and up belong to KIP-848. A tombstone has no value. What is not here: the
meaning of the records, which is each shard's.

What must not break: a key of a version that nobody knows is skipped, never an error, because a newer broker
may have written it before a downgrade; and a key's bytes are a function of its fields, because compaction
compares bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct as Packer
from typing import Final, TypeAlias, TypeVar

from kalda.protocol import codec
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.schema import Message

M = TypeVar("M", bound=Message)

_VERSION: Final = Packer(">h")


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """One record of an internal topic, encoded; without a value it is a tombstone."""

    key: bytes
    value: bytes | None


RecordTypes: TypeAlias = Mapping[int, tuple[type[Message], type[Message]]]
"""By version of the key: the classes of key and value of one internal topic."""


def encode_record(
    key: Message, key_version: int, value: Message | None, value_version: int = 0
) -> CoordinatorRecord:
    """Encode a record; `value` None makes a tombstone.

    Raises:
        MessageError: a version cannot carry a value that is set.
    """
    encoded = None if value is None else _VERSION.pack(value_version) + codec.encode(value, value_version)
    return CoordinatorRecord(_VERSION.pack(key_version) + codec.encode(key, key_version), encoded)


def read_version(data: bytes) -> int:
    """The version that a key or a value is written in.

    Raises:
        ProtocolError: there are fewer bytes than a version has.
    """
    if len(data) < _VERSION.size:
        raise ProtocolError(f"a record of an internal topic has {len(data)} bytes, a version alone has 2")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def decode_key(types: RecordTypes, data: bytes) -> tuple[int, Message] | None:
    """The version of a key and the key itself; None for a version that `types` does not have.

    Raises:
        ProtocolError: the bytes are not such a key.
    """
    version = read_version(data)
    found = types.get(version)
    if found is None:
        return None
    return version, codec.decode(found[0], version, data, _VERSION.size)


def decode_value(value_class: type[M], data: bytes) -> M:
    """The value of a record.

    Raises:
        ProtocolError: the bytes are not such a value, or of a version that does not exist here.
    """
    version = read_version(data)
    if not value_class.SCHEMA.versions.includes(version):
        raise ProtocolError(
            f"{value_class.__name__} of version {version}, known are {value_class.SCHEMA.versions}"
        )
    return codec.decode(value_class, version, data, _VERSION.size)
