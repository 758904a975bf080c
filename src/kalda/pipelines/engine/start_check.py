"""Refuses to start a pipeline whose progress is lost, damaged or of other topics, before Spark looks at it.

Without a checkpoint Spark begins a new query, and no target knows the batches of that: what the target has
would be written again. The ledger and the storage say which queries of the pipeline there were. A pipeline
whose target has none of its rows passes the check.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from kalda.pipelines.checkpoint import Checkpoint, CheckpointError
from kalda.pipelines.engine.batch_log import BatchLog
from kalda.pipelines.engine.errors import ProgressLostError
from kalda.pipelines.engine.targets import Target
from kalda.pipelines.ledger.topic import read_ledger
from kalda.pipelines.query_ids import REFILL_PREFIX
from kalda.pipelines.spec.model import PipelineSpec
from kalda.spark.source.options import SourceOptions, Subscribe

_REPAIR: Final = "`kalda pipeline repair` rebuilds it from the consumer group and the ledger"


def check_checkpoint(spec: PipelineSpec, checkpoint: Checkpoint, source: SourceOptions) -> None:
    """Check that Spark can go on from a checkpoint with the topics of the file; there may be none.

    Raises:
        ProgressLostError: it is damaged, or has topics that the pipeline does not read.
    """
    try:
        checkpoint.check()
        last = checkpoint.last_planned()
        offsets = {} if last is None else checkpoint.offsets(last) or {}
    except CheckpointError as error:
        raise ProgressLostError(
            f"the checkpoint of {spec.name} is damaged: {error}. Move {checkpoint.location} away; then "
            f"{_REPAIR}"
        ) from error
    if not isinstance(source.selection, Subscribe) or not source.fail_on_data_loss:
        return
    gone = sorted({each.topic for each in offsets} - set(source.selection.topics))
    if gone:
        raise ProgressLostError(
            f"the checkpoint of {spec.name} has {', '.join(gone)}, and the pipeline reads "
            f"{', '.join(source.selection.topics)}. Another pipeline needs a name of its own; to leave out a "
            'topic, start this one with `failOnDataLoss: "false"` in the `options` of `from`'
        )


def check_target(
    spec: PipelineSpec, target: Target, logs: Sequence[BatchLog], properties: Mapping[str, str]
) -> None:
    """Check that the target of a pipeline without a checkpoint has nothing of it.

    Args:
        logs: those of the pipeline and of its refills.
        properties: the settings of the cluster that is read, which has the ledger.

    Raises:
        ProgressLostError: it has, so that it would come twice.
        ClientError: the ledger cannot be read.
    """
    queries = {intent.account.query_id for log in logs if (intent := log.read()) is not None}
    queries |= {planned.query_id for log in logs if (planned := log.read_plan()) is not None}
    if spec.ledger:
        records = read_ledger(properties, frozenset([spec.name])).records
        queries |= {each.query_id for each in records if each.target == spec.target_name}
    held = [each for each in queries if target.holds(each)]
    if not held:
        return
    what = f"{spec.name} has no checkpoint, but {spec.target_name} has rows of it, which would come twice"
    if all(each.startswith(REFILL_PREFIX) for each in held):
        raise ProgressLostError(
            f"{what}: those of a replay or backfill. `kalda pipeline backfill` fills in what is missing and "
            "lets the pipeline begin behind it"
        )
    raise ProgressLostError(
        f"{what}. If the checkpoint is lost, {_REPAIR}. If this is another pipeline, give it a name that no "
        "other one on this cluster has"
    )
