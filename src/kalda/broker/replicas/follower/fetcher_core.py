"""Decides the next request of one fetcher to a leader, and applies responses to the local logs.

This is Kafka's ``AbstractFetcherThread`` without its thread: it has no socket, clock or task. The driver
(`replica_fetcher`) sends what `request` returns, and passes responses and the time. `FetcherCore` appends to
logs and truncates them through `Partition.log`.

    follow -> FETCHING -> (out of range) RESOLVING -> FETCHING
                       -> (error) DELAYED -> FETCHING
                       -> (quota) THROTTLED -> FETCHING
                       -> (disk, fenced) FAILED -> FETCHING

A log changes only during a tenure (`FetchState`), in the leader epoch of the request, and only by batches
that continue it.
"""

import logging
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from kalda.broker.replicas.follower.fetch_state import FetchState, FetchStatus
from kalda.broker.replicas.follower.follower_fetch_session import FollowerFetchSession
from kalda.broker.replicas.follower.truncation import (
    LeaderOffsets,
    Restart,
    offset_to_truncate_to,
    resolve_out_of_range,
)
from kalda.broker.replicas.replication_quota import ReplicationQuota
from kalda.common import invariants
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.fast.fetch_response import FetchedPartition, FetchResponseFields
from kalda.records.batch import read_header
from kalda.storage.errors import LOG_ERRORS, LogStorageError, UnexpectedAppendOffsetError

if TYPE_CHECKING:
    from kalda.broker.replicas.partition import Partition

logger: Final = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS: Final = 0.02
"""The first pause after an error; it doubles up to ``replica.fetch.backoff.ms``. Just after an election the
leader may not have its new role yet, and Kafka's pause of a second would delay every acks=all produce."""
URGENT_FAILURES_MAX: Final = 4
"""Consecutive errors after which a retry stops being urgent: about 0.3 s, in which elections settle."""
DISK_BACKOFF_FACTOR: Final = 10
"""How much longer the back-off of disk errors may be: fetching what cannot be stored is costly."""
THROTTLE_SECONDS: Final = 0.1
"""How often to check whether throttled partitions may continue."""
SETBACKS_MAX: Final = 10
"""Cut logs and refused records in one tenure before each further one costs ``replica.fetch.backoff.ms``. Each
epoch that differs takes a round; a leader that sends records and takes them back would go on forever."""
EARLY_ANSWERS_MAX: Final = 20
"""Consecutive answers before half of the wait that bring nothing, before the next request is put off. A few
come when many partitions change their leaders. A leader that gives no others would never be left alone."""
EARLY_ANSWER_PAUSE_SECONDS: Final = 0.1
REPORTS_MAX: Final = 10
REPORT_SECONDS: Final = 10.0
"""At most `REPORTS_MAX` log lines about errors in `REPORT_SECONDS`: thousands of partitions may fail."""

