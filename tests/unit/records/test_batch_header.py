"""The header view, its validation and patching in place; offsets in the fields' definition order."""

import struct

import pytest

from kalda.common.errors import ErrorCode
from kalda.records.batch import (
    BatchHeader,
    TimestampType,
    increment_sequence,
    iter_headers,
    pack_batch,
    read_header,
    set_base_offset_and_leader_epoch,
    set_log_append_time,
    set_max_timestamp,
    validate,
    validate_produced,
)
from kalda.records.compression import Compression
from kalda.records.crc import crc32c
from kalda.records.errors import (
    CorruptRecordError,
    InvalidRecordError,
    NeedMoreBytes,
    RecordsError,
    UnsupportedCompressionTypeError,
)
from kalda.records.record import RecordBatchBuilder, iter_records


def build(count: int = 3, **options: object) -> bytearray:
    builder = RecordBatchBuilder(**options)  # type: ignore[arg-type]  # options are the builder's own
    for index in range(count):
        builder.append(b"k%d" % index, b"v", 1_000 + index)
    return builder.build()


def patch(batch: bytearray, layout: str, position: int, value: int) -> bytearray:
    """Set one header field and make the CRC right again, so that only that field is wrong."""
    struct.pack_into(layout, batch, position, value)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def check(batch: bytearray) -> BatchHeader:
    header = read_header(batch)
    validate(batch, 0, header)
    return header


def test_header_tells_what_was_built() -> None:
    header = check(
        build(
            base_offset=100,
            compression=Compression.ZSTD,
            producer_id=7,
            producer_epoch=3,
            base_sequence=40,
            is_transactional=True,
            partition_leader_epoch=5,
        )
    )
    assert (100, 102, 103) == (header.base_offset, header.last_offset, header.next_offset)
    assert (1_000, 1_002) == (header.base_timestamp, header.max_timestamp)
    assert (7, 3, 40) == (header.producer_id, header.producer_epoch, header.base_sequence)
    assert (42, 3, 5) == (header.last_sequence, header.record_count, header.partition_leader_epoch)
    assert header.compression is Compression.ZSTD
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert (True, False) == (header.is_transactional, header.is_control)
    assert header.delete_horizon_ms is None


def test_size_counts_the_whole_batch() -> None:
    batch = build()
    assert len(batch) == read_header(batch).size
    assert len(batch) - 12 == read_header(batch).batch_length


def test_delete_horizon_takes_the_base_timestamps_place() -> None:
    batch = build(delete_horizon_ms=5_000)
    assert 5_000 == check(batch).delete_horizon_ms
    assert [1_000, 1_001, 1_002] == [record.timestamp for record in iter_records(batch)]


def test_sequence_numbers_wrap_to_zero() -> None:
    assert 0 == increment_sequence(2_147_483_647, 1)
    assert 2_147_483_647 == increment_sequence(2_147_483_646, 1)
    assert 0 == read_header(build(producer_id=1, producer_epoch=0, base_sequence=2_147_483_646)).last_sequence


def test_last_sequence_of_a_plain_producer_is_none() -> None:
    assert -1 == read_header(build()).last_sequence


def test_truncated_batch_needs_more_bytes_at_each_length() -> None:
    """A log's torn tail is not corruption of what came before it."""
    batch = bytes(build())
    for size in range(len(batch)):
        with pytest.raises(NeedMoreBytes):
            validate(batch[:size], 0, read_header(batch[:size]))
        assert [] == list(iter_headers(batch[:size]))


def test_each_flipped_byte_under_the_crc_is_found() -> None:
    batch = build()
    for position in range(17, len(batch)):
        batch[position] ^= 0x40
        with pytest.raises(RecordsError):
            check(batch)
        batch[position] ^= 0x40
    check(batch)


def test_length_below_a_header_is_corrupt() -> None:
    """Otherwise a walk over batches would stand still or step backwards."""
    for length in (48, 0, -1, -(2**31)):
        batch = build()
        struct.pack_into(">i", batch, 8, length)
        with pytest.raises(CorruptRecordError, match="batch length"):
            read_header(batch)
        with pytest.raises(CorruptRecordError):
            list(iter_headers(batch))


