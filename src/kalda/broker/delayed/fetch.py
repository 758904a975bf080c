"""A fetch that found fewer bytes than it wants, and waits (``fetch.min.bytes``, ``fetch.max.wait.ms``).

It completes when the bytes are there, when a partition can no longer be read here, or when its time is over;
then it reads whatever there is. What happens to one partition asks every fetch that waits for it, so asking
is cheap, however many partitions the fetch has: for the usual `min_bytes` of 1 it compares an offset of that
partition; for more it keeps what each partition has to offer and adds them up anew.

Consumers wait for the partition (its high watermark), followers for its `log_end_key` (appends): neither is
asked about what only concerns the other.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from kalda.broker.fetch_session import FetchAnswer, FetchEntry
from kalda.broker.partition import Partition
from kalda.broker.purgatory import DelayedOperation
from kalda.broker.replica_manager import FetchParams, ReplicaManager
from kalda.storage.unified_log import FetchIsolation


class _Wait:
    """One partition of a waiting fetch, as it was when the waiting began."""

    __slots__ = ("entries", "epoch", "offset", "partition", "size")

    def __init__(self, partition: Partition, entry: FetchEntry) -> None:
        self.partition: Final = partition
        self.epoch: Final = partition.leader_epoch
        self.offset = entry[1].fetch_offset
        self.entries: tuple[FetchEntry, ...] = (entry,)
        self.size = 0
        """Bytes that it had to offer when it was last asked; kept only where one byte is not enough."""


class DelayedFetch(DelayedOperation):
    """One waiting fetch request; `respond` is called once, with what was read."""

    __slots__ = (
        "_entries",
        "_is_cancelled",
        "_params",
        "_replica_manager",
        "_respond",
        "_size",
        "_waits",
    )

    def __init__(
        self,
        replica_manager: ReplicaManager,
        params: FetchParams,
        entries: Sequence[FetchEntry],
        respond: Callable[[list[FetchAnswer], int], None],
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._replica_manager: Final = replica_manager
        self._params: Final = params
        self._entries: Final = entries
        self._respond: Final = respond
        self._is_cancelled = False
        self._size = 0
        self._waits: Final[dict[Hashable, _Wait]] = {}
        waits_for_end = params.isolation is FetchIsolation.LOG_END
        for entry in entries:
            partition = replica_manager.find_by_key(params, entry[0], entry[1].partition)
            if partition is None:
                continue
            key: Hashable = partition.log_end_key if waits_for_end and partition.followers else partition
            known = self._waits.get(key)
            if known is None:
                self._waits[key] = _Wait(partition, entry)
            else:
                known.entries += (entry,)
                known.offset = min(known.offset, entry[1].fetch_offset)

    @property
    def partitions(self) -> list[Hashable]:
        """What it waits for: the keys under which the purgatory watches it."""
        return list(self._waits)

    def cancel(self) -> None:
        """Stop waiting without an answer: the peer is gone."""
        self._is_cancelled = True
        self.force_complete()

    def try_complete(self) -> bool:
        """Complete if the wait is over; return whether this call did."""
        return any(map(self._is_over, self._waits.values())) and self.force_complete()

    def try_complete_for(self, key: Hashable) -> bool:
        """Complete if what happened to one partition ends the wait."""
        return self._is_over(self._waits[key]) and self.force_complete()

    def on_complete(self) -> None:
        """Read and answer."""
        if self._is_cancelled:
            return
        answers, size, _ = self._replica_manager.read(self._params, self._entries, note_follower=False)
        self._respond(answers, size)

    def on_expiration(self) -> None:
        """Time is over; `on_complete` answers with what there is."""

    def _is_over(self, wait: _Wait) -> bool:
        """Return whether this partition, together with what is known of the others, ends the wait."""
        partition, offset, params = wait.partition, wait.offset, self._params
        if partition.leader_epoch != wait.epoch or (params.leader_only and not partition.is_leader):
            return True
        log = partition.log
        # Truncated below the fetch, or deleted up to above it: the client must learn of it now.
        if partition.is_gone or log.log_end_offset < offset or log.log_start_offset > offset:
            return True
        if self._end_offset(partition) <= offset:
            return False
        if params.is_follower and self._replica_manager.is_throttled(params, partition):
            return False
        if params.min_bytes <= 1:
            return True
        _, size, urgent = self._replica_manager.read(params, wait.entries, note_follower=False)
        self._size += size - wait.size
        wait.size = size
        return urgent or self._size >= params.min_bytes

    def _end_offset(self, partition: Partition) -> int:
        isolation = self._params.isolation
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return partition.log.high_watermark
        if isolation is FetchIsolation.TXN_COMMITTED:
            return partition.log.last_stable_offset
        return partition.log.log_end_offset
