"""The record decoder with deserializers: what is called, and what a failure leaves behind."""

import random

import pytest

from kalda.clients.consumer import record_decoder
from kalda.clients.consumer.consumer_errors import RecordDeserializationError
from kalda.clients.consumer.record_decoder import BatchDecoder, Deserializers
from kalda.clients.values import ConsumerRecord
from kalda.common.types import TopicPartition
from kalda.records import implementation
from kalda.records.batch import TimestampType, read_header
from kalda.records.errors import CorruptRecordError
from kalda.records.record import HEADERS_MAX, RecordBatchBuilder, record_bytes
from kalda.records.varint import varint
from tests.record_implementations import needs_compiled, record_implementation

if implementation.is_built:
    from kalda.records import _records

__all__ = ["record_implementation"]

pytestmark = pytest.mark.usefixtures("record_implementation")

PARTITION = TopicPartition("t", 3)


def decoder(values: list[bytes | None], deserializers: Deserializers) -> BatchDecoder:
    builder = RecordBatchBuilder(base_offset=10)
    for value in values:
        builder.append(None, value, 1_000)
    batch = builder.build()
    header = read_header(batch)
    return BatchDecoder(PARTITION, header, record_bytes(batch, 0, header), deserializers)


def test_nulls_are_not_deserialized() -> None:
    records = decoder([b"1", None], Deserializers(key=int, value=int)).take(10)
    assert [(None, 1, 1), (None, None, -1)] == [(r.key, r.value, r.serialized_value_size) for r in records]


def test_records_before_one_that_cannot_be_deserialized_come_first() -> None:
    """The position stays at the record that failed, so that its error is not lost."""
    batch = decoder([b"1", b"2", b"x", b"4"], Deserializers(value=int))
    assert [1, 2] == [record.value for record in batch.take(10)]
    assert 12 == batch.next_offset
    with pytest.raises(RecordDeserializationError) as failure:
        batch.take(10)
    assert 12 == failure.value.offset
    assert isinstance(failure.value.__cause__, ValueError)


def test_a_deserializer_can_see_topic_and_headers() -> None:
    class Upper:
        def deserialize(self, topic: str, data: bytes, headers: object) -> str:
            return topic + data.decode()

    assert ["ta"] == [record.value for record in decoder([b"a"], Deserializers(value=Upper())).take(10)]


def test_records_are_named_tuples_as_python_would_make_them() -> None:
    (record,) = decoder([b"v"], Deserializers()).take(1)
    assert type(record) is ConsumerRecord
    assert ConsumerRecord("t", 3, 10, 1_000, TimestampType.CREATE_TIME, None, b"v", (), -1, 1, None) == record
    assert b"w" == record._replace(value=b"w").value


@needs_compiled
@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_never_pass_their_end(seed: int) -> None:
    """Most random bytes fail at the first record; chosen small lengths lead deeper into the fields."""
    source = random.Random(seed)
    for _ in range(2_000):
        size = source.randrange(60)
        data = bytes(
            source.choice((0, 1, 2, 4, 14, 16, 0x80, 0xFF, source.randrange(256))) for _ in range(size)
        )
        rows: list[ConsumerRecord[object, object]] = []
        count = source.randrange(5)
        end = _records.decode_rows(
            data,
            source.randrange(size + 1),
            count,
            ConsumerRecord,
            "t",
            0,
            None,
            None,
            source.choice((0, -1, 2**62, -(2**63))),
            0,
            source.choice((None, 5)),
            None,
            None,
            rows,
        )
        assert (count if end >= 0 else 0) == len(rows)


def test_many_records_below_the_position_are_passed_over_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes may hold tens of millions; a call of poll has to end."""
    monkeypatch.setattr(record_decoder, "_SKIPPED_MAX", 2)
    batch = decoder([b"a", b"b", b"c", b"d", b"e", b"f"], Deserializers())
    batch.skip_to(15)
    assert 15 == batch.next_offset
    assert [[], [], [(15, b"f")]] == [
        [(record.offset, record.value) for record in batch.take(10)] for _ in range(3)
    ]
    assert 0 == batch.remaining


def test_a_large_batch_is_decoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_decoder, "PART_BYTES", 40)
    batch = decoder([bytes(10)] * 4, Deserializers())
    assert [10, 11] == [record.offset for record in batch.take(10)]
    assert [12, 13] == [record.offset for record in batch.take(10)]


def test_more_headers_than_memory_holds_are_refused() -> None:
    """A record of 8 KB of a compressed batch may have 100 million; they would take 10 GB."""
    count = HEADERS_MAX + 1
    fields = b"\0\0\0\x01\x01" + varint(count) + b"\0\x01" * count
    builder = RecordBatchBuilder(base_offset=10)
    builder.append(None, None, 1_000)
    header = read_header(builder.build())
    batch = BatchDecoder(PARTITION, header, varint(len(fields)) + fields, Deserializers())
    with pytest.raises(CorruptRecordError, match=f"{count} headers; at most {HEADERS_MAX}"):
        batch.take(1)
