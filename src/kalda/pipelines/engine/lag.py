"""How far a pipeline is behind the topics that it reads.

Processed is what a committed batch covers, by the checkpoint; the consumer group shows the same in other
tools, one batch later. Needs no Spark.
"""

from dataclasses import dataclass

from kalda.common.types import TopicPartition
from kalda.pipelines.checkpoint import Checkpoint
from kalda.pipelines.engine.planner import TopicPlan
from kalda.pipelines.engine.source_settings import quick_discovery
from kalda.pipelines.spec.model import PipelineFile


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition: where the pipeline is and where the log ends."""

    topic_partition: TopicPartition
    processed: int | None
    """The next offset; None for a partition of which no batch has been committed."""
    end: int
    lag: int


def lag_of(plan: TopicPlan, file: PipelineFile) -> list[PartitionLag]:
    """Return the lag of each partition that a pipeline reads.

    Raises:
        ClientError: the cluster cannot be reached.
        CheckpointError: the checkpoint is damaged.
    """
    checkpoint = Checkpoint(file.checkpoint(plan.spec.name))
    committed = checkpoint.last_committed()
    processed = checkpoint.offsets(committed) if committed is not None else None
    discovery = quick_discovery(plan.options)
    try:
        partitions = discovery.find_partitions().partitions
        ends = discovery.end_offsets(partitions)
        new = [each for each in partitions if each not in (processed or {})]
        starts = discovery.beginning_offsets(new)
    finally:
        discovery.close()
    return [
        PartitionLag(each, at, ends[each], max(ends[each] - (starts[each] if at is None else at), 0))
        for each in partitions
        for at in ((processed or {}).get(each),)
    ]
