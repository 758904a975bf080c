"""Follows which records of a group's consumer are acknowledged, and up to where that may be committed.

A commit says that everything before an offset is done. So of a partition with the records 4, 5 and 6 of which
5 and 6 are acknowledged, 4 is committed, and 7 as soon as 4 is acknowledged.
"""

from collections.abc import Iterable
from typing import Final

from kalda.common.types import TopicPartition


class Acks:
    """The records that a consumer handed out, by partition."""

    def __init__(self) -> None:
        self._unacked: Final[dict[TopicPartition, dict[int, None]]] = {}
        """By partition the offsets that are not acknowledged, in the order of the log."""
        self._next: Final[dict[TopicPartition, int]] = {}
        """By partition the offset behind the last record that was handed out."""
        self._committed: Final[dict[TopicPartition, int]] = {}
        """By partition the offset that was committed, or the first one that was handed out."""

    @property
    def unacked(self) -> int:
        """How many records wait for an acknowledgement."""
        return sum(map(len, self._unacked.values()))

    def deliver(self, partition: TopicPartition, offset: int) -> None:
        """Note that a record is handed out. An offset before the last one begins the partition again."""
        if offset < self._next.get(partition, 0):
            self.forget([partition])
        self._unacked.setdefault(partition, {})[offset] = None
        self._committed.setdefault(partition, offset)
        self._next[partition] = offset + 1

    def ack(self, partition: TopicPartition, offset: int) -> bool:
        """Note that a record is done; return False if it is not one that waits."""
        waiting = self._unacked.get(partition)
        if waiting is None or offset not in waiting:
            return False
        del waiting[offset]
        return True

    def to_commit(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Return the offsets that can be committed and have not been, of some partitions or of all."""
        found = {}
        for partition in self._next if partitions is None else partitions:
            if partition in self._next:
                lowest = next(iter(self._unacked.get(partition, ())), self._next[partition])
                if lowest > self._committed[partition]:
                    found[partition] = lowest
        return found

    def committed(self, offsets: dict[TopicPartition, int]) -> None:
        """Note that a commit succeeded."""
        for partition, offset in offsets.items():
            if partition in self._next:
                self._committed[partition] = max(offset, self._committed[partition])

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that are another member's now; what is not acknowledged is delivered there."""
        for partition in partitions:
            for table in (self._unacked, self._next, self._committed):
                table.pop(partition, None)
