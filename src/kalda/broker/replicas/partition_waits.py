"""Delays an operation until each of its partitions is settled.

The subclasses of `LedPartitionWait` define what settles a partition: for a produce the replication of its
records, for a DeleteRecords the log starts of the replicas. When a partition is checked is the same for all.
A wait keeps the first code with which it settles and is not checked again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Protocol

from kalda.broker.replicas.partition import Partition
from kalda.common.errors import ErrorCode
from kalda.common.overriding import override
from kalda.common.purgatory import DelayedOperation


class PartitionWait(Protocol):
    """One partition of a delayed operation."""

    @property
    def partition(self) -> Partition:
        """The partition whose events it waits for."""
        ...

    def check(self) -> bool:
        """Settle the partition if it can be; return whether it is settled."""
        ...


class LedPartitionWait(ABC):
    """A wait that settles with an error if this broker's leadership ends after the wait began."""

    __slots__ = ("code", "leading_since", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition: Final = partition
        self.leading_since: Final = partition.leading_since
        self.code = ErrorCode.REQUEST_TIMED_OUT
        """The error code of the response, unless the partition settles in time."""

    def check(self) -> bool:
        """Settle the partition if it can be; return whether it is settled."""
        partition = self.partition
        if partition.is_offline:
            self.code = ErrorCode.KAFKA_STORAGE_ERROR
        elif not partition.is_leader or partition.leading_since != self.leading_since:
            self.code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            code = self.outcome()
            if code is None:
                return False
            self.code = code
        return True

    @abstractmethod
    def outcome(self) -> ErrorCode | None:
        """Return the code of a partition that this broker leads; None while it has to wait."""


class DelayedByPartitions(DelayedOperation):
    """One delayed operation; it calls `respond` once, when all partitions are settled or it expires."""

    __slots__ = ("_respond", "_unsettled")

    def __init__(self, timeout_ms: int, waits: Sequence[PartitionWait], respond: Callable[[], None]) -> None:
        super().__init__(timeout_ms)
        self._respond: Final = respond
        # A request may name a partition twice.
        self._unsettled: Final[dict[Hashable, list[PartitionWait]]] = {}
        for wait in waits:
            self._unsettled.setdefault(wait.partition, []).append(wait)

    @property
    def keys(self) -> list[Hashable]:
        """The keys that it watches in the purgatory."""
        return list(self._unsettled)

    @override
    def try_complete(self) -> bool:
        for partition in tuple(self._unsettled):
            self._check(partition)
        return not self._unsettled and self.force_complete()

    def on_event(self, key: Hashable, /) -> bool:
        """Check one partition and complete if it was the last; return whether this call did."""
        self._check(key)
        return not self._unsettled and self.force_complete()

    def _check(self, partition: Hashable) -> None:
        waits = self._unsettled.get(partition)
        if waits is None:
            return
        remaining = [wait for wait in waits if not wait.check()]
        if remaining:
            self._unsettled[partition] = remaining
        else:
            del self._unsettled[partition]

    @override
    def on_complete(self) -> None:
        self._respond()
