"""Replays and backfills beside a streaming pipeline, with real tasks."""

from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

import pytest

from kalda.pipelines.backfill.bounds import AtOffset, AtTime
from kalda.pipelines.backfill.refill import Refill, RefillError
from kalda.pipelines.dlq.replay import open_letters
from kalda.pipelines.engine.errors import ProgressLostError
from kalda.pipelines.engine.pipeline_run import PipelineRun
from kalda.pipelines.engine.planner import plan_topic_pipeline
from kalda.pipelines.engine.topic_target import TopicOutput
from kalda.pipelines.ledger.evidence import audit_pipeline
from kalda.pipelines.ledger.topic import read_ledger
from kalda.pipelines.spec.model import TableSpec
from kalda.pipelines.spec.parser import read_pipeline_file
from kalda.pipelines.tables import open_table
from kalda.spark.worker import close_readers
from tests.spark.conftest import Topics
from tests.spark.pipelines import records_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T0 = 1_700_000_000_000


def test_a_backfill_fills_the_table_and_the_stream_goes_on(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    """No record is missing and none is there twice, whatever was processed before and by whom."""
    # The records are of 2023; a broker deletes what is older than seven days every five minutes.
    topic = topics.create("refill", 1, {"retention.ms": "-1"})
    topics.fill(topic, [b"%d" % number for number in range(100)], timestamps=[T0 + n for n in range(100)])
    path = tmp_path / "pipelines.yaml"
    path.write_text(f"""
name: refills
storage: {tmp_path}/storage
cluster: {{bootstrap.servers: "{topics.bootstrap}"}}
pipelines:
  - name: {topic}
    from: {{topic: {topic}, keep: [offset]}}
    expect: {{known: {{check: offset <> 5, on_fail: dlq}}}}
    to: {{table: lake.rows, format: parquet}}
""")
    file = read_pipeline_file(path)
    (spec,) = file.pipelines
    plan = plan_topic_pipeline(spec, file)
    refill = Refill(plan, file)
    committed: list[int] = []

    # A replay of the middle, then everything before a time around it.
    middle, _ = refill.plan(AtOffset(20), AtOffset(30))
    assert 10 == refill.run(spark, middle, lambda each: committed.append(each.batch_id)).total("rows_out")
    before, ends = refill.plan(None, AtTime(T0 + 60))
    assert (50, 10) == (before.offsets, before.skipped_offsets)
    refill.run(spark, before, lambda each: committed.append(each.batch_id))
    assert [0, 1, 2] == committed
    assert () == refill.plan(None, AtTime(T0 + 60))[0].batches

    assert refill.begin_at(ends)
    assert not refill.begin_at(ends)
    run = PipelineRun(spark, plan, file, is_once=True, report=lambda outcome: None, logged=set())
    run.start()
    assert run._query is not None
    run._query.awaitTermination(120)
    run.close()
    assert run.error() is None

    assert isinstance(spec.target, TableSpec)
    offsets = [
        n for rows in open_table(spec.target).read(["offset"]) for n in rows.column("offset").to_pylist()
    ]
    assert [number for number in range(100) if number != 5] == sorted(offsets)
    properties = {"bootstrap.servers": topics.bootstrap}
    report = audit_pipeline(spec, properties, read_ledger(properties, frozenset([topic])), recount=True)
    assert () == report.findings
    assert () == refill.plan(None, None)[0].batches

    # Without its checkpoint, the query would begin again with offset 0.
    checkpoint = Path(file.checkpoint(topic).removeprefix("file://"))
    checkpoint.rename(tmp_path / "away")
    with pytest.raises(ProgressLostError, match="has rows of it, which would come twice"):
        PipelineRun(spark, plan, file, is_once=True, report=lambda outcome: None, logged=set()).start()
    (tmp_path / "away").rename(checkpoint)

    # The table is lost: without its checkpoint too, a rebuild fills it with all that is there.
    rmtree(spec.target.path.removeprefix("file://"))
    with pytest.raises(RefillError, match=f"{topic} has a checkpoint; stop it and delete file://"):
        refill.forget()
    rmtree(file.checkpoint(topic).removeprefix("file://"))
    assert refill.forget() > 0
    assert 99 == refill.run(spark, refill.plan(None, None)[0], lambda each: None).total("rows_out")
    close_readers()
    assert 99 == sum(rows.num_rows for rows in open_table(spec.target).read(["offset"]))
    # Its batches have the numbers of those before, and are no repetition of them.
    assert 2 == sum(1 for _ in open_letters(properties, spec.dlq_topic))


def test_an_interrupted_replay_to_a_topic_is_repeated_as_it_was(
    spark: "SparkSession", topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its tasks committed stays; a new plan with more records would take that for all of its own."""
    topic = topics.create("refill", 1, {"retention.ms": "-1"})
    copied = topics.create("copied", 1, {"retention.ms": "-1"})
    topics.fill(topic, [b"%d" % number for number in range(40)])
    path = tmp_path / "pipelines.yaml"
    path.write_text(f"""
name: refills
storage: {tmp_path}/storage
cluster: {{bootstrap.servers: "{topics.bootstrap}"}}
pipelines:
  - {{name: {topic}, from: {{topic: {topic}}}, to: {{topic: {copied}}}, on_error: skip}}
""")
    file = read_pipeline_file(path)
    plan = plan_topic_pipeline(file.pipelines[0], file)

    with monkeypatch.context() as patch:
        patch.setattr(TopicOutput, "commit", lambda *_: 1 / 0)
        refill = Refill(plan, file)
        with pytest.raises(ZeroDivisionError):
            refill.run(spark, refill.plan(None, None)[0], lambda _: None)
    topics.fill(topic, [b"%d" % number for number in range(40, 60)])
    refill = Refill(plan, file)
    refill.complete()
    again, _ = refill.plan(None, None)
    assert (60, 0) == (again.offsets, again.skipped_offsets)
    assert 60 == refill.run(spark, again, lambda _: None).total("rows_out")
    close_readers()

    values = [bytes(each.value or b"") for each in records_of(topics.bootstrap, copied, 60)]
    assert sorted(b"%d" % number for number in range(60)) == sorted(values)
