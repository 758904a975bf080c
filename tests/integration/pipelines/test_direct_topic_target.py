"""Rows of a direct task in a prepared transaction of a topic, on a real broker."""

import uuid
from collections.abc import Iterator

import confluent_kafka
import confluent_kafka.admin
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kalda.common.types import TopicPartition
from kalda.pipelines.direct.range_job import RangeJob
from kalda.pipelines.direct.row_plan import RowPlan
from kalda.pipelines.direct.row_steps import FilterStep
from kalda.pipelines.direct.topic_target import PreparedTopicTarget
from kalda.pipelines.topic_rows import TopicRows
from kalda.spark.sink.prepared import PreparedHandle, PreparedOutput
from kalda.spark.source.options import parse_batch_options
from kalda.spark.source.plan import OffsetRange
from kalda.spark.worker import close_readers
from kalda.testing import KaldaProcess


@pytest.fixture(scope="module")
def two_phase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that allows transactions to stay prepared."""
    settings = {"transaction.two.phase.commit.enable": "true"}
    with KaldaProcess(tmp_path_factory.mktemp("two-phase") / "data", settings=settings) as process:
        yield process.bootstrap


def values(bootstrap: str, topic: str) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "values", "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and not message.error():
        found.append(message.value())
    consumer.close()
    return found


def test_rows_are_visible_when_the_driver_decides_and_once(two_phase: str) -> None:
    """Two attempts of one task prepare; the decision names one, and the other is aborted."""
    source, target = f"in-{uuid.uuid4().hex}", f"out-{uuid.uuid4().hex}"
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": two_phase})
    for future in admin.create_topics(
        [confluent_kafka.admin.NewTopic(name, 1, 1) for name in (source, target)]
    ).values():
        future.result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": two_phase})
    for number in range(100):
        producer.produce(source, b"%d" % number, key=b"k", timestamp=1_700_000_000_000 + number)
    assert 0 == producer.flush(30)

    output = PreparedOutput({"kafka.bootstrap.servers": two_phase, "topic": target}, f"{source}-out")
    job = RangeJob(
        query_id="q",
        batch_id=0,
        source=parse_batch_options({"kafka.bootstrap.servers": two_phase, "subscribe": source}),
        rows=RowPlan(("key", "value", "timestamp", "offset"), steps=(FilterStep(pc.field("offset") >= 90),)),
        target=PreparedTopicTarget(output, TopicRows()),
    )
    given = OffsetRange(TopicPartition(source, 0), 0, 100)
    first, second = job.run(given, 0), job.run(given, 0)
    close_readers()

    assert (100, 10, 90) == (second.account.records, second.account.rows_out, second.account.filtered)
    assert [] == values(two_phase, target)
    assert isinstance(second.rows.prepared, PreparedHandle)
    assert first.rows.prepared != second.rows.prepared
    output.complete([second.rows.prepared], commit=True)
    assert 1 == output.abort_others([second.rows.prepared])
    assert [b"%d" % number for number in range(90, 100)] == values(two_phase, target)


def test_a_task_without_rows_prepares_nothing() -> None:
    output = PreparedOutput({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}, "scope")
    target = PreparedTopicTarget(output, TopicRows())

    assert (
        target.write(iter([pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})]), "q", 0, 0).rows
        == 0
    )
