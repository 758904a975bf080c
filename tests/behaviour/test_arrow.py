"""Columns: what `send_arrow` wrote and what `poll_arrow` reads, the same on every cluster."""

from typing import Any

import pyarrow as pa

from kalda import Consumer, Producer, TopicPartition
from tests.behaviour.conftest import Topics, read_all, wait_until
from tests.behaviour.targets import Target


def test_an_arrow_batch_is_read_back(target: Target, topics: Topics) -> None:
    topic = topics(partitions=3)
    count = 5_000
    batch = pa.record_batch(
        {
            "value": pa.array([b"v%d" % number for number in range(count)], pa.binary()),
            "key": pa.array(
                [None if number % 4 == 0 else b"k%d" % (number % 50) for number in range(count)], pa.binary()
            ),
        }
    )
    with Producer(bootstrap_servers=target.bootstrap, compression_type="lz4") as producer:
        producer.send_arrow(topic, batch).result(30)
        where = {
            key: producer.send(topic, value=b"probe", key=key).result(30).partition
            for key in (b"k1", b"k2", b"k3", b"k49")
        }

    records = read_all(target, topic, count + 4)
    assert {b"v%d" % number for number in range(count)} == {
        each.value for each in records if each.value != b"probe"
    }
    for record in records:
        if record.key in where:
            assert where[record.key] == record.partition


def test_columns_hold_what_records_hold(target: Target, topics: Topics) -> None:
    topic = topics(partitions=2)
    with Producer(bootstrap_servers=target.bootstrap, compression_type="zstd", linger_ms=20) as producer:
        for number in range(2_000):
            producer.send(
                topic,
                value=None if number % 9 == 0 else b"v%d" % number,
                key=b"k%d" % number,
                partition=number % 2,
                headers=[("h", b"%d" % number)],
            )
    expected = {(r.partition, r.offset): r for r in read_all(target, topic, 2_000)}
    rows: list[dict[str, Any]] = []
    with Consumer(bootstrap_servers=target.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(2)])

        def step() -> bool:
            batch = consumer.poll_arrow(timeout_s=0.5, max_records=700)
            if batch is not None:
                assert batch.num_rows <= 700
                rows.extend(batch.to_pylist())
            return len(rows) == 2_000

        wait_until("all rows", step)
    for row in rows:
        record = expected[row["partition"], row["offset"]]
        assert (record.key, record.value) == (row["key"], row["value"])