_RESTART_SESSION: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_EXPECTED_ERRORS: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors while the leader does not have its new role yet; they are not logged."""
_NEVER: Final = float("inf")


class FetcherCore:
    """The partitions that one fetcher follows from one leader."""

    def __init__(
        self, leader_id: int, session: FollowerFetchSession, quota: ReplicationQuota, backoff_seconds: float
    ) -> None:
        self.leader_id: Final = leader_id
        self.states: Final[dict[TopicPartition, FetchState]] = {}
        self.session: Final = session
        self.bytes_in = 0
        """Bytes of records that were appended from this leader."""
        self._quota: Final = quota
        self._backoff_seconds: Final = backoff_seconds
        self._resolving: Final[dict[FetchState, bool]] = {}
        self._throttled: Final[dict[FetchState, None]] = {}
        # (when, sequence, state); an entry whose state changed meanwhile is skipped when it is due.
        self._retries: Final[list[tuple[float, int, FetchState]]] = []
        self._retry_sequence = 0
        self._advanced: list[Partition] = []
        self._session_errors = 0
        self._requested_at = 0.0
        self._is_useful = False
        """Whether the last answer brought records, a high watermark or a log start."""
        self._early_answers = 0
        """Consecutive answers that came early and brought nothing."""
        self._paused_until = 0.0
        self._reports = 0
        self._reports_until = 0.0

    # Tenures.

    def follow(self, partition: "Partition") -> bool:
        """Begin a tenure, unless there is one for this leader epoch; return whether it began."""
        current = self.states.get(partition.topic_partition)
        if current is not None:
            if current.partition is partition and current.leader_epoch == partition.leader_epoch:
                return False
            self.unfollow(partition.topic_partition)
        state = self.states[partition.topic_partition] = FetchState(partition, self.session.is_by_id)
        self._admit(state)
        return True

    def unfollow(self, topic_partition: TopicPartition) -> None:
        """End a tenure: the fetcher does not touch the log any more."""
        state = self.states.pop(topic_partition, None)
        if state is None:
            return
        state.is_followed = False
        self.session.remove(state)
        self._resolving.pop(state, None)
        self._throttled.pop(state, None)

    # Requests.

    def request(self, version: int, broker_epoch: int, now: float) -> bytes | None:
        """Return the body of the next fetch; None while there is nothing to fetch, or a pause is due."""
        if invariants.enabled:
            self.check_invariants()
        if now < self._paused_until:
            return None
        retries = self._retries
        while retries and retries[0][0] <= now:
            self._retry(heappop(retries)[2])
        if self._throttled or self._quota.is_limited:
            self._apply_quota()
        session = self.session
        if not len(session):
            # Nothing to fetch. The next full request closes the session that the leader still has.
            session.restart()
            return None
        self._requested_at = now
        return session.request(version, broker_epoch)

    def next_due(self, now: float) -> float | None:
        """Return when the next retry, quota check or request after a pause is due; None without one."""
        if now < self._paused_until:
            return self._paused_until
        due = self._retries[0][0] if self._retries else None
        if self._throttled:
            return now + THROTTLE_SECONDS if due is None else min(due, now + THROTTLE_SECONDS)
        return due

    def next_urgent(self) -> float | None:
        """Return when a retry is due that should not wait for the response to the current request."""
        if not self._retries:
            return None
        due, _, state = self._retries[0]
        return due if state.failures <= URGENT_FAILURES_MAX else None

    @property
    def is_served(self) -> bool:
        """Whether the last answer brought something, or came when it was due."""
        return not self._early_answers

    @property
    def resolving(self) -> list[FetchState]:
        """The partitions that need the leader's bounds."""
        return list(self._resolving)

    def connection_lost(self) -> None:
        """Drop the current request; the next one names every partition."""
        self.session.restart()

    # Responses.

    def on_answer(self, answer: FetchResponseFields, now: float) -> "Sequence[Partition]":
        """Apply the response to the last request; return the partitions whose high watermark moves.

        Raises:
            ConnectionError: the leader refuses the whole request, and an immediate retry would not help.
        """
        self._is_useful = False
        try:
            return self._take(answer, now)
        finally:
            self._note_pace(now)

    def _take(self, answer: FetchResponseFields, now: float) -> "Sequence[Partition]":
        if answer.error_code:
            self._on_session_error(answer.error_code)
            return ()
        self._session_errors = 0
        # First, because partitions that are removed below must be removed from the session that this opens.
        self.session.accepted(answer.session_id)
        advanced = self._advanced = []
        find = self.session.find
        for fetched in answer.partitions:
            state = find(fetched.topic, fetched.partition)
            # Not followed here, or the tenure began after the request was sent.
            if state is None or not state.is_sent:
                continue
            if fetched.error_code:
                self._on_error(state, fetched.error_code, now)
                continue
            try:
                if fetched.diverging_epoch is not None and fetched.diverging_epoch[0] >= 0:
                    self._truncate(state, *fetched.diverging_epoch, now)
                else:
                    self._apply(state, fetched, now)
            except LogStorageError as error:
                self._fail(state, str(error), now, is_disk=True)
            except LOG_ERRORS as error:
                self._refuse(state, fetched, error, now)
            except Exception:
                # A defect of one partition must not stop the others. Its replica falls out of sync, which is
                # safe.
                logger.exception("%s: stopped following leader %d", state.topic_partition, self.leader_id)
                self._fail(state, "a defect, see the traceback above", now, is_disk=False)
        return advanced

    def on_bounds(self, state: FetchState, leader: LeaderOffsets, now: float) -> None:
        """Truncate or restart a log whose end is out of the leader's range."""
        if not state.is_followed or state.status is not FetchStatus.RESOLVING:
            return
        log = state.partition.log
        action = resolve_out_of_range(log, leader)
        before = (log.log_end_offset, log.leader_epochs.latest_epoch)
        try:
            if isinstance(action, Restart):
                self._report_truncation(state, action.offset, "the leader's log begins after it", now)
                log.truncate_fully_and_start_at(action.offset)
            else:
                if action.offset < log.log_end_offset:
                    self._report_truncation(state, action.offset, "the leader's log ends there", now)
                log.truncate_to(action.offset)
        except LogStorageError as error:
            self._fail(state, str(error), now, is_disk=True)
            return
        is_changed = before != (log.log_end_offset, log.leader_epochs.latest_epoch)
        if is_changed or state.failures == 0 or not self._resolving[state]:
            state.failures += not is_changed
            if is_changed and self._is_set_back(state, now):
                return
            del self._resolving[state]
            state.refresh()
            self._fetch(state)
        else:
            self._delay(state, now)

    def on_bounds_error(self, state: FetchState, code: int, now: float) -> None:
        """Handle an error instead of the leader's bounds."""
        if state.is_followed and state.status is FetchStatus.RESOLVING:
            self._on_error(state, code, now)

    # One partition's answer.

    def _apply(self, state: FetchState, fetched: FetchedPartition, now: float) -> None:
        log = state.partition.log
        records = fetched.records
        if records is not None:
            assert state.fetch_offset == log.log_end_offset, f"{state} asked elsewhere than at {log}"
            if log.log_end_offset == log.log_start_offset:
                self._align_empty_log(state, records)
            info = log.append_as_follower(records, state.leader_epoch)
            if not info.size:
                raise UnexpectedAppendOffsetError("not one whole batch is among them")
            if info.first_offset > state.fetch_offset and not log.config.is_compacted:
                gap = f"offsets {state.fetch_offset} to {info.first_offset - 1}"
                self._report(
                    state, f"leader {self.leader_id} has lost {gap}; they are missing here as well", now
                )
            state.fetch_offset = info.last_offset + 1
            state.last_fetched_epoch = log.leader_epochs.latest_epoch
            self.session.change(state)
            self.bytes_in += info.size
            self._is_useful = True
            if self._quota.is_limited and self._quota.is_throttled(state.topic_partition):
                self._quota.record(info.size)
        if state.failures:
            state.failures = 0
        high_watermark = fetched.high_watermark
        state.lag = high_watermark - state.fetch_offset if high_watermark > state.fetch_offset else 0
        if high_watermark > log.high_watermark and log.advance_high_watermark(high_watermark):
            self._advanced.append(state.partition)
            self._is_useful = True
        if fetched.log_start_offset > log.log_start_offset:
            log.delete_records_before(min(fetched.log_start_offset, log.high_watermark))
        if log.log_start_offset != state.log_start_offset:
            state.log_start_offset = log.log_start_offset
            self._is_useful = True
            self.session.change(state)

    def _align_empty_log(self, state: FetchState, records: memoryview) -> None:
        """Start an empty log at the first batch, if that batch contains the requested offset.

        The leader's log start may lie inside a batch (DeleteRecords), and batches are never split.
        """
        header = read_header(records)
        if header.base_offset < state.fetch_offset <= header.last_offset:
            state.partition.log.truncate_fully_and_start_at(max(header.base_offset, 0))

    def _truncate(self, state: FetchState, epoch: int, end_offset: int, now: float) -> None:
        """Truncate the log where the leader's diverges, and fetch from there."""
        log = state.partition.log
        if end_offset < 0:
            self._delay(state, now)
            return
        offset = offset_to_truncate_to(log, epoch, end_offset)
        before = (log.log_end_offset, log.leader_epochs.latest_epoch)
        if offset < before[0]:
            self._report_truncation(state, offset, f"the leader's epoch {epoch} ends at {end_offset}", now)
        log.truncate_to(offset)
        if before == (log.log_end_offset, log.leader_epochs.latest_epoch):
            # There is nothing to truncate, so an immediate retry would repeat this forever.
            self._report(
                state,
                f"the leader's log diverges at {end_offset}, epoch {epoch}, but there is nothing to cut",
                now,
            )
            self._delay(state, now)
            return
        if not self._is_set_back(state, now):
            state.refresh()
            self.session.change(state)

    def _on_error(self, state: FetchState, error_code: int, now: float) -> None:
        code = ErrorCode.of(error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and state.status is FetchStatus.FETCHING:
            self._resolve(state, is_refused=True)
        elif code is ErrorCode.FENCED_LEADER_EPOCH:
            # The leader has a newer epoch. The controller sends it to this broker as well after an election.
            logger.debug(
                "%s: epoch %d is fenced by leader %d",
                state.topic_partition,
                state.leader_epoch,
                self.leader_id,
            )
            self._leave(state, FetchStatus.FAILED)
            state.retry_at = _NEVER
        else:
            if code not in _EXPECTED_ERRORS:
                self._report(state, f"leader {self.leader_id} answers {code.name}", now)
            self._delay(state, now)

    def _refuse(self, state: FetchState, fetched: FetchedPartition, error: Exception, now: float) -> None:
        """Drop records that are damaged or do not continue the log."""
        size = 0 if fetched.records is None else len(fetched.records)
        self._report(
            state, f"{size} bytes from leader {self.leader_id} for {state.fetch_offset} refused: {error}", now
        )
        state.refresh()
        if not self._is_set_back(state, now):
            self._delay(state, now)

    def _on_session_error(self, error_code: int) -> None:
        code = ErrorCode.of(error_code)
        self.session.refused(error_code)
        self._session_errors += 1
        if code in _RESTART_SESSION and self._session_errors == 1:
            return
        raise ConnectionError(f"leader {self.leader_id} answers a fetch with {code.name}")

    def _note_pace(self, now: float) -> None:
        """Put off the next request if the leader keeps on answering early and bringing nothing."""
        is_early = now - self._requested_at < self.session.max_wait_seconds / 2
        self._early_answers = self._early_answers + 1 if is_early and not self._is_useful else 0
        if self._early_answers > EARLY_ANSWERS_MAX:
            self._paused_until = now + EARLY_ANSWER_PAUSE_SECONDS

    # Moving between states.

    def _admit(self, state: FetchState) -> None:
        """Fetch a partition from the next request on, or get the leader's bounds first."""
        state.refresh()
        log = state.partition.log
        if state.last_fetched_epoch < 0 and log.log_end_offset > log.log_start_offset:
            # The records have no epoch to compare, so only the leader's bounds are left.
            self._resolve(state, is_refused=False)
        else:
            self._fetch(state)

    def _fetch(self, state: FetchState) -> None:
        state.status = FetchStatus.FETCHING
        self.session.add(state)

    def _resolve(self, state: FetchState, *, is_refused: bool) -> None:
        self._leave(state, FetchStatus.RESOLVING)
        self._resolving[state] = is_refused

    def _delay(self, state: FetchState, now: float) -> None:
        self._schedule(state, FetchStatus.DELAYED, now, self._backoff_seconds)

    def _fail(self, state: FetchState, reason: str, now: float, *, is_disk: bool) -> None:
        self._report(state, f"following leader {self.leader_id} failed: {reason}", now)
        if is_disk:
            self._schedule(state, FetchStatus.FAILED, now, self._backoff_seconds * DISK_BACKOFF_FACTOR)
        else:
            self._leave(state, FetchStatus.FAILED)
            state.retry_at = _NEVER

    def _is_set_back(self, state: FetchState, now: float) -> bool:
        """Count a cut log or refused records; return whether the partition waits now, as there were many."""
        state.setbacks += 1
        if state.setbacks <= SETBACKS_MAX:
            return False
        self._schedule_at(state, FetchStatus.DELAYED, now + self._backoff_seconds)
        return True

    def _schedule(self, state: FetchState, status: FetchStatus, now: float, longest: float) -> None:
        pause = min(FIRST_BACKOFF_SECONDS * 2 ** min(state.failures, 30), longest)
        self._schedule_at(state, status, now + pause)

    def _schedule_at(self, state: FetchState, status: FetchStatus, when: float) -> None:
        self._leave(state, status)
        state.failures += 1
        state.retry_at = when
        self._retry_sequence += 1
        heappush(self._retries, (state.retry_at, self._retry_sequence, state))

    def _leave(self, state: FetchState, status: FetchStatus) -> None:
        self.session.remove(state)
        self._resolving.pop(state, None)
        self._throttled.pop(state, None)
        state.status = status

    def _retry(self, state: FetchState) -> None:
        if state.is_followed and state.status in (FetchStatus.DELAYED, FetchStatus.FAILED):
            self._admit(state)

    def _apply_quota(self) -> None:
        """Exclude throttled partitions from the next request, or include them again (KIP-73)."""
        quota = self._quota
        if not quota.is_exceeded():
            for state in list(self._throttled):
                del self._throttled[state]
                self._admit(state)
            return
        for state in self.session.members():
            if not state.is_in_sync and quota.is_throttled(state.topic_partition):
                self._leave(state, FetchStatus.THROTTLED)
                self._throttled[state] = None

    def check_invariants(self) -> None:
        """Assert that each followed partition is where its status says, and nowhere else."""
        fetching: set[FetchState] = set()
        resolving: set[FetchState] = set()
        throttled: set[FetchState] = set()
        delayed: list[FetchState] = []
        for name, state in self.states.items():
            assert name == state.topic_partition, f"{state} is followed as {name}"
            assert state.is_followed, f"{state} has ended"
            assert state.failures >= 0, f"{state} has {state.failures} failures"
            status = state.status
            if status is FetchStatus.FETCHING:
                fetching.add(state)
                end = state.partition.log.log_end_offset
                assert state.fetch_offset == end, f"{state} does not continue a log that ends at {end}"
            elif status is FetchStatus.DELAYED:
                delayed.append(state)
            elif status is FetchStatus.RESOLVING:
                resolving.add(state)
            elif status is FetchStatus.THROTTLED:
                throttled.add(state)
        members = set(self.session.members())
        assert len(members) == len(self.session), f"{len(members)} members, {len(self.session)} counted"
        assert fetching == members, f"{fetching} are fetching, the session has {members}"
        assert resolving == set(self._resolving), f"{resolving} are resolving, not {self._resolving}"
        assert throttled == set(self._throttled), f"{throttled} are throttled, not {self._throttled}"
        if delayed:
            scheduled = {(when, state) for when, _, state in self._retries}
            for state in delayed:
                assert (state.retry_at, state) in scheduled, f"{state} is never retried"

    # Reports.

    def _report_truncation(self, state: FetchState, offset: int, reason: str, now: float) -> None:
        high_watermark = state.partition.log.high_watermark
        if offset < high_watermark:
            self._report(
                state,
                f"cut from {state.fetch_offset} to {offset}, below the high watermark "
                f"{high_watermark}: {reason}; records that were committed are lost if the election was "
                "unclean",
                now,
            )

    def _report(self, state: FetchState, text: str, now: float) -> None:
        if now >= self._reports_until:
            self._reports_until = now + REPORT_SECONDS
            self._reports = 0
        self._reports += 1
        if self._reports < REPORTS_MAX:
            logger.warning("%s: %s", state.topic_partition, text)
        elif self._reports == REPORTS_MAX:
            logger.warning("%s: %s; more such lines are suppressed for a while", state.topic_partition, text)
