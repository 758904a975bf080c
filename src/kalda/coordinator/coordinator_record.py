"""Encodes and decodes records of the internal topics: key and value are messages that follow their version.

The version of a key identifies the kind of record, as in Kafka: in ``__consumer_offsets`` versions 0 and 1
are committed offsets, 2 is a classic group, and 3 and above belong to KIP-848. A tombstone has no value. The
shards give the records their meaning.

What must not break: a key of an unknown version is skipped and is never an error, because a newer broker may
have written it before a downgrade. A value of a newer version is an error (`NewerRecordError`): brokers write
one only when a feature is finalized, and then every broker reads it. The bytes of a key are a function of its
fields, because compaction compares bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct as Packer
from typing import Final, TypeAlias, TypeVar

from kalda.common.errors import ApiError, ErrorCode
from kalda.protocol import codec
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.schema import Message

M = TypeVar("M", bound=Message)

_VERSION: Final = Packer(">h")
_VERSION_MAX: Final = 99
"""No record gets a higher version in the life of a release: what has one is damaged, not newer."""


class NewerRecordError(ApiError):
    """A newer release wrote a record: a broker of this release does not coordinate its partition.

    Without the record it would go on from older state, e.g. from offsets that a group has passed.
    """

    def __init__(self, what: str) -> None:
        super().__init__(ErrorCode.NOT_COORDINATOR, what)

    def at(self, topic: str, partition: int, offset: int) -> "NewerRecordError":
        """Return the error with the place of the record."""
        return NewerRecordError(f"the record at offset {offset} of {topic}-{partition} is a {self.message}")


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """An encoded record of an internal topic; without a value it is a tombstone."""

    key: bytes
    value: bytes | None


RecordTypes: TypeAlias = Mapping[int, tuple[type[Message], type[Message]]]
"""The classes of key and value of one internal topic, by the version of the key."""


def encode_record(
    key: Message, key_version: int, value: Message | None, value_version: int = 0
) -> CoordinatorRecord:
    """Encode a record; `value` None makes a tombstone.

    Raises:
        MessageError: a field is set that the version does not have.
    """
    encoded = None if value is None else _VERSION.pack(value_version) + codec.encode(value, value_version)
    return CoordinatorRecord(_VERSION.pack(key_version) + codec.encode(key, key_version), encoded)


def read_version(data: bytes) -> int:
    """Return the version of a key or a value.

    Raises:
        ProtocolError: there are fewer bytes than a version has.
    """
    if len(data) < _VERSION.size:
        raise ProtocolError(f"a record of an internal topic has {len(data)} bytes, a version alone has 2")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def decode_key(types: RecordTypes, data: bytes) -> tuple[int, Message] | None:
    """Return the version of a key and the key itself, or None if `types` does not have the version.

    Raises:
        ProtocolError: the bytes are not such a key.
    """
    version = read_version(data)
    found = types.get(version)
    if found is None:
        return None
    return version, codec.decode(found[0], version, data, _VERSION.size)


def decode_value(value_class: type[M], data: bytes) -> M:
    """Decode the value of a record.

    Raises:
        NewerRecordError: its version is above the newest one that is known.
        ProtocolError: the bytes are not such a value.
    """
    version = read_version(data)
    versions = value_class.SCHEMA.versions
    if versions.highest < version <= _VERSION_MAX:
        raise NewerRecordError(
            f"{value_class.__name__} of version {version}, and this release of Kalda reads {versions}: a "
            "newer release wrote it"
        )
    if not versions.includes(version):
        raise ProtocolError(f"{value_class.__name__} of version {version}, known are {versions}")
    return codec.decode(value_class, version, data, _VERSION.size)
