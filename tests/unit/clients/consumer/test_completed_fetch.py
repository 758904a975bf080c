"""Handing out fetched records: damaged batches, deserializers that fail, and where the position stays."""

import json
from collections.abc import Sequence
from itertools import count

import pytest

from kalda.clients.consumer import record_decoder
from kalda.clients.consumer.completed_fetch import (
    DECODED_SECONDS_MAX,
    CompletedFetch,
    DecodeBound,
    scan_batches,
)
from kalda.clients.consumer.consumer_errors import FetchCorruptionError, RecordDeserializationError
from kalda.clients.consumer.record_decoder import Deserializers
from kalda.common.types import TopicPartition
from kalda.records.compression import Compression
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.records.record import Header, RecordBatchBuilder

PARTITION = TopicPartition("t", 0)
PLAIN = Deserializers()


def batch(base_offset: int, values: Sequence[bytes | None], *, epoch: int = 4) -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset, partition_leader_epoch=epoch)
    for value in values:
        builder.append(b"k", value, 1000)
    return bytes(builder.build())


def fetch(data: bytes, offset: int = 0, *, check_crcs: bool = True) -> CompletedFetch:
    return CompletedFetch(PARTITION, 1, offset, memoryview(data), (), check_crcs=check_crcs)


def test_records_below_the_position_are_left_out() -> None:
    """A fetch returns whole batches; the position may be in the middle of one."""
    completed = fetch(batch(10, [b"a", b"b", b"c"]), 12)
    records = completed.take(10, PLAIN)
    assert [(12, b"c")] == [(record.offset, record.value) for record in records]
    assert 13 == completed.next_offset
    assert 4 == completed.last_epoch


def test_a_batch_is_handed_out_in_parts() -> None:
    completed = fetch(batch(0, [b"a", b"b", b"c"]) + batch(3, [b"d"]))
    assert [b"a", b"b"] == [record.value for record in completed.take(2, PLAIN)]
    assert 2 == completed.next_offset
    assert [b"c", b"d"] == [record.value for record in completed.take(5, PLAIN)]
    assert completed.is_consumed
    assert [] == completed.take(5, PLAIN)


def test_a_wrong_crc_stops_before_the_batch_and_again() -> None:
    data = bytearray(batch(0, [b"a"]) + batch(1, [b"b"]))
    data[-1] ^= 1
    completed = fetch(bytes(data))
    assert [b"a"] == [record.value for record in completed.take(10, PLAIN)]
    for _ in range(2):
        with pytest.raises(FetchCorruptionError, match=r"t-0 at offset 1 cannot be read.*CRC"):
            completed.take(10, PLAIN)
    assert 1 == completed.next_offset


def test_crcs_are_not_checked_where_the_user_says_so() -> None:
    data = bytearray(batch(0, [b"a"]))
    data[17] ^= 1
    assert 1 == len(fetch(bytes(data), check_crcs=False).take(10, PLAIN))


def test_bytes_behind_the_last_record_are_reported_after_it() -> None:
    whole = bytearray(batch(0, [b"a"])) + b"\x00\x00"
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    completed = fetch(bytes(whole), check_crcs=False)
    assert [b"a"] == [record.value for record in completed.take(10, PLAIN)]
    with pytest.raises(FetchCorruptionError, match="2 bytes follow the last record"):
        completed.take(10, PLAIN)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_segments_are_handed_out_like_batches(magic: int) -> None:
    """A log that was written by releases before 0.11 holds them, and a fetch returns them as they are."""
    messages = MessageSetBuilder(magic, base_offset=3)
    wrapper = MessageSetBuilder(magic, base_offset=5, compression=Compression.GZIP)
    for builder, values in ((messages, [b"a", b"b"]), (wrapper, [b"c", None])):
        for value in values:
            builder.append(b"k", value, 1000)
    completed = fetch(bytes(messages.build() + wrapper.build()) + batch(7, [b"d"]), 4)
    assert [b"b", b"c"] == [record.value for record in completed.take(2, PLAIN)]
    assert 6 == completed.next_offset
    last_old, new = completed.take(5, PLAIN)
    assert (6, None, 1000 if magic else -1) == (last_old.offset, last_old.value, last_old.timestamp_ms)
    assert (7, b"d") == (new.offset, new.value)
    assert completed.is_consumed


