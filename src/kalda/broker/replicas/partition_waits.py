"""An operation that waits until every partition of it is settled, each by a rule of its own.

A produce waits for its records to be replicated, a DeleteRecords for the starts of logs to be raised: what
settles a partition differs, when to ask does not. A wait keeps the first code that it settles with: one that
is settled is not asked again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Final, Protocol

from kalda.broker.replicas.partition import Partition
from kalda.common.errors import ErrorCode
from kalda.common.purgatory import DelayedOperation


class PartitionWait(Protocol):
    """One partition of a waiting operation."""

    @property
    def partition(self) -> Partition:
        """What it waits for."""
        ...

    def check(self) -> bool:
        """Settle the partition if it can be; return whether it is settled."""
        ...


class LedPartitionWait(ABC):
    """Settled with an error when the partition is no longer led here as it was when the wait began."""

    __slots__ = ("code", "leading_since", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition: Final = partition
        self.leading_since: Final = partition.leading_since
        self.code = ErrorCode.REQUEST_TIMED_OUT
        """The answer: what it stays unless the partition gets done in time."""

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
        """Return the answer of a partition that is led here; None while it is not done."""


class DelayedByPartitions(DelayedOperation):
    """One waiting operation; `respond` is called once, when all is settled or time is over."""

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

    def try_complete(self) -> bool:
        """Complete if every partition is settled; return whether this call did."""
        for partition in tuple(self._unsettled):
            self._check(partition)
        return not self._unsettled and self.force_complete()

    def on_event(self, key: Hashable, /) -> bool:
        """Complete if this was the last partition that was not settled."""
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

    def on_complete(self) -> None:
        """Answer."""
        self._respond()

    def on_expiration(self) -> None:
        """Time is over; the codes say which partitions were not done."""