@pytest.mark.parametrize("magic", [3, 127, -1])
def test_magic_that_does_not_exist_is_corrupt(magic: int) -> None:
    batch = build()
    struct.pack_into(">b", batch, 16, magic)
    with pytest.raises(CorruptRecordError, match="magic"):
        read_header(batch)


def test_unknown_codec_is_told_apart_from_corruption() -> None:
    with pytest.raises(UnsupportedCompressionTypeError):
        check(patch(build(), ">h", 21, 6))


@pytest.mark.parametrize(("delta", "count"), [(2, 4), (2, -1), (-1, 1), (-2, 0)])
def test_impossible_counts_are_corrupt(delta: int, count: int) -> None:
    batch = patch(build(), ">i", 23, delta)
    with pytest.raises(CorruptRecordError, match="counts"):
        check(patch(batch, ">i", 57, count))


def test_negative_base_offset_is_corrupt() -> None:
    batch = build()
    struct.pack_into(">q", batch, 0, -1)
    with pytest.raises(CorruptRecordError):
        check(batch)


def test_compacted_batch_with_gaps_or_without_records_is_sound() -> None:
    check(patch(build(), ">i", 23, 10))
    check(
        pack_batch(
            b"",
            base_offset=5,
            partition_leader_epoch=0,
            attributes=0,
            last_offset_delta=9,
            base_timestamp=-1,
            max_timestamp=-1,
            producer_id=1,
            producer_epoch=0,
            base_sequence=3,
            record_count=0,
        )
    )


def test_sound_batch_of_a_client_passes() -> None:
    validate_produced(read_header(build()))
    validate_produced(read_header(build(producer_id=1, producer_epoch=0, base_sequence=0)))


@pytest.mark.parametrize(
    "batch",
    [
        patch(build(), ">i", 57, 0),
        patch(build(), ">i", 57, 2),
        patch(build(), ">i", 57, -1),
        patch(build(), ">i", 57, 4),
        patch(build(), ">i", 23, -1),
        build(is_control=True),
        build(producer_id=1, producer_epoch=0),
        build(base_offset=1),
    ],
    ids=[
        "no records",
        "gap",
        "negative count",
        "too many",
        "no offsets",
        "control",
        "no sequence",
        "base offset",
    ],
)
def test_what_a_client_may_not_send_is_an_invalid_record(batch: bytearray) -> None:
    with pytest.raises(InvalidRecordError) as caught:
        validate_produced(read_header(batch))
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_assigning_offsets_leaves_the_crc_valid() -> None:
    """A leader must not have to read the whole batch again for 12 bytes of its header."""
    buffer = bytearray(b"junk") + build()
    crc = read_header(buffer, 4).crc
    set_base_offset_and_leader_epoch(memoryview(buffer), 4, 1_000_000, 9)
    header = read_header(buffer, 4)
    validate(buffer, 4, header)
    assert (1_000_000, 9, crc) == (header.base_offset, header.partition_leader_epoch, header.crc)
    assert [1_000_000, 1_000_001, 1_000_002] == [record.offset for record in iter_records(buffer, 4)]


def test_log_append_time_becomes_every_records_time() -> None:
    buffer = build() + build()
    second = len(buffer) // 2
    set_log_append_time(buffer, second, 77_777)
    header = read_header(buffer, second)
    validate(buffer, second, header)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [77_777] * 3 == [record.timestamp for record in iter_records(buffer, second)]
    assert [1_000, 1_001, 1_002] == [record.timestamp for record in iter_records(buffer, 0)]


def test_max_timestamp_is_set_without_touching_the_records() -> None:
    batch = build()
    set_max_timestamp(batch, 0, 9_999)
    assert 9_999 == check(batch).max_timestamp
    assert [1_000, 1_001, 1_002] == [record.timestamp for record in iter_records(batch)]


def test_walk_yields_whole_batches_and_leaves_the_partial_one() -> None:
    first, second = build(2), build(5)
    walked = list(iter_headers(bytes(first + second + first[:-1])))
    assert [(position, header.record_count) for position, header in walked] == [(0, 2), (len(first), 5)]
