"""A topic as a pipeline's target, against a real broker and without Spark."""

import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from kalda import Admin, NewTopic
from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.clients.transaction_control import TransactionControl, TransactionHandle
from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.direct.rows_target import Written
from kalda.pipelines.engine.decision import DecisionFile
from kalda.pipelines.engine.topic_target import TopicOutput
from kalda.pipelines.spec.model import Cluster, Delivery, TopicTarget

pytestmark = pytest.mark.usefixtures("closed_readers")

QUERY = "3f0c7d1e"
ROWS = pa.record_batch({"value": pa.array([b"a", b"b", b"c"])})


class Output:
    """A topic of one partition, and the driver of a pipeline that writes it."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory
        self._topic = TopicPartition(f"copied-{uuid.uuid4().hex[:8]}", 0)
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(self._topic.topic, partitions=1)])
        self.query = f"{QUERY}-{uuid.uuid4().hex[:8]}"

    def driver(self) -> TopicOutput:
        """Return what a new process of the driver has."""
        spec = TopicTarget(topic=self._topic.topic, cluster="cluster", delivery=Delivery.EXACTLY_ONCE_BATCH)
        cluster = Cluster(name="cluster", properties={"bootstrap.servers": self._bootstrap})
        return TopicOutput(spec, cluster, DecisionFile(f"file://{self._directory}", "copy"))

    def write(self, batch_id: int, parts: int) -> list[Written]:
        """Run the tasks of a batch."""
        target = self.driver().rows_target(ROWS.schema, self.query, batch_id)
        return [target.write([ROWS], self.query, batch_id, part) for part in range(parts)]

    def account(self, batch_id: int) -> BatchAccount:
        """Return the account of a batch."""
        return BatchAccount(self.query, batch_id, ())

    def visible_end(self) -> int:
        """Return the offset up to which a read_committed reader sees the topic."""
        properties = {"bootstrap.servers": self._bootstrap, "isolation.level": "read_committed"}
        with LogReader(LogReaderConfig.from_properties(properties)) as reader:
            return reader.end_offsets([self._topic])[self._topic]

    def open_transactions(self) -> list[TransactionHandle]:
        """Return what holds readers up."""
        with TransactionControl({"bootstrap.servers": self._bootstrap}) as control:
            return control.open_transactions(f"kalda-{self.query}")


@pytest.fixture
def output(two_phase_bootstrap: str, tmp_path: Path) -> Output:
    """A topic of its own for each test."""
    return Output(two_phase_bootstrap, tmp_path)


def test_no_part_of_a_batch_is_visible(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver dies after it has committed the transaction of one of two tasks, then finishes the batch."""
    written = output.write(1, parts=2)
    end_all = TransactionControl.end_all

    def end_one(control: TransactionControl, handles: list[TransactionHandle], *, commit: bool) -> None:
        end_all(control, list(handles)[:1], commit=commit)
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(TransactionControl, "end_all", end_one)
        with pytest.raises(InterruptedError):
            output.driver().commit(output.account(1), written)
    assert 0 == output.visible_end()
    assert 1 == output.driver().committed_batch(output.query)
    for _ in range(2):
        output.driver().complete(output.query)
    assert 2 * ROWS.num_rows < output.visible_end()
    assert [] == output.open_transactions()


def test_attempts_that_do_not_count_leave_no_transaction_open(output: Output) -> None:
    """The tasks of a driver that died, and speculative twins: readers would wait for them."""
    output.write(1, parts=2)
    written, *_ = output.write(1, parts=2)
    output.driver().commit(output.account(1), [written])
    assert [] == output.open_transactions()
    assert 1 == output.driver().committed_batch(output.query)


def test_a_batch_without_rows_counts(output: Output) -> None:
    """Its records were filtered, or are dead letters; its number is not used again."""
    output.driver().commit(output.account(1), [Written(0)])
    output.driver().complete(output.query)
    assert 1 == output.driver().committed_batch(output.query)
    assert 0 == output.visible_end()


def test_an_abandoned_batch_leaves_nothing_open(output: Output) -> None:
    """The driver died before the decision, and its query is lost: readers would wait for ever."""
    output.write(1, parts=2)
    assert 0 == output.visible_end()
    assert output.driver().holds(output.query)
    output.driver().abandon(output.query, 1)
    assert [] == output.open_transactions()
    assert output.driver().committed_batch(output.query) is None
    assert output.visible_end() > 0
