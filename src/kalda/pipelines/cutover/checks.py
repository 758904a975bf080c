"""Looks at what a target has before anything is copied to it."""

from collections.abc import Iterable

from kalda.common.types import TopicPartition
from kalda.pipelines.cutover.clusters import Side, recorded_syncs
from kalda.pipelines.cutover.options import CutoverError
from kalda.pipelines.mirror.mirror import MirrorOptions
from kalda.pipelines.mirror.progress import read_origin


def check_copies(source: Side, target: Side, options: MirrorOptions, topics: Iterable[str]) -> None:
    """Refuse topics of the target that have records of others, or more partitions.

    Raises:
        CutoverError: there is one.
    """
    described = target.admin.describe_topics(list(topics), outcomes=True).results
    originals = source.admin.describe_topics(list(topics), outcomes=True).results
    there = [
        TopicPartition(str(name), each.partition)
        for name, topic in described.items()
        for each in topic.partitions
    ]
    for name, topic in described.items():
        count = len(originals[name].partitions) if name in originals else len(topic.partitions)
        if len(topic.partitions) > count:
            raise CutoverError(
                f"{name} has {len(topic.partitions)} partitions in {options.names.target} and {count} in "
                f"{options.names.source}, so keys would change partitions; delete it in the target"
            )
    begins, ends = target.begins(there), target.ends(there)
    committed = target.admin.list_consumer_group_offsets([options.group])[options.group]
    known = recorded_syncs(options.target, options.name, {})
    for each in there:
        answer = committed.get(each)
        is_copy = each in known or (answer is not None and read_origin(answer.metadata) is not None)
        if ends[each] > begins[each] and not is_copy:
            raise CutoverError(
                f"{each} of {options.names.target} has records that {options.name} did not copy; delete "
                "the topic there, or leave it out of the topics of the flow"
            )
