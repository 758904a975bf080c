"""Transaction markers as Kafka's brokers write them."""

import pytest

from kalda.records.batch import TimestampType, read_header, validate
from kalda.records.control import (
    ControlRecordType,
    EndTransactionMarker,
    build_end_transaction_marker,
    read_control_type,
    read_end_transaction_marker,
)
from kalda.records.errors import CorruptRecordError
from kalda.records.record import Record, RecordBatchBuilder, iter_records


@pytest.mark.parametrize("control_type", list(ControlRecordType))
def test_marker_survives_a_round_trip(control_type: ControlRecordType) -> None:
    marker = EndTransactionMarker(control_type, 12)
    batch = build_end_transaction_marker(
        marker, producer_id=8, producer_epoch=2, timestamp=5, base_offset=30, partition_leader_epoch=1
    )
    header = read_header(batch)
    validate(batch, 0, header)
    assert marker == read_end_transaction_marker(batch, 0, header)
    assert (True, True, -1) == (header.is_control, header.is_transactional, header.base_sequence)
    assert (8, 2, 30) == (header.producer_id, header.producer_epoch, header.base_offset)


def test_marker_has_kafkas_key_and_value() -> None:
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 3)
    (record,) = iter_records(
        build_end_transaction_marker(marker, producer_id=1, producer_epoch=0, timestamp=0)
    )
    assert bytes.fromhex("00000001") == record.key
    assert bytes.fromhex("000000000003") == record.value


def test_types_of_a_later_protocol_are_no_marker() -> None:
    record = Record(0, 0, TimestampType.CREATE_TIME, bytes.fromhex("00000004ffff"), b"", [])
    assert read_control_type(record) is None
    builder = RecordBatchBuilder(is_control=True)
    builder.append(record.key, b"", 0)
    batch = builder.build()
    assert read_end_transaction_marker(batch, 0, read_header(batch)) is None


@pytest.mark.parametrize(
    ("key", "value"), [(None, b""), (b"\x00\x00\x00", b""), (bytes(4), None), (bytes(4), b"1")]
)
def test_short_marker_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    builder = RecordBatchBuilder(is_control=True)
    builder.append(key, value, 0)
    batch = builder.build()
    with pytest.raises(CorruptRecordError):
        read_end_transaction_marker(batch, 0, read_header(batch))
