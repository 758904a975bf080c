"""Records of committed offsets, packed by hand, are those that the declared messages make."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.coordinator.coordinator_record import NewerRecordError, encode_record
from kalda.coordinator.group.offset_records import (
    NO_EXPIRY,
    NO_LEADER_EPOCH,
    OffsetAndMetadata,
    offset_commit_record,
    read_offset_commit_key,
    read_offset_commit_value,
)
from kalda.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from kalda.protocol.protocol_errors import ProtocolError

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
committed_offsets = st.builds(
    OffsetAndMetadata,
    offset=int64,
    leader_epoch=int32,
    metadata=texts,
    commit_timestamp_ms=int64,
    expire_timestamp_ms=st.just(NO_EXPIRY),
    record_offset=st.just(-1),
)


@given(texts, texts, int32, committed_offsets)
def test_a_record_is_what_the_general_codec_writes(
    group: str, topic: str, partition: int, committed: OffsetAndMetadata
) -> None:
    key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
    )
    record = offset_commit_record(group, topic, partition, committed)
    assert record == encode_record(key, 1, value, 3)
    assert record.value is not None
    assert (group, topic, partition) == read_offset_commit_key(record.key)
    assert committed._replace(record_offset=8) == read_offset_commit_value(record.value, 8)


@given(committed_offsets, st.integers(0, 2**63 - 1))
def test_an_expiry_makes_it_version_1(committed: OffsetAndMetadata, expiry: int) -> None:
    record = offset_commit_record("g", "t", 0, committed._replace(expire_timestamp_ms=expiry))
    value = OffsetCommitValue(
        offset=committed.offset,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=expiry,
    )
    assert record == encode_record(OffsetCommitKey(group="g", topic="t"), 1, value, 1)
    assert record.value is not None
    read = read_offset_commit_value(record.value, -1)
    assert read == committed._replace(expire_timestamp_ms=expiry, leader_epoch=NO_LEADER_EPOCH)


@given(st.integers(0, 4), int64, texts, int64)
def test_values_of_every_version_are_read(version: int, offset: int, metadata: str, timestamp: int) -> None:
    value = OffsetCommitValue(offset=offset, metadata=metadata, commit_timestamp=timestamp)
    record = encode_record(OffsetCommitKey(), 0, value, version)
    assert record.value is not None
    assert ("", "", 0) == read_offset_commit_key(record.key)
    read = read_offset_commit_value(record.value, -1)
    assert (offset, metadata, timestamp) == (read.offset, read.metadata, read.commit_timestamp_ms)
    assert (NO_LEADER_EPOCH, NO_EXPIRY) == (read.leader_epoch, read.expire_timestamp_ms)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_a_truncated_record_is_refused_as_such(version: int) -> None:
    value = OffsetCommitValue(offset=1, metadata="metadata", commit_timestamp=2)
    record = encode_record(OffsetCommitKey(group="group", topic="topic", partition=3), 1, value, version)
    assert record.value is not None
    for size in range(len(record.key)):
        with pytest.raises(ProtocolError):
            read_offset_commit_key(record.key[:size])
    for size in range(len(record.value)):
        with pytest.raises(ProtocolError):
            read_offset_commit_value(record.value[:size], 0)


def test_a_negative_length_is_refused() -> None:
    """Python would take it for a position from the end."""
    with pytest.raises(ProtocolError):
        read_offset_commit_key(b"\0\1" + b"\xff\xff" + bytes(20))
    with pytest.raises(ProtocolError):
        read_offset_commit_value(b"\0\3" + bytes(12) + b"\xff\xf0" + bytes(20), 0)


@given(st.binary(max_size=60))
def test_junk_is_refused_or_read(junk: bytes) -> None:
    for read in (read_offset_commit_key, lambda data: read_offset_commit_value(data, 0)):
        try:
            read(junk)
        except (ProtocolError, NewerRecordError):
            continue
