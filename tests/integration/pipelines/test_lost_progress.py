"""A pipeline that lost its checkpoint: refused, repaired, and started again without a gap or a duplicate."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from kalda import Producer
from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import BatchAccount, RangeAccount
from kalda.pipelines.checkpoint import Checkpoint
from kalda.pipelines.engine.batch_log import BatchIntent, BatchLog
from kalda.pipelines.engine.batch_runner import BatchRunner
from kalda.pipelines.engine.decision import DecisionFile
from kalda.pipelines.engine.errors import ProgressLostError
from kalda.pipelines.engine.planner import plan_topic_pipeline
from kalda.pipelines.engine.topic_target import TopicOutput
from kalda.pipelines.ledger.audit_record import records_of
from kalda.pipelines.ledger.topic import LedgerTopic, read_ledger
from kalda.pipelines.spec.model import PipelineFile, TableSpec, TopicTarget
from kalda.pipelines.spec.parser import read_pipeline_file
from kalda.pipelines.tables import TaskId, open_table
from tests.integration.pipelines.numbers import produce_numbers
from tests.integration.tools.commands import Commands

pytestmark = pytest.mark.usefixtures("closed_readers")


def write_file(directory: Path, bootstrap: str, topic: str, target: str) -> Path:
    """Write a file with one pipeline, which has the name of its topic."""
    path = directory / "pipelines.yml"
    path.write_text(f"""
name: lost
storage: state
cluster: {{bootstrap.servers: "{bootstrap}"}}
pipelines:
  - {{name: {topic}, from: {{topic: {topic}}}, to: {target}}}
""")
    return path


def check_start(file: PipelineFile) -> None:
    """Check as `run` and `once` do before Spark starts the query."""
    runner = BatchRunner(plan_topic_pipeline(file.pipelines[0], file), file)
    try:
        runner.check_start()
    finally:
        runner.close()


def account_of(topic: str, query_id: str, count: int) -> BatchAccount:
    """Return the account of a batch that read the first records of partition 0."""
    return BatchAccount(query_id, 0, (RangeAccount(topic, 0, 0, count, records=count, rows_out=count),))


def commit_rows(file: PipelineFile, bootstrap: str, account: BatchAccount) -> None:
    """Commit a batch to the table and publish its account, as a pipeline does."""
    (spec,) = file.pipelines
    assert isinstance(spec.target, TableSpec)
    table, rows = open_table(spec.target), pa.RecordBatch.from_pydict({"value": [b"1"]})
    table.prepare_schema(rows.schema)
    table.commit(account, table.writer(rows.schema).write([rows], TaskId(account.query_id, 0, 0)))
    with LedgerTopic({"bootstrap.servers": bootstrap}) as ledger:
        ledger.publish(records_of(spec.name, spec.target_name, account, 1))


def test_a_pipeline_without_its_checkpoint_writes_no_row_twice(
    bootstrap: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """Spark would begin a new query, whose batches the table does not know."""
    topic = topic_name("lost")
    produce_numbers(bootstrap, topic, 50)
    path = write_file(tmp_path, bootstrap, topic, "{table: lake.rows, format: parquet}")
    file = read_pipeline_file(path)
    check_start(file)

    commit_rows(file, bootstrap, account_of(topic, "q", 40))
    with pytest.raises(ProgressLostError, match=f"{topic} has no checkpoint, but lake.rows has rows of it"):
        check_start(file)

    kalda = Commands(bootstrap)
    done = kalda("pipeline", "repair", path, "--execute", "--json")
    assert [(f"{topic}-0", 40, "target")] == [
        (each["partition"], each["offset"], each["from"]) for each in done.json
    ]
    check_start(file)


def test_a_table_that_only_a_replay_filled_is_filled_up_first(
    bootstrap: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The pipeline would begin too early, and a repair would leave out what was not replayed."""
    topic = topic_name("replayed")
    produce_numbers(bootstrap, topic, 50)
    path = write_file(tmp_path, bootstrap, topic, "{table: lake.rows, format: parquet}")
    file = read_pipeline_file(path)
    commit_rows(file, bootstrap, account_of(topic, f"refill-{topic}", 40))

    with pytest.raises(ProgressLostError, match="`kalda pipeline backfill` fills in what is missing"):
        check_start(file)
    done = Commands(bootstrap).run("pipeline", "repair", path, "--execute")
    assert 1 == done.code
    assert "has committed no offsets" in done.stderr


def test_a_repair_completes_the_last_batch_of_a_topic(
    bootstrap: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The driver died after the decision, before the ledger and the group, and its checkpoint is lost."""
    topic, copied = topic_name("source"), topic_name("copied")
    produce_numbers(bootstrap, topic, 50)
    path = write_file(tmp_path, bootstrap, topic, f"{{topic: {copied}}}")
    file = read_pipeline_file(path)
    (spec,) = file.pipelines
    assert isinstance(spec.target, TopicTarget)
    account = account_of(topic, "q", 40)
    BatchLog(file.storage, topic).write(BatchIntent(account))
    decision = DecisionFile(file.storage, topic)
    TopicOutput(spec.target, file.cluster(spec.target.cluster), decision).commit(account, [])
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(copied, b"1").result(30)
    with pytest.raises(ProgressLostError, match=f"{copied} has rows of it"):
        check_start(file)

    kalda, properties = Commands(bootstrap), {"bootstrap.servers": bootstrap}
    expected = [(f"{topic}-0", 40, "target")]
    for options in ((), ("--execute",)):
        done = kalda("pipeline", "repair", path, *options, "--json")
        assert expected == [(each["partition"], each["offset"], each["from"]) for each in done.json]
    assert [0, 40] == [
        bound
        for each in read_ledger(properties, frozenset([topic])).records
        for bound in (each.account.start, each.account.end)
    ]
    assert {TopicPartition(topic, 0): 40} == Checkpoint(file.checkpoint(topic)).committed_offsets()
    check_start(file)
