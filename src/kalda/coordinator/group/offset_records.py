"""The records of ``__consumer_offsets`` that hold committed offsets, byte for byte as Kafka writes them.

Most records of the topic are of this kind, so keys and values are packed and unpacked by hand here, which
makes loading several times faster than the general codec; a property test compares the two.

What must not break: the bytes of a key never change, because compaction compares keys as bytes.
"""

from struct import Struct, error
from typing import Final, NamedTuple

from kalda.coordinator.coordinator_record import CoordinatorRecord, decode_value
from kalda.protocol.messages.group_records import OffsetCommitValue
from kalda.protocol.protocol_errors import ProtocolError

OFFSET_COMMIT_KEY_VERSIONS: Final = (0, 1)

NO_EXPIRY: Final = -1
NO_LEADER_EPOCH: Final = -1

_KEY_VERSION: Final = 1
_VALUE_VERSION: Final = 3
_VALUE_VERSION_EXPIRING: Final = 1
"""The only version with an expiry timestamp, which OffsetCommit up to version 4 may request."""

_INT16: Final = Struct(">h")
_UINT16: Final = Struct(">H")
"""Lengths are signed on the wire. Read as unsigned, a negative length exceeds every record and is refused."""
_INT32: Final = Struct(">i")
_OFFSET: Final = Struct(">hq")
_OFFSET_AND_EPOCH: Final = Struct(">hqi")
_TIMESTAMP: Final = Struct(">q")
_TWO_TIMESTAMPS: Final = Struct(">qq")
_STRING_BYTES_MAX: Final = 32767


class OffsetAndMetadata(NamedTuple):
    """A committed offset; `expire_timestamp_ms` is -1 unless the request had a retention."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    record_offset: int = -1
    """The log offset of the commit: a transaction that ends late must not overwrite a newer commit."""


def offset_commit_key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key of a committed offset."""
    group, name = _string(group_id), _string(topic)
    return b"".join((_INT16.pack(_KEY_VERSION), group, name, _INT32.pack(partition)))


def offset_commit_record(
    group_id: str, topic: str, partition: int, committed: OffsetAndMetadata
) -> CoordinatorRecord:
    """Return the record that commits an offset."""
    metadata = _string(committed.metadata)
    if committed.expire_timestamp_ms == NO_EXPIRY:
        value = b"".join(
            (
                _OFFSET_AND_EPOCH.pack(_VALUE_VERSION, committed.offset, committed.leader_epoch),
                metadata,
                _TIMESTAMP.pack(committed.commit_timestamp_ms),
            )
        )
    else:
        value = b"".join(
            (
                _OFFSET.pack(_VALUE_VERSION_EXPIRING, committed.offset),
                metadata,
                _TWO_TIMESTAMPS.pack(committed.commit_timestamp_ms, committed.expire_timestamp_ms),
            )
        )
    return CoordinatorRecord(offset_commit_key(group_id, topic, partition), value)


def offset_commit_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    """Return the record that removes a committed offset."""
    return CoordinatorRecord(offset_commit_key(group_id, topic, partition), None)


def read_group_id(key: bytes) -> str:
    """Return the group id in a key of ``__consumer_offsets``: it is the first field in every version."""
    return key[4 : 4 + _UINT16.unpack_from(key, 2)[0]].decode()


def read_offset_commit_key(data: bytes) -> tuple[str, str, int]:
    """Return group, topic and partition from the key of a committed offset, of either version.

    Raises:
        ProtocolError: the bytes are not such a key.
    """
    try:
        end = 4 + _UINT16.unpack_from(data, 2)[0]
        group_id = data[4:end].decode()
        topic_end = end + 2 + _UINT16.unpack_from(data, end)[0]
        topic = data[end + 2 : topic_end].decode()
        partition: int = _INT32.unpack_from(data, topic_end)[0]
    except (error, UnicodeDecodeError) as failure:
        raise ProtocolError(f"the key of a committed offset cannot be read: {failure}") from None
    return group_id, topic, partition


def read_offset_commit_value(data: bytes, record_offset: int) -> OffsetAndMetadata:
    """Decode the value of a committed offset, of any version.

    Raises:
        ProtocolError: the bytes are not such a value.
    """
    try:
        version = _INT16.unpack_from(data)[0]
        if version == _VALUE_VERSION:
            _, offset, epoch = _OFFSET_AND_EPOCH.unpack_from(data)
            end = 16 + _UINT16.unpack_from(data, 14)[0]
            timestamp = _TIMESTAMP.unpack_from(data, end)[0]
            return OffsetAndMetadata(
                offset, epoch, data[16:end].decode(), timestamp, NO_EXPIRY, record_offset
            )
        if version < _VALUE_VERSION:
            _, offset = _OFFSET.unpack_from(data)
            end = 12 + _UINT16.unpack_from(data, 10)[0]
            metadata = data[12:end].decode()
            timestamp = _TIMESTAMP.unpack_from(data, end)[0]
            expiry = NO_EXPIRY
            if version == _VALUE_VERSION_EXPIRING:
                expiry = _TIMESTAMP.unpack_from(data, end + 8)[0]
            return OffsetAndMetadata(offset, NO_LEADER_EPOCH, metadata, timestamp, expiry, record_offset)
    except (error, UnicodeDecodeError) as failure:
        raise ProtocolError(f"the value of a committed offset cannot be read: {failure}") from None
    value = decode_value(OffsetCommitValue, data)
    return OffsetAndMetadata(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, NO_EXPIRY, record_offset
    )


def _string(text: str) -> bytes:
    data = text.encode()
    assert len(data) <= _STRING_BYTES_MAX, (
        f"a string of {len(data)} bytes, no request carries more than 32767"
    )
    return _INT16.pack(len(data)) + data
