"""Divides partitions among the threads of a group; every consumer computes the same from the same znodes.

The functions are pure. Threads are sorted as texts, as in 0.8.2, so that consumers of both
have the same order.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Final, NamedTuple

from kalda.clients.legacy.consumer.consumer_config import BY_BROKER, RANGE, ROUND_ROBIN
from kalda.clients.legacy.consumer.topic_count import ThreadId
from kalda.clients.legacy.producer.partitioner import java_hash
from kalda.common.types import TopicPartition


class AssignmentError(Exception):
    """The strategy cannot divide these subscriptions; the message says why."""


class GroupView(NamedTuple):
    """What ZooKeeper says about a group and its topics."""

    threads: Mapping[str, Sequence[ThreadId]]
    """By topic: the threads of all consumers that read it."""
    partitions: Mapping[str, Sequence[int]]
    """By topic: its partitions; absent while the topic does not exist."""
    preferred_leaders: Mapping[TopicPartition, int]
    """The broker that leads each partition by preference, which is its first replica."""


Assignment = dict[TopicPartition, ThreadId]
Assign = Callable[[GroupView], Assignment]


def by_range(view: GroupView) -> Assignment:
    """Assign consecutive partitions to each thread; the first threads get one more if there is a remainder.

    >>> threads = {"t": [ThreadId("c0", 0), ThreadId("c1", 0)]}
    >>> [str(thread) for thread in by_range(GroupView(threads, {"t": range(5)}, {})).values()]
    ['c0-0', 'c0-0', 'c0-0', 'c1-0', 'c1-0']
    """
    return _by_rows(view, lambda topic: sorted(view.partitions.get(topic, ())))


def by_broker(view: GroupView) -> Assignment:
    """Give each thread a row of partitions sorted by preferred leader, so that it connects to few brokers."""

    def sorted_by_leader(topic: str) -> list[int]:
        def key(number: int) -> tuple[int, int]:
            return view.preferred_leaders.get(TopicPartition(topic, number), -1), number

        return sorted(view.partitions.get(topic, ()), key=key)

    return _by_rows(view, sorted_by_leader)


def by_round_robin(view: GroupView) -> Assignment:
    """Deal the partitions of all topics out to the threads, in an order that mixes the topics.

    Raises:
        AssignmentError: the consumers do not have the same topics with the same numbers of streams.
    """
    rows = {topic: _sorted(threads) for topic, threads in view.threads.items()}
    if not rows:
        return {}
    head_topic, head = next(iter(sorted(rows.items())))
    for topic, threads in rows.items():
        if threads != head:
            raise AssignmentError(
                f"`partition.assignment.strategy`=roundrobin needs the same threads for each topic; "
                f"{head_topic} has {_names(head)}, {topic} has {_names(threads)}"
            )
    partitions = [
        TopicPartition(topic, number) for topic in sorted(rows) for number in view.partitions.get(topic, ())
    ]
    # Kafka sorts by the hash of this text, so that the partitions of a topic are not side by side.
    partitions.sort(key=lambda each: java_hash(f"[{each.topic},{each.partition}]"))
    return dict(zip(partitions, cycle(head), strict=False))


ASSIGNORS: Final[Mapping[str, Assign]] = {
    RANGE: by_range,
    ROUND_ROBIN: by_round_robin,
    BY_BROKER: by_broker,
}


def _by_rows(view: GroupView, sorted_partitions: Callable[[str], list[int]]) -> Assignment:
    assignment: Assignment = {}
    for topic, threads in view.threads.items():
        numbers, row = sorted_partitions(topic), _sorted(threads)
        count, extra = divmod(len(numbers), len(row))
        for index, thread in enumerate(row):
            start = count * index + min(index, extra)
            for number in numbers[start : start + count + (index < extra)]:
                assignment[TopicPartition(topic, number)] = thread
    return assignment


def _sorted(threads: Sequence[ThreadId]) -> list[ThreadId]:
    return sorted(threads, key=str)


def _names(threads: Sequence[ThreadId]) -> str:
    return ", ".join(map(str, threads))
