"""Whether Spark may go on from a checkpoint."""

from pathlib import Path
from uuid import UUID

import pytest

pytest.importorskip("sqlglot")

from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.checkpoint import Checkpoint
from kalda.pipelines.engine.batch_log import BatchIntent, BatchLog, PlannedBatch
from kalda.pipelines.engine.errors import ProgressLostError
from kalda.pipelines.engine.planner import plans_of
from kalda.pipelines.engine.start_check import check_checkpoint, check_target
from kalda.pipelines.spec.parser import parse_pipeline_file
from kalda.spark.source.options import parse_stream_options
from tests.unit.pipelines.engine.batches import ListTarget

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


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (frozenset(), None),
        (
            frozenset(["query-1"]),
            "which would come twice. If the checkpoint is lost, `kalda pipeline repair`",
        ),
        (frozenset(["refill-7"]), "those of a replay or backfill. `kalda pipeline backfill` fills in"),
        (frozenset(["refill-7", "query-1"]), "If the checkpoint is lost"),
        (frozenset(["unknown"]), None),
    ],
)
def test_a_target_that_has_rows_of_the_pipeline_is_not_written_anew(
    tmp_path: Path, held: frozenset[str], message: str | None
) -> None:
    """Under a new query's id the table would take every batch for a new one."""
    own, refill = BatchLog(f"file://{tmp_path}/own", "a"), BatchLog(f"file://{tmp_path}/refill", "a")
    own.write(BatchIntent(BatchAccount("query-1", 3, ())))
    refill.write_plan(PlannedBatch("refill-7", 0, ()))
    text = FILE.format(fail="true").replace("name: n", "name: n\ndefaults: {ledger: false}")
    file = parse_pipeline_file(text, "p.yml", directory=Path("/srv"), variables={})
    (spec,) = file.pipelines
    target = ListTarget(committed=dict.fromkeys(held, 3))
    if message is None:
        check_target(spec, target, (own, refill), {})
        return
    with pytest.raises(ProgressLostError) as refused:
        check_target(spec, target, (own, refill), {})
    assert str(refused.value).startswith("a has no checkpoint, but v has rows of it, which would come twice")
    assert message in str(refused.value)
