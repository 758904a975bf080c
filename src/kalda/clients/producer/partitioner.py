"""Chooses partitions for records: the port for custom partitioners, round robin, and the built-in stickiness.

Records with a key and no custom partitioner go where `murmur2.partition_for_key` says. This module is for the
others. `BuiltInPartitioner` stays with a partition until about `batch.size` bytes went there (KIP-480), and
prefers partitions whose queues are short (KIP-794).

The accumulator's lock guards `BuiltInPartitioner`. Its choice depends on bytes only, never on how many
records a batch holds; otherwise slow brokers would get more records, not fewer.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, Protocol

from kalda.common.public import public

PartitionChoice = Callable[[str, bytes | None, int, Sequence[int]], int]
"""A partitioner that is a function of topic, serialised key, partition count and available partitions."""


@public
class Partitioner(Protocol):
    """A custom partitioner: returns the partition of each record that names none."""

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        """Return a partition from 0 to ``partition_count - 1``.

        `key` and `value` are serialised. `available` holds the partitions that have a leader now, in order;
        it may be empty.
        """
        ...


@public
class RoundRobinPartitioner:
    """Sends the records of each topic to its partitions in turn, also those with a key.

    Partitions without a leader are left out as long as another has one.
    """

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        """Return the partition after the last one."""
        number = self._next.get(topic, 0)
        self._next[topic] = number + 1
        return available[number % len(available)] if available else number % partition_count


class FunctionPartitioner:
    """Makes a partitioner of a function ``(topic, key, partition_count, available) -> partition``."""

    def __init__(self, choose: PartitionChoice) -> None:
        self._choose: Final = choose

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        """Return the function's result."""
        return self._choose(topic, key, partition_count, available)


class BuiltInPartitioner:
    """Chooses the sticky partition of one topic for records without a key.

    Args:
        sticky_bytes: After how many bytes the next partition is chosen; `batch.size`, at least 1.
        random_below: Returns a random number from 0 to its argument - 1.
    """

    __slots__ = ("_cumulative", "_loaded", "_random_below", "_sticky_bytes", "partition", "produced_bytes")

    def __init__(self, sticky_bytes: int, random_below: Callable[[int], int]) -> None:
        self._sticky_bytes: Final = max(1, sticky_bytes)
        self._random_below: Final = random_below
        self.partition: int | None = None
        """The sticky partition; None before the first record."""
        self.produced_bytes = 0
        """Bytes that went to `partition` since it was chosen."""
        # Partitions with the running sum of their weights, a shorter queue weighing more; empty where all
        # queues are alike.
        self._loaded: Sequence[int] = ()
        self._cumulative: Sequence[int] = ()

    def choose(self, partition_count: int, available: Sequence[int]) -> int:
        """Choose the next sticky partition: by load where it is known, else at random."""
        if self._cumulative and self._loaded[-1] < partition_count:
            drawn = self._random_below(self._cumulative[-1])
            chosen = self._loaded[bisect_right(self._cumulative, drawn)]
        elif available:
            chosen = available[self._random_below(len(available))]
        else:
            chosen = self._random_below(partition_count)
        self.partition = chosen
        self.produced_bytes = 0
        return chosen

    def is_switch_due(self, *, is_queue_full: bool) -> bool:
        """Return whether the next record should get another partition.

        Leaving an incomplete batch behind would send small batches, so before twice the bytes the partition
        is left only when all its batches are full.
        """
        produced = self.produced_bytes
        if produced < self._sticky_bytes:
            return False
        return is_queue_full or produced >= 2 * self._sticky_bytes

    def update_load(
        self, partitions: Sequence[int], queue_sizes: Sequence[int], partition_count: int
    ) -> None:
        """Take the queue lengths of the available partitions, in order of partition.

        A partition weighs ``longest queue + 1 - its queue``. Queue lengths [0, 3, 1] of partitions 0, 1, 2
        give the weights [4, 1, 3], so partition 0 is chosen with a probability of 4/8.
        """
        is_even = len(partitions) == partition_count and len(set(queue_sizes)) <= 1
        if len(partitions) < 1 or partition_count < 2 or is_even:
            self._loaded = self._cumulative = ()
            return
        longest = max(queue_sizes)
        self._loaded = tuple(partitions)
        self._cumulative = tuple(accumulate(longest + 1 - size for size in queue_sizes))


def as_partitioner(choice: Partitioner | PartitionChoice) -> Partitioner:
    """Return the partitioner of the option `partitioner`, which may be a function."""
    if hasattr(choice, "partition"):
        return choice
    return FunctionPartitioner(choice)
