"""Arrow batches and data frames of what another client wrote."""

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kalda import AsyncConsumer, Consumer, TopicPartition
from kalda.clients.consumer.consumer_config import Isolation
from tests.integration.clients.consumer.records import TIMEOUT_SECONDS, create_topic, produce

TopicName = Callable[[str], str]
# A seek waits until the fetch that is under way is answered.
EARLIEST: Any = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_rows_have_all_columns(bootstrap: str, topic_name: TopicName, codec: str) -> None:
    topic = topic_name("arrow")
    create_topic(bootstrap, topic, 2)
    values = [b"%d " % number * 10 for number in range(20_000)]
    produce(bootstrap, topic, values, partitions=2, codec=codec)
    batches: list[pa.RecordBatch] = []
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with Consumer(bootstrap_servers=bootstrap, **EARLIEST) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        while sum(batch.num_rows for batch in batches) < 20_000:
            assert time.monotonic() < deadline
            batch = consumer.poll_arrow(1.0, max_records=3_000)
            if batch is not None:
                assert batch.num_rows <= 3_000
                batches.append(batch)
        assert consumer.poll_arrow(0.05) is None
        assert 10_000 == consumer.position(TopicPartition(topic, 1))
    table = pa.Table.from_batches(batches)
    assert {topic} == set(table["topic"].to_pylist())
    for number in range(2):
        rows = table.filter(pc.equal(table["partition"], number))
        assert list(range(10_000)) == rows["offset"].to_pylist()
        assert values[number::2] == rows["value"].to_pylist()


def test_aborted_transactions_are_left_out(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("arrow-transactions")
    create_topic(bootstrap, topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(TIMEOUT_SECONDS)
    for value, ends_well in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(TIMEOUT_SECONDS)
        (producer.commit_transaction if ends_well else producer.abort_transaction)()
    levels: dict[Isolation, list[bytes]] = {
        "read_committed": [b"a", b"c"],
        "read_uncommitted": [b"a", b"b", b"c"],
    }
    for isolation, expected in levels.items():
        with Consumer(bootstrap_servers=bootstrap, isolation_level=isolation, **EARLIEST) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            rows: list[bytes] = []
            while len(rows) < len(expected):
                batch = consumer.poll_arrow(TIMEOUT_SECONDS)
                assert batch is not None
                rows += batch["value"].to_pylist()
            assert expected == rows
        with Consumer(bootstrap_servers=bootstrap, isolation_level=isolation, **EARLIEST) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert expected == [next(consumer).value for _ in expected]


async def test_data_frames_come_on_a_loop_too(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("pandas")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"a", b"b"])
    async with AsyncConsumer(bootstrap_servers=bootstrap, **EARLIEST) as consumer:
        await consumer.assign([TopicPartition(topic, 0)])
        frame = await consumer.poll_pandas(TIMEOUT_SECONDS)
        assert frame is not None
        assert [b"a", b"b"] == frame["value"].tolist()
        assert [0, 1] == frame["offset"].tolist()
