"""Looks up how far a replication flow has come, from what it committed in the target."""

from dataclasses import dataclass

from kalda.clients.admin.admin import Admin
from kalda.clients.errors import UnsupportedApiError
from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.delivery import DeliveryMode, check_transactions
from kalda.pipelines.mirror.mirror import MirrorOptions
from kalda.pipelines.mirror.progress import Progress, id_text, resumption_of
from kalda.pipelines.mirror.syncs_topic import read_syncs


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far one partition of the source is copied."""

    source: TopicPartition
    target: TopicPartition
    copied: int | None
    """The offset of the source where the flow goes on.

    None before the first transaction, also after the topic was deleted and created again.
    """
    beginning: int
    """The first offset of the partition."""
    end: int
    """The end of the partition, as `read_committed` sees it."""

    @property
    def lag(self) -> int:
        """Offsets that are not copied yet."""
        return max(self.end - max(self.copied or 0, self.beginning), 0)


def progress_of(options: MirrorOptions) -> list[PartitionProgress]:
    """Return the partitions of a flow, in order.

    Raises:
        ClientError: a cluster cannot be reached.
        MirrorError: a topic would come back by other mirrors.
    """
    names = options.names
    reader_config = LogReaderConfig.from_properties(
        {**options.source.for_reader(), "isolation.level": "read_committed"}
    )
    with (
        Admin.from_config(options.source.for_admin()) as source,
        Admin.from_config(options.target.for_admin()) as target,
        LogReader(reader_config) as reader,
    ):
        topics = names.selected(source.list_topics())
        ids = {
            str(name): each.topic_id
            for name, each in source.describe_topics(topics, outcomes=True).results.items()
        }
        partitions = sorted(reader.topic_partitions(topics)) if topics else []
        beginnings = reader.beginning_offsets(partitions)
        ends = reader.end_offsets(partitions)
        committed = target.list_consumer_group_offsets([options.group], outcomes=True)[options.group]
        copies = {each: TopicPartition(names.target_topic(each.topic), each.partition) for each in partitions}
        recorded = {}
        if any(committed.get(copy) is None for copy in copies.values()):
            recorded = _recorded(options, target)
        progress: list[PartitionProgress] = []
        for each, copy in copies.items():
            topic_id = id_text(ids.get(each.topic))
            copied = resumption_of(committed.get(copy), recorded.get(each), topic_id).position
            progress.append(PartitionProgress(each, copy, copied, beginnings[each], ends[each]))
        return progress


def _recorded(options: MirrorOptions, target: Admin) -> dict[TopicPartition, Progress]:
    """Return the progress in the topic of syncs; none if the flow resumes from committed offsets."""
    if options.delivery is DeliveryMode.AT_LEAST_ONCE:
        return {}
    try:
        check_transactions(target, options.group)
    except UnsupportedApiError:
        return {}
    return {
        source: Progress(sync.topic_id, sync.position)
        for source, sync in read_syncs(options.target, options.name)
    }
