"""Looks up how far a replication flow has come, from what it committed in the target."""

from dataclasses import dataclass

from kalda.clients.admin.admin import Admin
from kalda.clients.log_reader.log_reader import LogReader
from kalda.clients.log_reader.log_reader_config import LogReaderConfig
from kalda.common.types import TopicPartition
from kalda.pipelines.mirror.mirror import MirrorOptions
from kalda.pipelines.mirror.progress import id_text, is_other, read_origin


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
        ids = {str(name): each.topic_id for name, each in source.describe_topics(topics).results.items()}
        partitions = sorted(reader.topic_partitions(topics)) if topics else []
        beginnings = reader.beginning_offsets(partitions)
        ends = reader.end_offsets(partitions)
        committed = target.list_consumer_group_offsets([options.group])[options.group]
        progress: list[PartitionProgress] = []
        for each in partitions:
            copy = TopicPartition(names.target_topic(each.topic), each.partition)
            found = committed.get(copy)
            origin = None if found is None else read_origin(found.metadata)
            is_former = origin is not None and is_other(origin.topic_id, id_text(ids.get(each.topic)))
            copied = None if found is None or is_former else found.offset
            progress.append(PartitionProgress(each, copy, copied, beginnings[each], ends[each]))
        return progress
