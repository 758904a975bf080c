"""Delays a fetch that finds fewer bytes than ``fetch.min.bytes``, for up to ``fetch.max.wait.ms``.

It completes when enough bytes are there, when a partition can no longer be read here as the fetch asks, or
when it expires. It then reads what there is and responds. `WaitingFetch` has the rule for the end of the
wait; `DelayedFetch` waits for all partitions of its request, and
`kalda.broker.fetching.follower_watch.DelayedFollowerFetch` for those of a follower's session.

An event of one partition checks every fetch that waits for that partition, so a check must stay cheap however
many partitions the fetch has. With the usual `min_bytes` of 1 it compares one offset. With more it reads what
that one partition has to offer and adds it to what is known of the others.

Consumers watch the partition (events of its high watermark) and followers its `log_end_key` (appends), so
that neither is checked after events that only concern the other.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Final

from kalda.broker.replicas.partition import NO_EPOCH, Partition
from kalda.broker.replicas.replica_manager import FetchParams, ReplicaManager
from kalda.common.purgatory import DelayedOperation
from kalda.protocol.fast.fetch import FetchAnswer, FetchEntry
from kalda.storage.unified_log import FetchIsolation


class FetchWait:
    """One partition that a waiting fetch reads."""

    __slots__ = ("entries", "leader_epoch", "offset", "partition", "size")

    def __init__(self, partition: Partition, entry: FetchEntry, size: int = 0) -> None:
        fields = entry[1]
        epoch = fields.current_leader_epoch
        self.partition: Final = partition
        self.leader_epoch: Final = partition.leader_epoch if epoch == NO_EPOCH else epoch
        self.offset = fields.fetch_offset
        self.entries: tuple[FetchEntry, ...] = (entry,)
        self.size = size
        """Bytes that were there at the last check; kept up to date only where one byte is not enough."""


class WaitingFetch(DelayedOperation):
    """One waiting fetch; `respond` is called once with the records read, unless the fetch is cancelled."""

    __slots__ = ("_is_cancelled", "_params", "_replicas", "_respond", "_size")

    def __init__(
        self,
        replicas: ReplicaManager,
        params: FetchParams,
        respond: Callable[[list[FetchAnswer], int], None],
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._replicas: Final = replicas
        self._params: Final = params
        self._respond: Final = respond
        self._is_cancelled = False
        self._size = 0
        """The sum of the sizes of all waits."""

    def cancel(self) -> None:
        """Stop waiting without a response: the connection is closed."""
        self._is_cancelled = True
        self.force_complete()

    def entries(self) -> Sequence[FetchEntry]:
        """Return the partitions that the response covers."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Read and respond."""
        if not self._is_cancelled:
            self._respond(*self._read())

    def _read(self) -> tuple[list[FetchAnswer], int]:
        answers, size, _ = self._replicas.read(self._params, self.entries(), note_follower=False)
        return answers, size

    def _is_over(self, wait: FetchWait) -> bool:
        """Return whether this partition, together with the known bytes of the others, ends the wait."""
        partition, offset, params = wait.partition, wait.offset, self._params
        if (
            partition.leader_epoch != wait.leader_epoch
            or (params.leader_only and not partition.is_leader)
            or partition.is_gone
        ):
            return True
        log = partition.log
        # Truncated below the offset, or deleted above it: the client must get the error now.
        if log.log_end_offset < offset or log.log_start_offset > offset:
            return True
        if self._end_offset(partition) <= offset:
            return False
        if params.is_follower and self._replicas.is_throttled(params, partition):
            return False
        if params.min_bytes <= 1:
            return True
        _, size, urgent = self._replicas.read(params, wait.entries, note_follower=False)
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


class DelayedFetch(WaitingFetch):
    """A fetch that waits for every partition that it names, and reads all of them in the end."""

    __slots__ = ("_entries", "_waits")

    def __init__(
        self,
        replicas: ReplicaManager,
        params: FetchParams,
        entries: Sequence[FetchEntry],
        respond: Callable[[list[FetchAnswer], int], None],
    ) -> None:
        super().__init__(replicas, params, respond)
        self._entries: Final = entries
        self._waits: Final[dict[Hashable, FetchWait]] = {}
        waits_for_end = params.isolation is FetchIsolation.LOG_END
        for entry in entries:
            partition = replicas.find_by_key(params, entry[0], entry[1].partition)
            if partition is None:
                continue
            key: Hashable = partition.log_end_key if waits_for_end and partition.followers else partition
            known = self._waits.get(key)
            if known is None:
                self._waits[key] = FetchWait(partition, entry)
            else:
                known.entries += (entry,)
                known.offset = min(known.offset, entry[1].fetch_offset)

    @property
    def keys(self) -> list[Hashable]:
        """The keys that it watches in the purgatory."""
        return list(self._waits)

    def entries(self) -> Sequence[FetchEntry]:
        """Return every partition of the request."""
        return self._entries

    def try_complete(self) -> bool:
        """Complete if any partition ends the wait."""
        return any(map(self._is_over, self._waits.values())) and self.force_complete()

    def on_event(self, key: Hashable, /) -> bool:
        """Complete if the partition of `key` ends the wait."""
        return self._is_over(self._waits[key]) and self.force_complete()
