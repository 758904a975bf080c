"""Serves a follower's fetch session at the cost of what changed, instead of the number of its partitions.

A follower of hundreds of partitions fetches thousands of times a second while one of them is written to.
Reading all of them for each request made an acks=all produce take 11 ms beside 2,000 idle partitions. So a
`FollowerWatch` watches the session's partitions in the purgatory, between requests too, and a request reads
only the partitions that it names and those with events. From time to time a request reads all of them, as
Kafka does each time: this keeps idle followers in sync, and bounds the effect of an event that was missed.

A partition that has something for the follower is either named by the follower's next request or in `dirty`.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from kalda.broker.fetching.delayed_fetch import FetchWait, WaitingFetch
from kalda.broker.fetching.fetch_session import FetchSession
from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.replica_manager import FetchParams, ReplicaManager
from kalda.common import invariants
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.protocol.fast.fetch import (
    FetchAnswer,
    FetchEntry,
    FetchRequestFields,
    PartitionFetchResult,
    PartitionName,
)

READ_ALL_SECONDS: Final = 0.25
"""The least time between two requests that read all partitions."""

READ_ALL_SECONDS_EACH: Final = 0.001
"""More time for each partition. A partition takes about 10 us, so that these reads use 1 % of a core."""

READ_ALL_LAG_PART: Final = 0.25
"""The time is at most this part of ``replica.lag.time.max.ms``. What the leader knows of an idle follower is
older by ``replica.fetch.wait.max.ms`` at most."""


class FollowerWatch:
    """Collects the events of one session's partitions; a `Watcher` that never completes."""

    __slots__ = (
        "_names",
        "_partitions",
        "_purgatory",
        "_replicas",
        "dirty",
        "read_all_at",
        "session",
        "waiting",
    )

    def __init__(
        self, session: FetchSession, purgatory: DelayedOperationPurgatory, replicas: ReplicaManager
    ) -> None:
        self.session: Final = session
        self._purgatory: Final = purgatory
        self._replicas: Final = replicas
        self._partitions: Final[dict[PartitionName, Partition]] = {}
        """The hosted partitions as they were when they were last read."""
        self._names: Final[dict[Hashable, PartitionName]] = {}
        """The name by each key that is watched: two keys for each of `_partitions`."""
        self.dirty: Final[dict[PartitionName, None]] = {}
        """Partitions that the next request reads even if it does not name them."""
        self.waiting: DelayedFollowerFetch | None = None
        self.read_all_at = 0.0
        """When, in monotonic seconds, the next request reads all partitions."""

    def entries(self, params: FetchParams, fields: FetchRequestFields, now: float) -> list[FetchEntry]:
        """Return the partitions that a request reads; the session has taken over its fields already."""
        for key, indexes in fields.forgotten:
            for index in indexes:
                self._forget((key, index))
        partitions = self.session.partitions
        names: Iterable[PartitionName]
        if now >= self.read_all_at:
            self.read_all_at = now + self._read_all_interval()
            names = partitions
        else:
            # Longest waiting first: earlier responses may have had no room for it.
            names = dict(self.dirty)
            names.update(((key, each.partition), None) for key, parts in fields.topics for each in parts)
        entries = [(name[0], partitions[name].fields) for name in names if name in partitions]
        self.dirty.clear()
        for key, requested in entries:
            self._watch(params, (key, requested.partition))
        if invariants.enabled:
            self.check_invariants()
        return entries

    def _read_all_interval(self) -> float:
        wanted = max(READ_ALL_SECONDS, len(self.session.partitions) * READ_ALL_SECONDS_EACH)
        return min(wanted, self._replicas.lag_seconds * READ_ALL_LAG_PART)

    def wait(self, name: PartitionName, size: int = 0) -> FetchWait | None:
        """Return a fetch's wait for a partition; None if the session no longer has the partition."""
        cached, partition = self.session.partitions.get(name), self._partitions.get(name)
        if cached is None or partition is None:
            return None
        return FetchWait(partition, (name[0], cached.fields), size)

    def has_new_bounds(self, name: PartitionName, result: PartitionFetchResult) -> bool:
        """Return whether an answer has other bounds than the follower was last sent."""
        cached = self.session.partitions.get(name)
        return cached is not None and (
            cached.high_watermark != result.high_watermark
            or cached.log_start_offset != result.log_start_offset
        )

    def settle(self, answers: Sequence[FetchAnswer]) -> None:
        """Mark partitions as dirty whose errors or remaining records a response did not settle."""
        for key, result in answers:
            name = (key, result.partition)
            cached = self.session.partitions.get(name)
            if cached is None or (result.records is not None and result.records.size):
                # After records the follower names the partition in its next request.
                continue
            partition = self._partitions.get(name)
            if (
                result.error_code != 0
                or result.diverging_epoch is not None
                or partition is None
                or partition.log.log_end_offset > cached.fields.fetch_offset
            ):
                self.dirty[name] = None

    def on_event(self, key: Hashable, /) -> bool:
        """Mark the partition as dirty, and complete the waiting fetch if the event ends the wait."""
        name = self._names.get(key)
        if name is None:
            return False
        self.dirty[name] = None
        return self.waiting is not None and self.waiting.on_partition_event(name)

    def close(self) -> None:
        """Stop watching: the session is closed."""
        self._purgatory.unwatch(self, list(self._names))
        self._names.clear()
        self._partitions.clear()
        self.dirty.clear()

    def check_invariants(self) -> None:
        """Assert that the two keys of each partition are watched, and of the session's partitions only."""
        keys = {
            key: name
            for name, partition in self._partitions.items()
            for key in (partition, partition.log_end_key)
        }
        assert keys == self._names, f"watched {self._names} for {self._partitions}"
        strangers = self._partitions.keys() - self.session.partitions.keys()
        assert not strangers, f"{strangers} are watched for session {self.session.id} without them"

    def _watch(self, params: FetchParams, name: PartitionName) -> None:
        partition = self._replicas.find_by_key(params, *name)
        if self._partitions.get(name) is partition:
            return
        self._forget(name)
        if partition is None:
            return
        keys = (partition, partition.log_end_key)
        self._partitions[name] = partition
        self._names.update(dict.fromkeys(keys, name))
        self._purgatory.watch(self, keys)

    def _forget(self, name: PartitionName) -> None:
        partition = self._partitions.pop(name, None)
        self.dirty.pop(name, None)
        if partition is not None:
            keys: tuple[Hashable, ...] = (partition, partition.log_end_key)
            self._purgatory.unwatch(self, keys)
            for key in keys:
                del self._names[key]


