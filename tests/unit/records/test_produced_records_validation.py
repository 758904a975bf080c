"""The slow path that opens a produced batch: keys, offsets and times of its records."""

import struct

import pytest

from kalda.common.errors import ErrorCode
from kalda.records.batch import TimestampType, read_header
from kalda.records.compression import Compression
from kalda.records.errors import InvalidRecordError, InvalidTimestampError
from kalda.records.record import RecordBatchBuilder
from kalda.records.validation import RecordsSummary, validate_records, validate_timestamps


def batch_of(keys: list[bytes | None], times: list[int], base_offset: int = 0) -> bytearray:
    builder = RecordBatchBuilder(base_offset=base_offset, compression=Compression.LZ4)
    for key, timestamp in zip(keys, times, strict=True):
        builder.append(key, b"v", timestamp)
    return builder.build()


def test_summary_names_the_first_record_with_the_largest_time() -> None:
    batch = batch_of([b"a", None, b"c", b"d"], [50, 90, 10, 90], base_offset=100)
    assert validate_records(batch, 0, read_header(batch)) == RecordsSummary(4, 10, 90, 101)


def test_keyless_records_are_named_one_by_one_for_a_compacted_topic() -> None:
    """Clients show which of their records was refused (KIP-467)."""
    batch = batch_of([b"a", None, b"c", None], [0, 0, 0, 0])
    with pytest.raises(InvalidRecordError, match="2 of 4 records") as caught:
        validate_records(batch, 0, read_header(batch), require_keys=True)
    assert [index for index, _ in caught.value.record_errors] == [1, 3]
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_gap_between_records_is_invalid() -> None:
    builder = RecordBatchBuilder()
    builder.append(b"k", b"v", 0)
    builder.append(b"k", b"v", 0, offset=2)
    batch = builder.build()
    with pytest.raises(InvalidRecordError, match="offset 2; expected 1"):
        validate_records(batch, 0, read_header(batch))


def test_last_offset_delta_beyond_the_records_is_invalid() -> None:
    batch = batch_of([b"k"], [0])
    struct.pack_into(">i", batch, 23, 3)
    with pytest.raises(InvalidRecordError, match="last offset delta is 3"):
        validate_records(batch, 0, read_header(batch))


@pytest.mark.parametrize(("low", "high"), [(1_000, 1_000), (900, 1_200), (-1, -1), (-1, 1_200)])
def test_times_within_the_bounds_or_absent_pass(low: int, high: int) -> None:
    header = read_header(batch_of([b"k"], [0]))
    validate_timestamps(header, low, high, now_ms=1_000, before_max_ms=100, after_max_ms=200)


@pytest.mark.parametrize(("low", "high"), [(899, 1_000), (1_000, 1_201), (0, 0)])
def test_times_outside_the_bounds_are_refused(low: int, high: int) -> None:
    header = read_header(batch_of([b"k"], [0]))
    with pytest.raises(InvalidTimestampError, match=r"outside \[900, 1200\]") as caught:
        validate_timestamps(header, low, high, now_ms=1_000, before_max_ms=100, after_max_ms=200)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_producer_may_not_claim_log_append_time() -> None:
    builder = RecordBatchBuilder(timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=1)
    builder.append(b"k", b"v", 1)
    with pytest.raises(InvalidTimestampError, match="log-append time"):
        validate_timestamps(
            read_header(builder.build()), 1, 1, now_ms=1, before_max_ms=2**63 - 1, after_max_ms=2**63 - 1
        )
