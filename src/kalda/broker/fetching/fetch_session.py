"""Keeps incremental fetch sessions (KIP-227): which partitions a client fetches from request to request.

A full request (epoch 0) names every partition and may open a session. The incremental requests after it name
only the partitions that changed, and their responses contain only partitions with changes. The cache holds at
most ``max.incremental.fetch.session.cache.slots`` sessions and evicts by Kafka's rules. Reading the log and
the wire format are elsewhere.

A session's epoch moves when a request is *accepted*. A duplicate or reordered request then has another epoch
and is refused, and the client falls back to a full request.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kalda.common import invariants
from kalda.common.errors import ErrorCode
from kalda.protocol.fast.fetch import (
    FetchAnswer,
    FetchEntry,
    FetchPartitionFields,
    FetchRequestFields,
    PartitionFetchResult,
    PartitionName,
    TopicAnswers,
)
from kalda.protocol.fetch_session import (
    EPOCH_MAX,
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
    TOPIC_IDS_FROM,
    next_epoch,
)
from kalda.runtime.clock import Clock

EVICTION_MS: Final = 120_000
"""A session that is unused for this long may be evicted for any other; one of this age, for a larger one."""


class FetchContext(Protocol):
    """Decides which partitions one request reads and its response contains, given its session."""

    @property
    def entries(self) -> Sequence[FetchEntry]:
        """The partitions to read, in the order in which they use up the size limits."""
        ...

    def answer(self, results: Sequence[FetchAnswer]) -> tuple[int, int, TopicAnswers]:
        """Return the error code, the session id and the partitions that the response carries."""
        ...


@dataclass(slots=True)
class SessionlessContext:
    """A request that neither uses nor opens a session."""

    entries: Sequence[FetchEntry]

    def answer(self, results: Sequence[FetchAnswer]) -> tuple[int, int, TopicAnswers]:
        """Return everything that was read."""
        return 0, INVALID_SESSION_ID, group_by_topic(results)


@dataclass(slots=True)
class SessionErrorContext:
    """A request whose session does not exist or is at another epoch: it reads nothing."""

    error_code: ErrorCode
    entries: Sequence[FetchEntry] = ()

    def answer(self, results: Sequence[FetchAnswer]) -> tuple[int, int, TopicAnswers]:
        """Return only the error."""
        return int(self.error_code), INVALID_SESSION_ID, []


@dataclass(slots=True)
class FullContext:
    """A request that names every partition and opens a session if it can."""

    _cache: "FetchSessionCache"
    entries: Sequence[FetchEntry]
    _uses_topic_ids: bool
    _privileged: bool

    def answer(self, results: Sequence[FetchAnswer]) -> tuple[int, int, TopicAnswers]:
        """Return everything, and the id of a new session if the cache has room for one."""
        session_id = self._cache.maybe_create(
            self._privileged, self._uses_topic_ids, len(results), lambda: self._cached_partitions(results)
        )
        return 0, session_id, group_by_topic(results)

    def _cached_partitions(self, results: Sequence[FetchAnswer]) -> "PartitionsCached":
        fields_by_partition = {(key, fields.partition): fields for key, fields in self.entries}
        partitions: PartitionsCached = {}
        for key, result in results:
            name = (key, result.partition)
            cached = partitions[name] = CachedPartition(fields_by_partition[name])
            cached.update(result)
        return partitions


class IncrementalContext:
    """A request in a session: it reads all partitions of the session and returns those with changes.

    For a follower, `kalda.broker.fetching.follower_watch` selects fewer partitions to read.
    """

    __slots__ = ("_epoch", "session")

    def __init__(self, session: "FetchSession") -> None:
        self.session: Final = session
        self._epoch = session.epoch

    @property
    def entries(self) -> Sequence[FetchEntry]:
        """All partitions of the session."""
        return [(name[0], cached.fields) for name, cached in self.session.partitions.items()]

    def answer(self, results: Sequence[FetchAnswer]) -> tuple[int, int, TopicAnswers]:
        """Return the partitions with records, an error, or changed bounds."""
        session = self.session
        if session.epoch != self._epoch:
            # Another request of the same session was accepted while this one waited.
            return int(ErrorCode.INVALID_FETCH_SESSION_EPOCH), session.id, []
        partitions = session.partitions
        changed: list[FetchAnswer] = []
        for answer in results:
            key, result = answer
            name = (key, result.partition)
            cached = partitions.get(name)
            if cached is None or not cached.update(result):
                continue
            changed.append(answer)
            if result.records is not None and result.records.size:
                # Move it to the end: a partition with much data must not starve the others of the next
                # response.
                del partitions[name]
                partitions[name] = cached
        return 0, session.id, group_by_topic(changed)


@dataclass(slots=True)
class CachedPartition:
    """One partition of a session: what the client requests, and the bounds it was last sent."""

    fields: FetchPartitionFields
    high_watermark: int = -1
    log_start_offset: int = -1

    def update(self, result: PartitionFetchResult) -> bool:
        """Note an answer; return whether the response must contain it."""
        must_respond = result.records is not None and result.records.size > 0
        if result.high_watermark != self.high_watermark:
            self.high_watermark = result.high_watermark
            must_respond = True
        if result.log_start_offset != self.log_start_offset:
            self.log_start_offset = result.log_start_offset
            must_respond = True
        if result.error_code != 0 or result.diverging_epoch is not None:
            # Forget the bounds, so that the first answer after the error is sent in any case. A follower that
            # is sent a diverging epoch truncates, and does not look at the bounds either.
            self.high_watermark = -1
            must_respond = True
        return must_respond or result.preferred_read_replica != -1


PartitionsCached = dict[PartitionName, CachedPartition]


class SessionWatch(Protocol):
    """Watches the partitions of a session."""

    def close(self) -> None:
        """Stop watching."""
        ...


@dataclass(slots=True, eq=False)
class FetchSession:
    """One client's partitions, in the order in which they use up the size limits."""

    id: int
    privileged: bool
    uses_topic_ids: bool
    partitions: PartitionsCached
    created_ms: int
    last_used_ms: int
    epoch: int = INITIAL_EPOCH + 1
    watch: SessionWatch | None = None
    """Set for a follower; closed with the session."""
    readable_by: object = None
    """The decisions of an authorizer that let a client read every topic of the session; None if it has to be
    asked about each."""

    def close(self) -> None:
        """Close the watch, as the session is dropped."""
        if self.watch is not None:
            self.watch.close()
            self.watch = None

    def update(self, fields: FetchRequestFields) -> None:
        """Add, change and remove partitions according to an incremental request."""
        partitions = self.partitions
        for key, requested in fields.topics:
            for partition in requested:
                name = (key, partition.partition)
                cached = partitions.get(name)
                if cached is None:
                    partitions[name] = CachedPartition(partition)
                    self.readable_by = None
                else:
                    cached.fields = partition
        for key, indexes in fields.forgotten:
            for index in indexes:
                partitions.pop((key, index), None)

    def check_invariants(self) -> None:
        """Assert the epoch, and that partitions are under their own indexes."""
        assert INITIAL_EPOCH < self.epoch <= EPOCH_MAX, f"session {self.id} at {self.epoch}"
        for (_, index), cached in self.partitions.items():
            assert index == cached.fields.partition, f"session {self.id}: {cached.fields} at {index}"


