"""What the validator of appends makes of headers that no producer's library writes."""

import struct

import pytest

from kalda.records.batch import ATTRIBUTES_POSITION
from kalda.records.crc import crc32c
from kalda.records.errors import InvalidTimestampError
from kalda.records.record import RecordBatchBuilder
from kalda.storage.log_config import INT64_MAX, LogConfig
from kalda.storage.log_validator import LogValidator
from kalda.storage.producer_state_manager import AppendOrigin

CRC_POSITION, BASE_TIMESTAMP_POSITION = 17, 27


def test_a_timestamp_above_the_largest_one_is_refused() -> None:
    """The base timestamp and the difference of a record fit 64 bits each, their sum does not."""
    builder = RecordBatchBuilder()
    builder.append(None, b"first", 1_000)
    builder.append(None, b"second", 2_000)
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, BASE_TIMESTAMP_POSITION, INT64_MAX)
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(batch[ATTRIBUTES_POSITION:]))

    with pytest.raises(InvalidTimestampError, match=f"the largest is {INT64_MAX}"):
        LogValidator(LogConfig()).validate(memoryview(batch), AppendOrigin.CLIENT, 0)
