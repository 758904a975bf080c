"""A follower's fetch session, served at the cost of what happened instead of what it holds.

A follower of hundreds of partitions asks thousands of times a second while one of them is written to. Reading
all of them each time made an acks=all produce take 11 ms beside 2,000 idle partitions. So the session listens
for what happens to its partitions, between requests too, and reads only those that a request names or to
which something happened. Every `READ_ALL_SECONDS` it reads all of them, as Kafka does with each request: so
the leader hears of idle followers often enough to keep them in sync, and nothing that was missed stays so.

What a maintainer must not break: a partition that has something for the follower is named by its next
request, or is in `dirty`.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from kalda.broker.fetch_session import FetchAnswer, FetchEntry, FetchSession, PartitionName
from kalda.broker.partition import NO_EPOCH, Partition
from kalda.broker.purgatory import DelayedOperation, DelayedOperationPurgatory
from kalda.broker.replica_manager import FetchParams, ReplicaManager
from kalda.protocol.fast.fetch import FetchRequestFields, PartitionFetchResult

READ_ALL_SECONDS: Final = 0.25
"""A follower's word on an idle partition is at most this and ``replica.fetch.wait.max.ms`` old: far less than
``replica.lag.time.max.ms``."""


class FollowerWatch(DelayedOperation):
    """What happened to the partitions of one session; it listens in the purgatory and never completes."""

    __slots__ = (
        "_names",
        "_partitions",
        "_purgatory_watched",
        "_replicas",
        "dirty",
        "read_all_at",
        "waiting",
    )

    def __init__(self, purgatory: DelayedOperationPurgatory, replicas: ReplicaManager) -> None:
        super().__init__(0)
        self._purgatory_watched: Final = purgatory
        self._replicas: Final = replicas
        self._names: Final[dict[Hashable, PartitionName]] = {}
        self._partitions: Final[dict[PartitionName, Partition]] = {}
        self.dirty: Final[dict[PartitionName, None]] = {}
        """Partitions that the next request reads though it may not name them."""
        self.waiting: WaitingFollowerFetch | None = None
        self.read_all_at = 0.0
        """When, in monotonic seconds, all partitions are to be read again."""

    def entries(
        self, session: FetchSession, params: FetchParams, fields: FetchRequestFields, now: float
    ) -> list[FetchEntry]:
        """Return what to read for a request; the session has taken it in already."""
        for key, indexes in fields.forgotten:
            for index in indexes:
                self._forget((key, index))
        partitions = session.partitions
        names: Iterable[PartitionName]
        if now >= self.read_all_at:
            self.read_all_at = now + READ_ALL_SECONDS
            names = partitions
        else:
            # What waits longest comes first: it may be what earlier answers had no room for.
            names = dict(self.dirty)
            names.update(((key, each.partition), None) for key, parts in fields.topics for each in parts)
        entries = [(name[0], partitions[name].fields) for name in names if name in partitions]
        self.dirty.clear()
        for key, requested in entries:
            self._listen(params, (key, requested.partition))
        return entries

    def partition(self, name: PartitionName) -> Partition | None:
        """Return the hosted partition of this name as it was when it was last read."""
        return self._partitions.get(name)

    def settle(self, session: FetchSession, answers: Sequence[FetchAnswer]) -> None:
        """Keep in mind what an answer does not settle: errors, and records that it has no room for."""
        for key, result in answers:
            name = (key, result.partition)
            cached = session.partitions.get(name)
            if cached is None or (result.records is not None and result.records.size):
                # With records the follower names the partition again.
                continue
            partition = self._partitions.get(name)
            if (
                result.error_code != 0
                or result.diverging_epoch is not None
                or partition is None
                or partition.log.log_end_offset > cached.fields.fetch_offset
            ):
                self.dirty[name] = None

    def try_complete(self) -> bool:
        """Nothing ends it but `close`."""
        return False

    def try_complete_for(self, key: Hashable) -> bool:
        """Note that something happened to a partition; the fetch that waits may be over."""
        name = self._names.get(key)
        if name is not None:
            self.dirty[name] = None
            if self.waiting is not None:
                self.waiting.on_event(name)
        return False

    def force_complete(self) -> bool:
        """Have the fetch that waits answered; the listening goes on."""
        if self.waiting is not None:
            self.waiting.force_complete()
        return False

    def close(self) -> None:
        """Listen no more: the session is gone."""
        self._purgatory_watched.unsubscribe(self, list(self._names))
        self._names.clear()
        self._partitions.clear()
        self.dirty.clear()

    def _listen(self, params: FetchParams, name: PartitionName) -> None:
        partition = self._replicas.find_by_key(params, *name)
        if self._partitions.get(name) is partition:
            return
        self._forget(name)
        if partition is None:
            return
        self._partitions[name] = partition
        for key in (partition, partition.log_end_key):
            self._names[key] = name
            self._purgatory_watched.subscribe(self, (key,))

    def _forget(self, name: PartitionName) -> None:
        partition = self._partitions.pop(name, None)
        self.dirty.pop(name, None)
        if partition is not None:
            keys: tuple[Hashable, ...] = (partition, partition.log_end_key)
            self._purgatory_watched.unsubscribe(self, keys)
            for key in keys:
                del self._names[key]


class WaitingFollowerFetch(DelayedOperation):
    """A follower's fetch that found nothing, and waits for what happens to any partition of its session."""

    __slots__ = ("_active", "_is_cancelled", "_params", "_replicas", "_respond", "_session", "_watch")

    def __init__(
        self,
        replicas: ReplicaManager,
        session: FetchSession,
        watch: FollowerWatch,
        params: FetchParams,
        answers: Sequence[FetchAnswer],
        respond: Callable[[list[FetchAnswer], int], None],
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._replicas: Final = replicas
        self._session: Final = session
        self._watch: Final = watch
        self._params: Final = params
        self._respond: Final = respond
        self._is_cancelled = False
        # What to read in the end: where bounds were found that are news, and what something happens to.
        self._active: Final = {
            (key, result.partition): None
            for key, result in answers
            if _has_news(session, (key, result.partition), result)
        }
        if watch.waiting is not None:
            # Of a connection that was lost: its follower is here now.
            watch.waiting.force_complete()
        watch.waiting = self

    def on_event(self, name: PartitionName) -> None:
        """Answer, if what happened to a partition ends the wait."""
        self._active[name] = None
        if self._is_over(name):
            self.force_complete()

    def cancel(self) -> None:
        """Stop waiting without an answer: the peer is gone."""
        self._is_cancelled = True
        self.force_complete()

    def try_complete(self) -> bool:
        """Complete if something happened while the request was read.

        Its own offsets may have moved a high watermark, and whoever waited for that may have appended: a
        coordinator that goes on with a transaction does.
        """
        for name in tuple(self._watch.dirty):
            self._active[name] = None
            if self._is_over(name):
                return self.force_complete()
        return False

    def on_complete(self) -> None:
        """Read and answer."""
        if self._watch.waiting is self:
            self._watch.waiting = None
        if self._is_cancelled:
            self._watch.dirty.update(self._active)
            return
        answers, size, _ = self._replicas.read(self._params, self._entries(), note_follower=False)
        for name in self._active:
            self._watch.dirty.pop(name, None)
        self._respond(answers, size)

    def _entries(self) -> list[FetchEntry]:
        partitions = self._session.partitions
        return [(name[0], partitions[name].fields) for name in self._active if name in partitions]

    def _is_over(self, name: PartitionName) -> bool:
        cached = self._session.partitions.get(name)
        partition = self._watch.partition(name)
        if cached is None:
            return False
        requested = cached.fields
        if (
            partition is None
            or partition.is_gone
            or not partition.is_leader
            or requested.current_leader_epoch not in (NO_EPOCH, partition.leader_epoch)
        ):
            return True
        log, offset = partition.log, requested.fetch_offset
        if log.log_end_offset < offset or log.log_start_offset > offset:
            return True
        if log.log_end_offset == offset or self._replicas.is_throttled(self._params, partition):
            return False
        if self._params.min_bytes <= 1:
            return True
        _, size, urgent = self._replicas.read(self._params, self._entries(), note_follower=False)
        return urgent or size >= self._params.min_bytes


def _has_news(session: FetchSession, name: PartitionName, result: PartitionFetchResult) -> bool:
    cached = session.partitions.get(name)
    return cached is not None and (
        cached.high_watermark != result.high_watermark
        or cached.log_start_offset != result.log_start_offset
        or (result.records is not None and result.records.size > 0)
    )
