"""The last recorded value of each znode: a fold of changes. Sans-IO.

`PathMap` keeps one value for each path, and lets those of a deleted topic's partitions go with the topic.
"""

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from kalda.cluster import paths
from kalda.cluster.history.subjects import Kind, subject_of
from kalda.common.types import TopicPartition

V = TypeVar("V")


class PathMap(Generic[V]):
    """Values by the paths of recorded znodes."""

    def __init__(self) -> None:
        self._values: Final[dict[str, V]] = {}
        self._partitions: Final[dict[str, dict[int, V]]] = {}
        """The values of partitions' states, by topic and number: they are most of all."""

    def __len__(self) -> int:
        return len(self._values) + sum(map(len, self._partitions.values()))

    def get(self, path: str) -> V | None:
        """Return the value of a path, or None."""
        if path.endswith("/state"):
            subject = subject_of(path)
            if subject is not None and subject.topic is not None and subject.partition is not None:
                return self._partitions.get(subject.topic, {}).get(subject.partition)
        return self._values.get(path)

    def state(self, partition: TopicPartition) -> V | None:
        """Return the value of a partition's state, or None."""
        return self._partitions.get(partition.topic, {}).get(partition.partition)

    def set(self, path: str, value: V) -> None:
        """Set the value of a path."""
        subject = subject_of(path)
        assert subject is not None, f"{path} is not recorded"
        if subject.kind is Kind.PARTITION and subject.topic is not None and subject.partition is not None:
            self._partitions.setdefault(subject.topic, {})[subject.partition] = value
        else:
            self._values[path] = value

    def delete(self, path: str) -> None:
        """Remove a path, and with a topic the states of its partitions and the mark of its deletion."""
        subject = subject_of(path)
        if subject is None:
            return
        if subject.kind is Kind.PARTITION and subject.topic is not None and subject.partition is not None:
            self._partitions.get(subject.topic, {}).pop(subject.partition, None)
            return
        self._values.pop(path, None)
        if subject.kind is Kind.TOPIC:
            self._partitions.pop(subject.name, None)
            self._values.pop(paths.delete_topic(subject.name), None)

    def clear(self) -> None:
        """Remove everything."""
        self._values.clear()
        self._partitions.clear()

    def items(self) -> Iterator[tuple[str, V]]:
        """Yield paths and values: those of partitions last."""
        yield from self._values.items()
        for topic, states in self._partitions.items():
            for number, value in states.items():
                yield paths.partition_state(TopicPartition(topic, number)), value

    def plain_paths(self) -> list[str]:
        """Return the paths that are not states of partitions."""
        return list(self._values)

    def partition_counts(self) -> dict[str, int]:
        """Return the number of states of each topic that has some."""
        return {topic: len(states) for topic, states in self._partitions.items()}
