"""A topic as the target of a pipeline: which guarantee does what, without brokers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("sqlglot")

from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.direct.rows_target import Written
from kalda.pipelines.engine import topic_target
from kalda.pipelines.engine.decision import DecisionFile
from kalda.pipelines.engine.topic_fit import TopicLimits
from kalda.pipelines.engine.topic_target import TopicOutput
from kalda.pipelines.spec.model import Cluster, Delivery, TopicTarget
from kalda.spark.sink.decisions import Decision
from kalda.spark.sink.task_identity import TaskIdentity

ROWS = pa.record_batch({"value": pa.array([b"a", b"b", b"c"])})
ACCOUNT = BatchAccount("query", 4, ())


@dataclass
class Bounds:
    """How many offsets a partition has had."""

    end: int


@dataclass
class Sink:
    """Notes what the topic is asked for, instead of the cluster."""

    calls: list[tuple[object, ...]] = field(default_factory=list)
    decision: Decision | None = None
    ends: tuple[int, ...] = (0, 0)


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Sink:
    made = Sink()

    class Batch:
        def __init__(self, options: object, scope: str, batch_id: int) -> None:
            self._place = (scope, batch_id)

        def commit(self, results: Sequence[object]) -> None:
            made.calls.append(("commit", *self._place, tuple(results)))

        def abandon(self) -> None:
            made.calls.append(("abandon", *self._place))

    def values_of(records: Iterable[pa.RecordBatch]) -> list[bytes]:
        return [row for each in records for row in each["value"].to_pylist()]

    def once(options: object, names: object, records: Iterable[pa.RecordBatch], identity: object) -> None:
        made.calls.append(("once", identity, values_of(records)))

    class Output:
        def __init__(self, producer: object, rows: object) -> None:
            pass

        def send_all(self, records: Iterable[pa.RecordBatch]) -> None:
            made.calls.append(("send", values_of(records)))

    class Producer:
        def __enter__(self) -> "Producer":
            return self

        def __exit__(self, *error: object) -> None:
            pass

    class Prepared:
        result = None

    def prepare(options: object, records: Iterable[pa.RecordBatch], identity: TaskIdentity) -> Prepared:
        made.calls.append(("prepare", identity, values_of(records)))
        return Prepared()

    for name, value in {
        "BatchCommit": Batch,
        "read_decision": lambda options, scope: made.decision,
        "log_bounds": lambda properties, topics: {
            number: Bounds(end) for number, end in enumerate(made.ends)
        },
        "read_limits": lambda topic, cluster, producer: TopicLimits(),
        "write_prepared": prepare,
        "write_exactly_once": once,
        "TaskOutput": Output,
        "open_producer": lambda options: Producer(),
    }.items():
        monkeypatch.setattr(topic_target, name, value)
    return made


def output(root: Path, delivery: Delivery) -> TopicOutput:
    spec = TopicTarget(topic="out", cluster="main", delivery=delivery)
    cluster = Cluster(name="main", properties={"bootstrap.servers": "127.0.0.1:1"})
    return TopicOutput(spec, cluster, DecisionFile(f"file://{root}", "copy"))


@pytest.mark.parametrize("delivery", list(Delivery))
def test_tasks_send_all_rows_by_the_guarantee(tmp_path: Path, sink: Sink, delivery: Delivery) -> None:
    target = output(tmp_path, delivery).rows_target(ROWS.schema, "query", 4)
    written = target.write([ROWS.slice(0, 1), ROWS.slice(1)], "query", 4, 2)
    assert 3 == written.rows
    identity = TaskIdentity("query-topic", 4, 2)
    values = [b"a", b"b", b"c"]
    expected: dict[Delivery, tuple[object, ...]] = {
        Delivery.AT_LEAST_ONCE: ("send", values),
        Delivery.EXACTLY_ONCE: ("once", identity, values),
        Delivery.EXACTLY_ONCE_BATCH: ("prepare", identity, values),
    }
    assert [expected[delivery]] == sink.calls


def test_a_task_without_rows_opens_no_producer(tmp_path: Path, sink: Sink) -> None:
    """But it prepares a transaction where the batch is one: another attempt may have had rows."""
    for delivery in Delivery:
        written = output(tmp_path, delivery).rows_target(ROWS.schema, "query", 4).write([], "query", 4, 0)
        assert 0 == written.rows
    assert ["prepare"] == [call[0] for call in sink.calls]


@pytest.mark.parametrize("delivery", list(Delivery))
def test_a_decided_batch_is_not_sent_again(tmp_path: Path, sink: Sink, delivery: Delivery) -> None:
    first = output(tmp_path, delivery)
    assert first.committed_batch("query") is None
    first.commit(ACCOUNT, [Written(3), Written(0)])
    again = output(tmp_path, delivery)
    assert 4 == again.committed_batch("query")
    assert again.committed_batch("another") is None
    commits = [call for call in sink.calls if call[0] == "commit"]
    expected = [("commit", "query-topic", 4, ())] if delivery is Delivery.EXACTLY_ONCE_BATCH else []
    assert expected == commits


def test_the_decision_of_a_whole_batch_is_the_topic_s_own(tmp_path: Path, sink: Sink) -> None:
    """It is made before the file is written; a crash in between must not lose it."""
    target = output(tmp_path, Delivery.EXACTLY_ONCE_BATCH)
    target.commit(ACCOUNT, [])
    sink.decision = Decision(batch_id=5, handles=())
    assert 5 == target.committed_batch("query")
    sink.calls.clear()
    target.complete("query")
    assert [("commit", "query-topic", 5, ())] == sink.calls


def test_parts_are_open_where_tasks_have_transactions(tmp_path: Path, sink: Sink) -> None:
    kinds = {delivery: output(tmp_path, delivery).parts for delivery in Delivery}
    assert [Delivery.AT_LEAST_ONCE] == [delivery for delivery, parts in kinds.items() if parts is None]
    for delivery, parts in kinds.items():
        if parts is not None:
            parts.complete("query")
            parts.abandon("query", 4)
            shown = [("abandon", "query-topic", 4)] if delivery is Delivery.EXACTLY_ONCE_BATCH else []
            assert shown == sink.calls
            sink.calls.clear()


def test_a_topic_that_has_had_records_may_hold_a_query_s(tmp_path: Path, sink: Sink) -> None:
    target = output(tmp_path, Delivery.AT_LEAST_ONCE)
    assert not target.holds("query")
    sink.ends = (0, 7)
    assert target.holds("query")


def test_a_topic_has_no_marks_event_times_or_maintenance(tmp_path: Path, sink: Sink) -> None:
    target = output(tmp_path, Delivery.EXACTLY_ONCE)
    assert (None, None) == (target.upsert_marks(is_spark=False), target.event_time)
    target.maintain()
    assert [] == sink.calls
