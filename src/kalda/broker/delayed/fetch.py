"""A fetch that found fewer bytes than it wants, and waits (``fetch.min.bytes``, ``fetch.max.wait.ms``).

It completes when the bytes are there, when a partition can no longer be read here, or when its time is over;
then it reads whatever there is. An append to a partition asks every fetch that waits for it, so asking is
cheap for the usual `min_bytes` of 1: it compares an offset, and reads only to answer.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kalda.broker.fetch_session import FetchAnswer, FetchEntry
from kalda.broker.partition import Partition
from kalda.broker.purgatory import DelayedOperation
from kalda.broker.replica_manager import FetchParams, ReplicaManager
from kalda.storage.unified_log import FetchIsolation


class DelayedFetch(DelayedOperation):
    """One waiting fetch request; `respond` is called once, with what was read."""

    __slots__ = ("_entries", "_is_cancelled", "_params", "_read", "_replica_manager", "_respond", "_waits")

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
        self._read: tuple[list[FetchAnswer], int] | None = None
        self._is_cancelled = False
        # (partition, the leader epoch it was found in, fetch offset)
        self._waits: Final[list[tuple[Partition, int, int]]] = []
        for key, requested in entries:
            partition = replica_manager.find_by_key(params, key, requested.partition)
            if partition is not None:
                self._waits.append((partition, partition.leader_epoch, requested.fetch_offset))

    @property
    def partitions(self) -> list[Partition]:
        """What it waits for: the keys under which the purgatory watches it."""
        return [partition for partition, _, _ in self._waits]

    def cancel(self) -> None:
        """Stop waiting without an answer: the peer is gone."""
        self._is_cancelled = True
        self.force_complete()

    def try_complete(self) -> bool:
        """Complete if the wait is over; return whether this call did."""
        return self._is_satisfied() and self.force_complete()

    def on_complete(self) -> None:
        """Read, unless the check has read already, and answer."""
        if self._is_cancelled:
            return
        if self._read is None:
            answers, size, _ = self._replica_manager.read(self._params, self._entries, note_follower=False)
            self._read = answers, size
        self._respond(*self._read)

    def on_expiration(self) -> None:
        """Time is over; `on_complete` answers with what there is."""

    def _is_satisfied(self) -> bool:
        leader_only = self._params.leader_only
        has_news = False
        for partition, epoch, offset in self._waits:
            if (leader_only and not partition.is_leader) or partition.leader_epoch != epoch:
                return True
            end = self._end_offset(partition)
            # Truncated below the fetch, or deleted up to above it: the client must learn of it now.
            if (
                end > offset
                or partition.log.log_end_offset < offset
                or partition.log.log_start_offset > offset
            ):
                has_news = True
        if not has_news:
            return False
        if self._params.min_bytes <= 1:
            return True
        answers, size, urgent = self._replica_manager.read(self._params, self._entries, note_follower=False)
        if size < self._params.min_bytes and not urgent:
            return False
        self._read = answers, size
        return True

    def _end_offset(self, partition: Partition) -> int:
        isolation = self._params.isolation
        if isolation is FetchIsolation.HIGH_WATERMARK:
            return partition.log.high_watermark
        if isolation is FetchIsolation.TXN_COMMITTED:
            return partition.log.last_stable_offset
        return partition.log.log_end_offset