class FetchSessionCache:
    """The sessions of one broker, at most `slots_max`.

    `random_id` returns a number from 1 to 2^31 - 1. Ids are random so that, after a restart of the broker, a
    client's old id does not match another client's session.
    """

    def __init__(self, slots_max: int, clock: Clock, random_id: Callable[[], int]) -> None:
        self._slots_max = slots_max
        self._clock = clock
        self._random_id = random_id
        # Ordered by last use, the least recent first: `touch` moves a session to the end.
        self._sessions: dict[int, FetchSession] = {}
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions_cached(self) -> int:
        """The number of partitions of all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def context(self, version: int, fields: FetchRequestFields) -> FetchContext:
        """Find or close the session that a request names; return how the request is served."""
        epoch = fields.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if fields.session_id != INVALID_SESSION_ID:
                self._drop(fields.session_id)
            entries = entries_of(fields)
            if epoch == FINAL_EPOCH:
                return SessionlessContext(entries)
            return FullContext(self, entries, version >= TOPIC_IDS_FROM, fields.replica_id >= 0)
        session = self._sessions.get(fields.session_id)
        if session is None:
            return SessionErrorContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return SessionErrorContext(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= TOPIC_IDS_FROM):
            return SessionErrorContext(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if fields.topics or fields.forgotten:
            session.update(fields)
            if not session.partitions:
                self._drop(session.id)
                return SessionlessContext(entries_of(fields))
        self._touch(session)
        session.epoch = next_epoch(epoch)
        if invariants.enabled:
            self._check_last_used(session)
        return IncrementalContext(session)

    def maybe_create(
        self,
        privileged: bool,
        uses_topic_ids: bool,
        size: int,
        create_partitions: Callable[[], PartitionsCached],
    ) -> int:
        """Open a session and return its id; `INVALID_SESSION_ID` if the cache is full and evicts nothing."""
        now_ms = self._now_ms()
        if len(self._sessions) >= self._slots_max and not self._try_evict(privileged, size, now_ms):
            return INVALID_SESSION_ID
        session_id = self._random_id()
        while session_id in self._sessions or session_id == INVALID_SESSION_ID:
            session_id = self._random_id()
        self._sessions[session_id] = FetchSession(
            session_id, privileged, uses_topic_ids, create_partitions(), now_ms, now_ms
        )
        if invariants.enabled:
            self.check_invariants()
        return session_id

    def _touch(self, session: FetchSession) -> None:
        session.last_used_ms = self._now_ms()
        del self._sessions[session.id]
        self._sessions[session.id] = session

    def _now_ms(self) -> int:
        # Not the wall clock: if it jumped, every session would be evicted, or none for a long time.
        return round(self._clock.monotonic() * 1000)

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _try_evict(self, privileged: bool, size: int, now_ms: int) -> bool:
        """Evict a stale session, or else the least valuable one if the new session is worth more.

        Followers are privileged, and a session with more partitions is worth more. For `EVICTION_MS` after it
        was opened, no client can evict a session, and a follower only a client's.
        """
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms <= EVICTION_MS:
            candidates = [
                session
                for session in self._sessions.values()
                if now_ms - session.created_ms > EVICTION_MS or (privileged and not session.privileged)
            ]
            if not candidates:
                return False
            oldest = min(candidates, key=_worth)
            if (privileged, size, 0) < _worth(oldest):
                return False
        self._drop(oldest.id)
        self.evictions += 1
        return True

    def check_invariants(self) -> None:
        """Assert the bound, the ids, the epochs and the order by last use of all sessions."""
        sessions = self._sessions
        assert len(sessions) <= max(self._slots_max, 0), f"{len(sessions)} sessions, {self._slots_max} slots"
        last_used_ms = 0
        for session_id, session in sessions.items():
            assert session_id == session.id != INVALID_SESSION_ID, f"session {session.id} at {session_id}"
            assert last_used_ms <= session.last_used_ms, f"session {session.id} is not in order of last use"
            last_used_ms = session.last_used_ms
            session.check_invariants()

    def _check_last_used(self, session: FetchSession) -> None:
        """Assert the invariants of the one session that changed and of its place."""
        newest_first = reversed(self._sessions.values())
        assert session is next(newest_first), f"session {session.id} is not the last that was used"
        before = next(newest_first, None)
        assert before is None or before.last_used_ms <= session.last_used_ms, (
            f"session {session.id} is not in order of last use"
        )
        session.check_invariants()


def entries_of(fields: FetchRequestFields) -> list[FetchEntry]:
    """Return the partitions that a request names; the last mention of a partition counts."""
    entries = [(key, partition) for key, partitions in fields.topics for partition in partitions]
    if len(entries) > 1:
        unique = {(key, partition.partition): (key, partition) for key, partition in entries}
        if len(unique) != len(entries):
            return list(unique.values())
    return entries


def group_by_topic(results: Sequence[FetchAnswer]) -> TopicAnswers:
    """Group adjacent answers of one topic, as the response lists them."""
    topics: TopicAnswers = []
    key_before: bytes | None = None
    for key, result in results:
        if key != key_before:
            topics.append((key, []))
            key_before = key
        topics[-1][1].append(result)
    return topics


def _worth(session: FetchSession) -> tuple[bool, int, int]:
    return session.privileged, len(session.partitions), session.id