class DelayedFollowerFetch(WaitingFetch):
    """A follower's fetch that found nothing, and waits for an event of any partition of its session.

    It reads the partitions whose bounds had changed when the request came, and those with events since.
    """

    __slots__ = ("_waits", "_watch")

    def __init__(
        self,
        replicas: ReplicaManager,
        watch: FollowerWatch,
        params: FetchParams,
        answers: Sequence[FetchAnswer],
        respond: Callable[[list[FetchAnswer], int], None],
    ) -> None:
        super().__init__(replicas, params, respond)
        self._watch: Final = watch
        self._waits: Final[dict[PartitionName, FetchWait | None]] = {}
        for key, result in answers:
            name = (key, result.partition)
            size = 0 if result.records is None else result.records.size
            if size or watch.has_new_bounds(name, result):
                self._waits[name] = watch.wait(name, size)
                self._size += size
        if watch.waiting is not None:
            # It came over a connection that the follower has lost since.
            watch.waiting.force_complete()
        watch.waiting = self

    def entries(self) -> Sequence[FetchEntry]:
        """Return the partitions with changes, with the fields that the session has for them now."""
        partitions = self._watch.session.partitions
        return [(name[0], partitions[name].fields) for name in self._waits if name in partitions]

    def on_partition_event(self, name: PartitionName) -> bool:
        """Complete if an event of one partition ends the wait; return whether this call did."""
        wait = self._waits.get(name)
        if wait is None:
            wait = self._waits[name] = self._watch.wait(name)
        return wait is not None and self._is_over(wait) and self.force_complete()

    def try_complete(self) -> bool:
        """Complete if an event during the reading of the request ends the wait.

        The request's own offsets may have moved a high watermark, and what waited for that may have appended:
        a coordinator that continues a transaction does.
        """
        return any(map(self.on_partition_event, tuple(self._watch.dirty)))

    def on_complete(self) -> None:
        """Read and respond; after a cancellation the next request reads these partitions instead."""
        watch = self._watch
        if watch.waiting is self:
            watch.waiting = None
        if self._is_cancelled:
            watch.dirty.update(dict.fromkeys(self._waits))
            return
        for name in self._waits:
            watch.dirty.pop(name, None)
        answers, size = self._read()
        watch.settle(answers)
        self._respond(answers, size)
