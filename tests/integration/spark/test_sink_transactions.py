"""The sink's tasks and driver against a real broker, without Spark: a batch is visible as a whole or not."""

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from kalda import Admin, NewTopic
from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.clients.transaction_control import TransactionControl
from kalda.common.types import TopicPartition
from kalda.spark.sink.batch_commit import BatchCommit
from kalda.spark.sink.decisions import BarrierLostError, TaskResult
from kalda.spark.sink.exactly_once import write_exactly_once
from kalda.spark.sink.last_decision import read_decision
from kalda.spark.sink.options import SinkOptions, parse_sink_options
from kalda.spark.sink.prepared_task import write_prepared
from kalda.spark.sink.task_identity import TaskIdentity

pytestmark = pytest.mark.usefixtures("closed_readers")

PARTITIONS = 3
ROWS = 30


class Sink:
    """A topic and a sink of its own for each test."""

    def __init__(self, bootstrap: str, delivery: str) -> None:
        self.topic = f"sink-{uuid.uuid4().hex[:8]}"
        self.scope = f"{uuid.uuid4().hex[:8]}-sink"
        servers = {"kafka.bootstrap.servers": bootstrap}
        self.options: SinkOptions = parse_sink_options(
            servers | {"topic": self.topic, "delivery": delivery}, is_stream=True
        )
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(self.topic, partitions=PARTITIONS)])

    def rows(self) -> Iterator[pa.RecordBatch]:
        keys = [f"{number}" for number in range(ROWS)]
        return iter([pa.record_batch([pa.array(keys), pa.array(keys)], ["key", "value"])])

    def write(self, batch_id: int, part: int = 0) -> TaskResult | None:
        return write_prepared(self.options, self.rows(), TaskIdentity(self.scope, batch_id, part)).result

    def prepared(self, batch_id: int, parts: int) -> list[TaskResult]:
        found = [self.write(batch_id, part) for part in range(parts)]
        return [each for each in found if each is not None]

    def driver(self, batch_id: int) -> BatchCommit:
        return BatchCommit(self.options, self.scope, batch_id)

    def stable(self) -> tuple[int, ...]:
        """The last stable offsets."""
        properties = {name: value for name, value in self.options.producer if name == "bootstrap.servers"}
        config = LogReaderConfig.from_properties(properties | {"isolation.level": "read_committed"})
        with LogReader(config) as reader:
            ends = reader.end_offsets([TopicPartition(self.topic, number) for number in range(PARTITIONS)])
        return tuple(ends.values())

    def open_count(self) -> int:
        with TransactionControl(dict(self.options.producer)) as control:
            return len(control.open_transactions(f"kalda-{self.scope}"))


def test_a_batch_is_hidden_until_the_barrier_ends(two_phase_bootstrap: str) -> None:
    """Committing the tasks' transactions one after another shows nothing."""
    sink = Sink(two_phase_bootstrap, "exactly-once-batch")
    results = sink.prepared(0, 3)
    with TransactionControl(dict(sink.options.producer)) as control:
        control.end_all([results[0].handle.transaction], commit=True)
        control.end_all([each.handle.transaction for each in results], commit=True)
        assert (0,) * PARTITIONS == sink.stable()
        control.end_all([results[0].barrier], commit=False)
    assert all(sink.stable())
    assert 0 == sink.open_count()


def test_a_batch_that_is_decided_is_finished_by_its_repetition(two_phase_bootstrap: str) -> None:
    """The driver died behind the decision: tasks skip, and the new driver commits what the record names."""
    sink = Sink(two_phase_bootstrap, "exactly-once-batch")
    results = sink.prepared(0, 2)
    driver = sink.driver(0)
    end_all, TransactionControl.end_all = TransactionControl.end_all, _die
    try:
        with pytest.raises(InterruptedError):
            driver.commit(results)
    finally:
        TransactionControl.end_all = end_all
    driver.abort(results)
    assert (0,) * PARTITIONS == sink.stable()
    assert sink.write(0) is None
    sink.driver(0).commit([])
    assert 0 == sink.open_count()
    decision = read_decision(sink.options, sink.scope)
    assert decision is not None
    assert (0, 2 * ROWS) == (decision.batch_id, sum(each.row_count for each in decision.handles))
    assert all(sink.stable())


def _die(*_: object, **__: object) -> None:
    raise InterruptedError


def test_what_a_failed_attempt_has_left_is_aborted(two_phase_bootstrap: str) -> None:
    """Its workers were killed, so that only the next commit can end its transactions."""
    sink = Sink(two_phase_bootstrap, "exactly-once-batch")
    sink.prepared(0, 2)
    assert 3 == sink.open_count()
    sink.driver(0).commit(sink.prepared(0, 3))
    assert 0 == sink.open_count()


def test_an_aborted_batch_leaves_no_transaction_open(two_phase_bootstrap: str) -> None:
    """Readers of the topic do not wait for a query that failed; the next attempt writes it again."""
    sink = Sink(two_phase_bootstrap, "exactly-once-batch")
    sink.driver(0).abort(sink.prepared(0, 2))
    assert 0 == sink.open_count()
    sink.driver(0).commit(sink.prepared(0, 2))
    assert 0 == sink.open_count()


def test_a_batch_of_which_every_task_failed_leaves_no_barrier(two_phase_bootstrap: str) -> None:
    """The driver gets no message from a task; readers of the topic do not wait for the next attempt."""
    sink = Sink(two_phase_bootstrap, "exactly-once-batch")
    sink.driver(0).commit(sink.prepared(0, 2))
    stable = sink.stable()

    def failing() -> Iterator[pa.RecordBatch]:
        yield from sink.rows()
        raise InterruptedError

    with pytest.raises(InterruptedError):
        write_prepared(sink.options, failing(), TaskIdentity(sink.scope, 1, 0))
    assert 1 == sink.open_count()
    sink.driver(1).abort([])
    assert 0 == sink.open_count()

    sink.driver(1).commit(sink.prepared(1, 2))
    assert all(after > before for after, before in zip(sink.stable(), stable, strict=True))


def test_a_barrier_that_was_ended_fails_the_batch(two_phase_bootstrap: str) -> None:
    """Otherwise its rows could be seen one transaction after another."""
    sink = Sink(two_phase_bootstrap, "exactly-once-batch")
    (first,) = sink.prepared(0, 1)
    with TransactionControl(dict(sink.options.producer)) as control:
        control.end_all([first.barrier], commit=False)
    with pytest.raises(BarrierLostError):
        sink.driver(0).commit([first, *sink.prepared(0, 1)])


def test_a_topic_that_does_not_exist_is_created(two_phase_bootstrap: str) -> None:
    """As in the other deliveries, where the cluster allows it."""
    sink = Sink(two_phase_bootstrap, "exactly-once-batch")
    sink.topic = f"{sink.topic}-new"
    sink.options = replace(sink.options, topic=sink.topic)
    sink.driver(0).commit(sink.prepared(0, 1))
    decision = read_decision(sink.options, sink.scope)
    assert decision is not None
    assert 0 == sink.open_count()


def test_a_repeated_part_is_skipped(two_phase_bootstrap: str) -> None:
    """Mode exactly-once; a part of an earlier batch is skipped as well."""
    sink = Sink(two_phase_bootstrap, "exactly-once")

    def write(batch_id: int) -> bool:
        identity = TaskIdentity(sink.scope, batch_id, 0)
        return write_exactly_once(sink.options, ["key", "value"], sink.rows(), identity).is_repeated

    assert [False, True, False, True] == [write(each) for each in (0, 0, 1, 0)]
