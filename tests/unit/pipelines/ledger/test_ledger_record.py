"""Records of the ledger as the topic has them."""

import json
from dataclasses import replace

import pytest

from kalda.pipelines.accounts import BatchAccount, RangeAccount
from kalda.pipelines.ledger.audit_record import LedgerRecord, LedgerRecordError, records_of

ACCOUNT = RangeAccount("orders", 3, 10, 20, records=8, rows_out=5, dlq=1, filtered=2, gaps=2)
RECORD = LedgerRecord("bronze", "lake.orders", "q-1", 7, ACCOUNT, 1_700_000_000_000)


def test_a_record_is_the_same_behind_the_topic() -> None:
    assert RECORD == LedgerRecord.from_json(RECORD.to_json())
    identified = replace(RECORD, account=replace(ACCOUNT, topic_id="6e0f6f0c-0d8e-4f3a-9a0c-2b1c3d4e5f60"))
    assert identified == LedgerRecord.from_json(identified.to_json())


def test_each_attempt_of_a_batch_has_the_same_key() -> None:
    """Compaction then keeps one record for each batch and partition, whatever was replayed."""
    again = LedgerRecord("bronze", "lake.orders", "q-1", 7, ACCOUNT, 1_700_000_999_999)

    assert b"q-1/7/orders-3" == RECORD.key == again.key


def test_a_batch_has_a_record_for_each_partition() -> None:
    other = RangeAccount("orders", 4, 0, 1, records=1, rows_out=1)
    records = records_of("bronze", "lake.orders", BatchAccount("q-1", 7, (ACCOUNT, other)), 5)

    assert [b"q-1/7/orders-3", b"q-1/7/orders-4"] == [each.key for each in records]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows_out": 6}, "does not balance: orders-3 .10, 20. has 8 records, but 6 rows out"),
        ({"rows_out": 6, "filtered": 1}, "the checksum of orders-3 .10, 20. in batch 7"),
        ({"start": 11, "end": 21}, "the record was changed"),
        ({"pipeline": None, "batch_id": "x"}, "this is no record of the ledger"),
    ],
)
def test_a_changed_record_is_found(change: dict[str, object], message: str) -> None:
    document = json.loads(RECORD.to_json()) | change

    with pytest.raises(LedgerRecordError, match=message):
        LedgerRecord.from_json(json.dumps(document).encode())


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b"\xff", b'{"topic": 1}'])
def test_something_else_is_no_record(value: bytes) -> None:
    with pytest.raises(LedgerRecordError):
        LedgerRecord.from_json(value)
