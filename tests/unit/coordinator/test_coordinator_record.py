"""Records of internal topics, and which partition a key belongs to."""

import pytest

from kalda.coordinator.coordinator_record import (
    NewerRecordError,
    RecordTypes,
    decode_key,
    decode_value,
    encode_record,
    read_version,
)
from kalda.coordinator.partitioning import java_hash, partition_of
from kalda.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kalda.protocol.protocol_errors import ProtocolError

TYPES: RecordTypes = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
}


def test_a_record_is_a_version_and_a_message() -> None:
    """The bytes are those that Kafka writes."""
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    value = OffsetCommitValue(offset=7, leader_epoch=1, metadata="m", commit_timestamp=9)
    record = encode_record(key, 1, value, 3)
    assert b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03" == record.key
    assert b"\x00\x03" + (7).to_bytes(8) + (1).to_bytes(4) + b"\x00\x01m" + (9).to_bytes(8) == record.value
    assert (1, key) == decode_key(TYPES, record.key)
    assert record.value is not None
    assert value == decode_value(OffsetCommitValue, record.value)


def test_a_tombstone_has_no_value() -> None:
    assert encode_record(GroupMetadataKey(group="g"), 2, None).value is None


def test_keys_of_unknown_versions_are_skipped() -> None:
    """A newer broker may have written them before a downgrade."""
    assert decode_key(TYPES, b"\x00\x63whatever") is None


def test_what_is_no_record_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="1 bytes"):
        read_version(b"\x00")
    with pytest.raises(ProtocolError, match="version 121, known are 0-4"):
        decode_value(OffsetCommitValue, b"\x00\x79")
    with pytest.raises(NewerRecordError, match=r"OffsetCommitValue of version 9, .* reads 0-4: a newer"):
        decode_value(OffsetCommitValue, b"\x00\x09")
    with pytest.raises(ProtocolError):
        decode_key(TYPES, b"\x00\x01\x00\x05g")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("group-1", 293427299),
        ("polygenelubricants", -(2**31)),
        ("\N{GRINNING FACE}", 1772899),
    ],
)
def test_hashes_are_those_of_java(text: str, expected: int) -> None:
    assert expected == java_hash(text)


def test_every_key_has_a_partition() -> None:
    """The least integer has no absolute value; Kafka takes partition 0."""
    assert 0 == partition_of("polygenelubricants", 50)
    assert abs(java_hash("group-1")) % 50 == partition_of("group-1", 50)
