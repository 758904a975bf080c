"""How a refill reads the ranges that it has planned; that it does is a test with Spark."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kalda.common.types import TopicPartition
from kalda.pipelines.backfill.refill import Refill
from kalda.pipelines.engine.planner import plan_topic_pipeline
from kalda.pipelines.spec.parser import read_pipeline_file
from kalda.spark.source.options import parse_batch_options
from kalda.spark.source.plan import OffsetRange
from kalda.spark.source.reader import RangePartition, _plan


@pytest.mark.parametrize("options", ["", "options: {minPartitions: 9, maxRecordsPerPartition: 2}, "])
def test_each_range_is_a_task_of_its_own(tmp_path: Path, options: str) -> None:
    """A task accounts for the range of its number: with another cut the replay of a Spark pipeline failed."""
    path = tmp_path / "p.yml"
    path.write_text(f"""
name: p
storage: {tmp_path}
cluster: {{bootstrap.servers: "127.0.0.1:1"}}
pipelines:
  - {{name: p, execution: spark, from: {{topic: t, {options}keep: [offset]}}, to: {{table: lake.rows}}}}
""")
    file = read_pipeline_file(path)
    refill = Refill(plan_topic_pipeline(file.pipelines[0], file), file)
    ranges = tuple(OffsetRange(TopicPartition("t", number), 0, 10) for number in range(3))
    found: dict[str, str] = {}

    def read(**given: str) -> SimpleNamespace:
        found.update(given)
        return SimpleNamespace(load=lambda: None)

    session = SimpleNamespace(read=SimpleNamespace(format=lambda _: SimpleNamespace(options=read)))

    refill._frame(session, ranges)  # type: ignore[arg-type]  # the part of a session that is used

    starts, ends = ({each.topic_partition: bound for each in ranges} for bound in (0, 10))
    tasks = cast("list[RangePartition]", _plan(parse_batch_options(found), starts, ends, {}))
    assert [(each,) for each in ranges] == [each.ranges for each in tasks]
