"""The ledger in its topic, on a real broker."""

import uuid

import confluent_kafka

from kalda.pipelines.accounts import RangeAccount
from kalda.pipelines.ledger.audit_record import LEDGER_TOPIC, LedgerRecord
from kalda.pipelines.ledger.topic import LedgerTopic, create_ledger_topic, read_ledger


def record(pipeline: str, batch_id: int, committed_ms: int = 1) -> LedgerRecord:
    account = RangeAccount("orders", 0, batch_id, batch_id + 1, records=1, rows_out=1)
    return LedgerRecord(pipeline, "lake.orders", f"query-of-{pipeline}", batch_id, account, committed_ms)


def test_a_batch_that_is_published_twice_is_read_once(bootstrap: str) -> None:
    """Recovery publishes a batch again whose records may be there already."""
    pipeline = uuid.uuid4().hex
    properties = {"bootstrap.servers": bootstrap}
    with LedgerTopic(properties) as ledger:
        ledger.publish([record(pipeline, 0), record(pipeline, 1)])
        ledger.publish([record(pipeline, 1, 2)])
    with LedgerTopic(properties) as ledger:
        ledger.publish([record(uuid.uuid4().hex, 0)])

    contents = read_ledger(properties, frozenset([pipeline]))
    assert [record(pipeline, 0), record(pipeline, 1, 2)] == list(contents.records)


def test_a_value_that_no_pipeline_wrote_is_named(bootstrap: str) -> None:
    properties = {"bootstrap.servers": bootstrap}
    create_ledger_topic(properties)
    key = uuid.uuid4().hex
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(LEDGER_TOPIC, b"junk", key=key)
    assert 0 == producer.flush(30)

    faults = [each for each in read_ledger(properties).faults if key in each]
    assert [f"{key}: this is no record of the ledger: b'junk'"] == faults
    producer.produce(LEDGER_TOPIC, None, key=key)
    assert 0 == producer.flush(30)
    assert [] == [each for each in read_ledger(properties).faults if key in each]
