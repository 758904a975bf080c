"""Keeps the committed offsets of one partition of ``__consumer_offsets`` in memory.

Three levels of plain dictionaries (group, topic, partition) end in one tuple per offset, so that tens of
thousands of groups load in a second. The offsets of an open transaction are kept apart, by producer, until
its marker is replayed. What is not here: permission to commit, and the records. What must not break: the
offsets change through `put`, `remove` and `end_transaction` only, which replaying calls.
"""

from collections.abc import Iterator, Mapping
from sys import intern
from typing import Final, TypeAlias

from kalda.coordinator.group.offset_records import OffsetAndMetadata

GroupOffsets: TypeAlias = dict[str, dict[int, OffsetAndMetadata]]
"""The offsets of one group, by topic and partition."""

_NOTHING: Final[Mapping[str, Mapping[int, OffsetAndMetadata]]] = {}


class OffsetStore:
    """Committed offsets, and the pending offsets of open transactions."""

    __slots__ = ("_committed", "_open_transactions", "_pending", "advanced", "count")

    def __init__(self) -> None:
        self._committed: dict[str, GroupOffsets] = {}
        self._pending: dict[int, dict[str, GroupOffsets]] = {}
        """By producer id; a producer has one transaction at a time."""
        self._open_transactions: dict[str, set[int]] = {}
        """By group, the producers that have pending offsets of the group: the reverse of `_pending`."""
        self.count = 0
        """The number of committed offsets."""
        self.advanced: dict[str, set[tuple[str, int]]] = {}
        """By group, the topics and partitions whose last commit is a step forward by a client that was no
        member, of groups that had members. It is not in the log: a new coordinator begins without."""

    # Reading.

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, OffsetAndMetadata]]:
        """Return the committed offsets of a group, by topic and partition."""
        return self._committed.get(group_id, _NOTHING)

    def get(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        """Return the committed offset of a partition, None if there is none."""
        return self.of_group(group_id).get(topic, {}).get(partition)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction has a pending offset for this partition."""
        return any(
            partition in self._pending[producer][group_id].get(topic, ())
            for producer in self._open_transactions.get(group_id, ())
        )

    def has_pending(self, group_id: str) -> bool:
        """Return whether an open transaction has pending offsets of the group."""
        return group_id in self._open_transactions

    def pending_of_group(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Iterate over topic and partition of the pending offsets of a group; repeats are possible."""
        for producer in self._open_transactions.get(group_id, ()):
            for topic, partitions in self._pending[producer][group_id].items():
                for partition in partitions:
                    yield topic, partition

    def has_any(self, group_id: str) -> bool:
        """Return whether the group has committed or pending offsets."""
        return group_id in self._committed or group_id in self._open_transactions

    def groups(self) -> Iterator[str]:
        """Iterate over the groups that have committed offsets."""
        return iter(self._committed)

    # Changing, by replay.

    def put(self, group_id: str, topic: str, partition: int, committed: OffsetAndMetadata) -> None:
        """Apply a commit outside transactions."""
        if _put(self._committed, group_id, topic, partition, committed):
            self.count += 1

    def put_pending(
        self, producer_id: int, group_id: str, topic: str, partition: int, committed: OffsetAndMetadata
    ) -> None:
        """Apply a commit that takes effect when the producer's transaction is committed."""
        _put(self._pending.setdefault(producer_id, {}), group_id, topic, partition, committed)
        self._open_transactions.setdefault(group_id, set()).add(producer_id)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Apply a tombstone, which removes the committed offset and pending offsets of the partition."""
        if _remove(self._committed, group_id, topic, partition):
            self.count -= 1
        self.forget_advance(group_id, topic, partition)
        for producer in tuple(self._open_transactions.get(group_id, ())):
            pending = self._pending[producer]
            _remove(pending, group_id, topic, partition)
            if group_id not in pending:
                self._close_transaction(group_id, producer)
            if not pending:
                del self._pending[producer]

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply a marker: the producer's pending offsets become committed, or are dropped."""
        for group_id, topics in self._pending.pop(producer_id, {}).items():
            self._close_transaction(group_id, producer_id)
            if not committed:
                continue
            for topic, partitions in topics.items():
                for partition, offset in partitions.items():
                    present = self.get(group_id, topic, partition)
                    # A commit outside the transaction may lie between the pending offset and the marker.
                    if present is None or present.record_offset < offset.record_offset:
                        self.put(group_id, topic, partition, offset)

    # Changing, by operations.

    def note_advance(self, group_id: str, topic: str, partition: int) -> bool:
        """Note a step forward by a client that is no member; return whether the last commit was none."""
        partitions = self.advanced.setdefault(group_id, set())
        is_first = (topic, partition) not in partitions
        partitions.add((topic, partition))
        return is_first

    def forget_advance(self, group_id: str, topic: str, partition: int) -> None:
        """Note that the last commit of a partition is no step forward any more."""
        partitions = self.advanced.get(group_id)
        if partitions is not None:
            partitions.discard((topic, partition))
            if not partitions:
                del self.advanced[group_id]

    # Invariants.

    def check_pending(self) -> None:
        """Assert that both maps of pending offsets agree."""
        pairs = {(producer, group) for producer, groups in self._pending.items() for group in groups}
        reverse = {
            (producer, group) for group, open_ in self._open_transactions.items() for producer in open_
        }
        assert pairs == reverse, f"pending are {pairs}, by producer and group, open transactions {reverse}"
        assert all(self._pending.values()), f"a producer has no pending offsets: {self._pending}"
        assert all(self._open_transactions.values()), f"a group has no producer: {self._open_transactions}"

    def check_invariants(self) -> None:
        """Assert that the pending offsets are consistent, and that the count is right."""
        self.check_pending()
        count = sum(len(each) for topics in self._committed.values() for each in topics.values())
        assert count == self.count, f"{count} offsets are committed, {self.count} were counted"

    def _close_transaction(self, group_id: str, producer_id: int) -> None:
        producers = self._open_transactions.get(group_id)
        if producers is not None:
            producers.discard(producer_id)
            if not producers:
                del self._open_transactions[group_id]


def _put(
    groups: dict[str, GroupOffsets], group_id: str, topic: str, partition: int, committed: OffsetAndMetadata
) -> bool:
    """Store an offset; return whether the partition had none."""
    topics = groups.get(group_id)
    if topics is None:
        topics = groups[group_id] = {}
    partitions = topics.get(topic)
    if partitions is None:
        # Thousands of groups name the same few topics.
        partitions = topics[intern(topic)] = {}
    is_new = partition not in partitions
    partitions[partition] = committed
    return is_new


def _remove(groups: dict[str, GroupOffsets], group_id: str, topic: str, partition: int) -> bool:
    """Remove an offset and the dictionaries that become empty; return whether it was there."""
    topics = groups.get(group_id)
    partitions = None if topics is None else topics.get(topic)
    if topics is None or partitions is None or partitions.pop(partition, None) is None:
        return False
    if not partitions:
        del topics[topic]
        if not topics:
            del groups[group_id]
    return True