def test_a_damaged_message_stops_before_it_and_again() -> None:
    builder = MessageSetBuilder(1)
    builder.append(None, b"a", 1)
    builder.append(None, b"b", 1)
    damaged = builder.build()
    damaged[-1] ^= 1
    completed = fetch(bytes(damaged))
    assert [b"a"] == [record.value for record in completed.take(10, PLAIN)]
    for _ in range(2):
        with pytest.raises(FetchCorruptionError, match=r"t-0 at offset 1 cannot be read.*CRC"):
            completed.take(10, PLAIN)


def test_a_failing_deserializer_keeps_the_position_at_its_record() -> None:
    """KIP-334: the caller gets the raw bytes and may seek past the record."""
    completed = fetch(batch(0, [b"1", b"2", b"{", b"4"]))
    deserializers = Deserializers(value=json.loads)
    assert [1, 2] == [record.value for record in completed.take(10, deserializers)]
    assert 2 == completed.next_offset
    for _ in range(2):
        with pytest.raises(
            RecordDeserializationError, match=r"offset 2 of t-0.*seek\(\) to offset 3"
        ) as raised:
            completed.take(10, deserializers)
    assert (PARTITION, 2, "value") == (raised.value.topic_partition, raised.value.offset, raised.value.part)
    assert (b"k", b"{") == (raised.value.key, raised.value.value)
    assert isinstance(raised.value.__cause__, json.JSONDecodeError)


def test_deserializers_do_not_see_nulls() -> None:
    """A tombstone is not JSON."""
    completed = fetch(batch(0, [b"1", None]))
    deserializers = Deserializers("StringDeserializer", json.loads)
    assert [("k", 1), ("k", None)] == [
        (record.key, record.value) for record in completed.take(10, deserializers)
    ]


def test_sizes_are_those_before_deserialization() -> None:
    (record,) = fetch(batch(0, [b"12345"])).take(1, Deserializers(value=int))
    assert (12345, 5, 1) == (record.value, record.serialized_value_size, record.serialized_key_size)


def test_a_deserializer_object_gets_topic_and_headers() -> None:
    class WithHeaders:
        def deserialize(self, topic: str, data: bytes, headers: Sequence[Header]) -> tuple[str, bytes, int]:
            return topic, data, len(headers)

    builder = RecordBatchBuilder()
    builder.append(None, b"v", 1, [("a", b"1"), ("b", None)])
    (record,) = fetch(bytes(builder.build())).take(1, Deserializers(value=WithHeaders()))
    assert ("t", b"v", 2) == record.value
    assert (("a", b"1"), ("b", None)) == record.headers


@pytest.mark.parametrize("compression", list(Compression))
def test_every_codec_is_read(compression: Compression) -> None:
    builder = RecordBatchBuilder(compression=compression)
    for number in range(100):
        builder.append(b"key", b"value-%d" % number, 1000)
    records = fetch(bytes(builder.build())).take(1000, PLAIN)
    assert [b"value-%d" % number for number in range(100)] == [record.value for record in records]


def test_scanning_finds_where_the_next_fetch_begins() -> None:
    data = batch(0, [b"a", b"b"]) + batch(7, [b"c"], epoch=5)
    assert (8, 5, len(data)) == scan_batches(memoryview(data), 1)
    assert (2, 4, len(batch(0, [b"a", b"b"]))) == scan_batches(memoryview(data[:-1]), 1)
    assert (9, 5, len(data)) == scan_batches(memoryview(data), 9)
    assert (1, -1, 0) == scan_batches(memoryview(data[:60]), 1)


def test_passing_over_records_ends_with_the_time_of_a_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_decoder, "_SKIPPED_MAX", 2)
    now = count(step=DECODED_SECONDS_MAX / 2)
    completed = fetch(batch(0, [b"a", b"b", b"c", b"d", b"e", b"f"]), 5)
    assert [] == completed.take(10, PLAIN, DecodeBound(lambda: next(now)))
    assert 5 == completed.next_offset
    assert [(5, b"f")] == [(record.offset, record.value) for record in completed.take(10, PLAIN)]
