"""What a log of an old message format refuses, because it would lose a part of the record."""

import pytest

from kalda.records.record import RecordBatchBuilder
from kalda.storage.errors import UnsupportedForMessageFormatError
from kalda.storage.log_config import LogConfig
from kalda.storage.log_validator import LogValidator


@pytest.mark.parametrize("magic", [0, 1])
def test_headers_are_refused_instead_of_dropped(magic: int) -> None:
    builder = RecordBatchBuilder()
    builder.append(b"k", b"v", 1, [("trace", b"1")])

    with pytest.raises(UnsupportedForMessageFormatError, match=f"format {magic} has no headers"):
        LogValidator(LogConfig(message_magic=magic)).convert(builder.build(), 0, 0, 0)


@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_an_idempotent_producer_are_refused(magic: int) -> None:
    builder = RecordBatchBuilder(producer_id=5, producer_epoch=0, base_sequence=0)
    builder.append(b"k", b"v", 1)

    with pytest.raises(UnsupportedForMessageFormatError, match="has no idempotence"):
        LogValidator(LogConfig(message_magic=magic)).convert(builder.build(), 0, 0, 0)
