"""Whether Spark may go on from a checkpoint."""

from pathlib import Path
from uuid import UUID

import pytest

pytest.importorskip("sqlglot")

from kalda.common.types import TopicPartition
from kalda.pipelines.checkpoint import Checkpoint
from kalda.pipelines.engine.errors import ProgressLostError
from kalda.pipelines.engine.planner import plans_of
from kalda.pipelines.engine.start_check import check_checkpoint
from kalda.pipelines.spec.parser import parse_pipeline_file
from kalda.spark.source.options import parse_stream_options

FILE = """
name: n
storage: state
pipelines:
  - name: a
    from: {{topic: [t, u], options: {{failOnDataLoss: "{fail}"}}}}
    to: {{table: v}}
"""


def check(checkpoint: Checkpoint, *, fail: str = "true") -> None:
    file = parse_pipeline_file(FILE.format(fail=fail), "p.yml", directory=Path("/srv"), variables={})
    (plan,) = plans_of(file)
    check_checkpoint(plan.spec, checkpoint, parse_stream_options(plan.options))


def test_a_topic_that_is_read_no_more(tmp_path: Path) -> None:
    """Two files with one storage and one name: what Spark plans would spoil the checkpoint for both."""
    checkpoint = Checkpoint(f"file://{tmp_path}/c")
    check(checkpoint)
    offsets = {TopicPartition(name, 0): 7 for name in ("t", "w", "a.dlq.retry")}
    checkpoint.create(offsets, query_id=UUID(int=1), now_ms=1)

    with pytest.raises(
        ProgressLostError, match=r"checkpoint of a has w, and the pipeline reads t, u, a\.dlq"
    ):
        check(checkpoint)
    check(checkpoint, fail="false")


def test_a_damaged_checkpoint_says_what_to_do(tmp_path: Path) -> None:
    checkpoint = Checkpoint(f"file://{tmp_path}/c")
    checkpoint.create({TopicPartition("t", 0): 7}, query_id=UUID(int=1), now_ms=1)
    (tmp_path / "c" / "metadata").unlink()

    with pytest.raises(
        ProgressLostError, match=r"is damaged: .* Move file://.*/c away; then `kalda pipeline r"
    ):
        check(checkpoint)
