"""Computes how far a pipeline is behind the topics that it reads.

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
    """The next offset; None for a partition of which no batch has been committed. A topic that was created
    again has none: the offsets of the former one say nothing about it."""
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
    processed = (checkpoint.offsets(committed) if committed is not None else None) or {}
    topic_ids = checkpoint.topic_ids(committed) if committed is not None else {}
    discovery = quick_discovery(plan.options)
    try:
        found = discovery.find_partitions()
        partitions = found.partitions
        ends = discovery.end_offsets(partitions)
        again = {name for name, known in topic_ids.items() if found.topic_ids.get(name, known) != known}
        processed = {each: at for each, at in processed.items() if each.topic not in again}
        new = [each for each in partitions if each not in processed]
        starts = discovery.beginning_offsets(new)
    finally:
        discovery.close()
    return [
        PartitionLag(each, at, ends[each], max(ends[each] - (starts[each] if at is None else at), 0))
        for each in partitions
        for at in (processed.get(each),)
    ]
