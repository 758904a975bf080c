"""Holds the share partitions that this broker leads, and the share sessions of its clients.

A share partition is there while a session names it: its state is read when the first one does, so that it is
current even if the offsets of the group were reset meanwhile. Kafka's counterpart is
``SharePartitionManager``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.share.led_share_partition import DeadLetterWriter, LedSharePartition, PartitionStates
from kalda.broker.share.share_sessions import PartitionName, SessionKey, ShareSession, ShareSessions
from kalda.broker.share.start_offsets import choose_start_offset
from kalda.broker.share.stored_share_settings import StoredShareSettings
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.coordinator.runtime.timers import Timers
from kalda.coordinator.share.acknowledgement import Acknowledgement
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.net.connection import Connection
from kalda.protocol.fetch_session import FINAL_EPOCH, INITIAL_EPOCH
from kalda.runtime.background import BackgroundExecutor
from kalda.runtime.clock import Clock

SESSION_PARTITIONS_MAX: Final = 20_000
"""Partitions that one session may name: each costs some microseconds of each of its fetches, and memory for
as long as the client stays connected."""


class SharePartitions:
    """The share partitions of one broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        states: PartitionStates,
        letters: DeadLetterWriter,
        settings: StoredShareSettings,
        load_settings: Callable[[str], Pending[None]],
        clock: Clock,
        timers: Timers,
        purgatory: DelayedOperationPurgatory,
        background: BackgroundExecutor,
        sessions_max: Callable[[], int],
    ) -> None:
        """`purgatory` has the fetches that wait for records; share partitions are keys in it.

        `load_settings` puts the settings of a group in force as they are stored. `background` reads records
        whose times or keys count.
        """
        self._replicas: Final = replicas
        self._states: Final = states
        self._letters: Final = letters
        self.settings: Final = settings
        self._load_settings: Final = load_settings
        self._clock: Final = clock
        self._timers: Final = timers
        self._purgatory: Final = purgatory
        self._background: Final = background
        self.sessions: Final = ShareSessions(sessions_max)
        self._led: Final[dict[SharePartitionKey, LedSharePartition]] = {}
        self._users: Final[Counter[SharePartitionKey]] = Counter()
        """How many sessions name each share partition."""

    def monotonic_ms(self) -> int:
        """Return a clock that never goes back, in milliseconds."""
        return int(self._clock.monotonic() * 1000)

    def time_ms(self) -> int:
        """Return the clock that records have their timestamps from."""
        return self._clock.time_ms()

    def present(self, key: SharePartitionKey) -> LedSharePartition | None:
        """Return a share partition, None if no session names it."""
        return self._led.get(key)

    def __iter__(self) -> Iterator[LedSharePartition]:
        return iter(tuple(self._led.values()))

    # Sessions.

    def session(
        self,
        connection: Connection,
        key: SessionKey,
        epoch: int,
        added: Iterable[PartitionName],
        *,
        acknowledges: bool = False,
    ) -> ShareSession:
        """Return the session of a request, with the partitions that the request adds.

        Raises:
            ApiError: SHARE_SESSION_NOT_FOUND; INVALID_SHARE_SESSION_EPOCH, also for a request that
                acknowledges records without a session; SHARE_SESSION_LIMIT_REACHED; INVALID_REQUEST, the
                session would have too many partitions.
        """
        if connection.is_closed:
            # Nothing would end the session.
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        names = dict.fromkeys(added)
        if epoch == INITIAL_EPOCH:
            if acknowledges:
                raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            _check_count(len(names))
            # What the member has acquired in the session before stays with it, as in Apache Kafka: it may
            # acknowledge that in this one. What it does not acknowledge returns when its locks end.
            session, before = self.sessions.open(key, connection.id, names)
            self._use(session, session.partitions)
            if before is not None:
                self._leave(before, before.partitions)
            if connection.on_close is None:
                connection.on_close = partial(self._on_connection_closed, connection.id)
            return session
        session = self.sessions.request(key, epoch)
        if epoch != FINAL_EPOCH:
            new = [each for each in names if each not in session.partitions]
            _check_count(len(session.partitions) + len(new))
            session.partitions.update(dict.fromkeys(new))
            self._use(session, new)
        return session

    def forget(self, session: ShareSession, removed: Iterable[PartitionName]) -> None:
        """Remove partitions from a session, after the acknowledgements of the same request."""
        gone = [each for each in dict.fromkeys(removed) if each in session.partitions]
        for each in gone:
            del session.partitions[each]
            led = self._led.get(SharePartitionKey(session.key.group_id, *each))
            if led is not None and led.has_acquired:
                session.forgotten[each] = None
        self._leave(session, gone)

    def close(self, session: ShareSession, *, is_lost: bool = False) -> Pending[None]:
        """End a session; done when what its member has acquired is available again.

        `is_lost` says that the member did not close it, so that what was sent to it counts as delivered.
        """
        released: Pending[None] = Pending()
        if not self.sessions.close(session):
            released.complete(None)
            return released
        writes: list[Pending[None]] = []
        for topic_id, number in {**session.partitions, **session.forgotten}:
            led = self._led.get(SharePartitionKey(session.key.group_id, topic_id, number))
            if led is not None and led.core is not None and led.is_current:
                core, member_id = led.core, session.key.member_id
                if is_lost:
                    unsent = session.unsent.get((topic_id, number), ())
                    ended = core.abandon(member_id, self.monotonic_ms(), unsent)
                else:
                    ended = core.release(member_id)
                writes.append(led.store(ended))
        left = len(writes)

        def finish(_: Pending[None] | None) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                self._leave(session, session.partitions)
                released.complete(None)

        if not writes:
            finish(None)
        for each in writes:
            each.add_done(finish)
        return released

    def _on_connection_closed(self, connection_id: int) -> None:
        for session in self.sessions.of_connection(connection_id):
            self.close(session, is_lost=True)

    def _use(self, session: ShareSession, partitions: Iterable[PartitionName]) -> None:
        for topic_id, number in partitions:
            self._users[SharePartitionKey(session.key.group_id, topic_id, number)] += 1

    def _leave(self, session: ShareSession, partitions: Iterable[PartitionName]) -> None:
        for topic_id, number in partitions:
            key = SharePartitionKey(session.key.group_id, topic_id, number)
            self._users[key] -= 1
            if self._users[key] <= 0:
                del self._users[key]
                led = self._led.get(key)
                if led is not None:
                    self._end_unused(led)

    def _end_unused(self, led: LedSharePartition) -> None:
        """End a share partition that no session names, once its pending writes are done.

        It goes on while records are acquired: a member that has lost the partition in a rebalance still
        processes them, and others would get them, too.
        """
        if led.error is not None or led.key in self._users:
            return
        if not (led.is_storing or led.has_acquired):
            led.end(ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND))

    # Share partitions.

    def partition(self, topic_id: bytes, index: int) -> Partition:
        """Return a partition that this broker leads.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER.
        """
        partition = self._replicas.find_by_id(topic_id, index)
        if partition is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not partition.is_leader:
            raise partition.not_leader()
        return partition

    def led(self, key: SharePartitionKey, partition: Partition) -> LedSharePartition:
        """Return a share partition; its state is being read if it is new."""
        present = self._led.get(key)
        if present is not None:
            if present.is_current and present.partition is partition:
                return present
            present.end(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        led = LedSharePartition(
            key,
            partition,
            self._states,
            self._letters,
            self._timers,
            self.monotonic_ms,
            self._background,
            limits=partial(self.settings.limits, key.group_id),
            start_offset=partial(self._start_offset, key.group_id),
            on_change=self._wake,
            on_end=self._forget,
        )
        if led.error is None:
            self._led[key] = led
        return led

    def _start_offset(self, group_id: str, partition: Partition) -> Pending[int]:
        """Choose where a share partition begins that its group has not read."""

        def choose(loaded: Pending[None]) -> int:
            if loaded.error is not None:
                raise loaded.error
            return choose_start_offset(self.settings.offset_reset(group_id), self._clock, partition)

        return self._load_settings(group_id).then(choose)

    def acknowledge(
        self, key: SharePartitionKey, member_id: str, acknowledgements: Sequence[Acknowledgement]
    ) -> Pending[None]:
        """Acknowledge records of a member; done when it is stored, fails with ApiError otherwise."""
        try:
            partition = self.partition(key.topic_id.bytes, key.partition)
            led = self._led.get(key)
            if led is None or not led.is_current or led.core is None or led.partition is not partition:
                # Nothing is acquired here: the leader has changed, or the broker was restarted.
                raise ApiError(ErrorCode.INVALID_RECORD_STATE)
            led.refresh(led.core)
            return led.store(led.core.acknowledge(member_id, acknowledgements, self.monotonic_ms()))
        except ApiError as error:
            failed: Pending[None] = Pending()
            failed.fail(error)
            return failed

    def _wake(self, led: LedSharePartition) -> None:
        self._purgatory.check_and_complete(led)
        self._end_unused(led)

    def _forget(self, led: LedSharePartition) -> None:
        if self._led.get(led.key) is led:
            del self._led[led.key]


def _check_count(count: int) -> None:
    if count > SESSION_PARTITIONS_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The share session would have {count} partitions; at most {SESSION_PARTITIONS_MAX} are allowed.",
        )
