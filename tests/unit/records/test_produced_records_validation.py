"""The slow path that opens a produced batch: keys, offsets and times of its records."""

import struct

import pytest

from kalda.common.errors import ErrorCode
from kalda.records.batch import read_header
from kalda.records.compression import Compression
from kalda.records.errors import InvalidRecordError, InvalidTimestampError
from kalda.records.record import RecordBatchBuilder
from kalda.records.validation import (
    RECORD_ERRORS_MAX,
    TimestampBounds,
    validate_records,
)


def batch_of(keys: list[bytes | None], times: list[int], base_offset: int = 0) -> bytearray:
    builder = RecordBatchBuilder(base_offset=base_offset, compression=Compression.LZ4)
    for key, timestamp in zip(keys, times, strict=True):
        builder.append(key, b"v", timestamp)
    return builder.build()


def test_keyless_records_are_named_one_by_one_for_a_compacted_topic() -> None:
    """Clients show which of their records was refused (KIP-467)."""
    batch = batch_of([b"a", None, b"c", None], [0, 0, 0, 0])
    with pytest.raises(InvalidRecordError, match="2 of 4 records") as caught:
        validate_records(batch, 0, read_header(batch), require_keys=True)
    assert [1, 3] == [index for index, _ in caught.value.record_errors]
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


@pytest.mark.parametrize("times", [[900, 1_200], [-1, -1], [1_200, -1]])
def test_times_within_the_bounds_or_absent_pass(times: list[int]) -> None:
    batch = batch_of([b"a", b"b"], times)
    validate_records(batch, 0, read_header(batch), timestamp_bounds=TimestampBounds(900, 1_200))


def test_records_with_times_outside_the_bounds_are_named_one_by_one() -> None:
    """Also behind a record without a time, which would hide the earliest of the batch."""
    batch = batch_of([b"a", b"b", b"c", b"d"], [-1, 899, 1_000, 1_201])
    with pytest.raises(InvalidTimestampError, match=r"2 of 4 .* outside \[900, 1200\]") as caught:
        validate_records(batch, 0, read_header(batch), timestamp_bounds=TimestampBounds(900, 1_200))
    assert (
        (1, "timestamp 899 is outside [900, 1200]"),
        (3, "timestamp 1201 is outside [900, 1200]"),
    ) == caught.value.record_errors
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_one_bad_time_decides_the_code_for_keyless_records_too() -> None:
    batch = batch_of([None, b"b"], [1_000, 5])
    with pytest.raises(InvalidTimestampError) as caught:
        validate_records(
            batch, 0, read_header(batch), require_keys=True, timestamp_bounds=TimestampBounds(900, 1_200)
        )
    assert [0, 1] == [index for index, _ in caught.value.record_errors]


def test_number_of_named_records_is_bounded() -> None:
    count = RECORD_ERRORS_MAX + 5
    batch = batch_of([None] * count, [0] * count)
    with pytest.raises(InvalidRecordError, match=f"{count} of {count} records") as caught:
        validate_records(batch, 0, read_header(batch), require_keys=True)
    assert RECORD_ERRORS_MAX == len(caught.value.record_errors)
