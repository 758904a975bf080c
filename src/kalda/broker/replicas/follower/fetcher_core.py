"""The state machine of one fetcher: what to ask a leader next, and what its answers do to the logs here.

Kafka's ``AbstractFetcherThread`` without its thread: no socket, clock or task. The driver (`fetcher`) passes
answers and the time, and sends what `request` returns. Logs are cut and appended to here, through
`Partition.log`.

    follow -> FETCHING -> (out of range) RESOLVING -> FETCHING
                       -> (error) DELAYED -> FETCHING
                       -> (quota) THROTTLED -> FETCHING
                       -> (disk, fenced) FAILED -> FETCHING

What a maintainer must not break: a log is touched only for a tenure that is followed (`FetchState`), at the
leader epoch that it asked with, and only by batches that continue it. A leader is believed in nothing else.
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
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.net.client.client_errors import to_error_code
from kalda.protocol.fast.fetch_response import FetchedPartition, FetchResponseFields
from kalda.records.batch import read_header
from kalda.storage.errors import LOG_ERRORS, LogStorageError, UnexpectedAppendOffsetError

if TYPE_CHECKING:
    from kalda.broker.replicas.partition import Partition

logger: Final = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS: Final = 0.02
"""The first pause after an error; it doubles up to ``replica.fetch.backoff.ms``. Just after an election the
leader may not know of it yet, and a whole second (Kafka's pause) would hold up every acks=all produce."""
URGENT_FAILURES_MAX: Final = 4
"""How many errors in a row leave a partition urgent: about a third of a second, in which elections settle."""
DISK_BACKOFF_FACTOR: Final = 10
"""How much longer than other errors the disk's may be waited out: fetching what cannot be kept is costly."""
THROTTLE_SECONDS: Final = 0.1
"""How often the quota is asked whether throttled partitions may go on."""
REPORTS_MAX: Final = 10
REPORT_SECONDS: Final = 10.0
"""So many lines about errors in so many seconds from one fetcher: thousands of partitions may fail."""

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
"""What a leader answers while it has not heard yet of what this broker has: no news to an operator."""
_NEVER: Final = float("inf")


class FetcherCore:
    """All partitions that one fetcher follows at one leader."""

    def __init__(
        self, leader_id: int, session: FollowerFetchSession, quota: ReplicationQuota, backoff_seconds: float
    ) -> None:
        self.leader_id: Final = leader_id
        self.states: Final[dict[TopicPartition, FetchState]] = {}
        self.session: Final = session
        self.bytes_in = 0
        """Bytes of records appended here for this leader."""
        self._quota: Final = quota
        self._backoff_seconds: Final = backoff_seconds
        self._resolving: Final[dict[FetchState, None]] = {}
        self._throttled: Final[dict[FetchState, None]] = {}
        # (when, sequence, state); a state that moved on is skipped when its time comes.
        self._retries: Final[list[tuple[float, int, FetchState]]] = []
        self._retry_sequence = 0
        self._advanced: list[Partition] = []
        self._session_errors = 0
        self._reports = 0
        self._reports_until = 0.0

    # Whom to follow.

    def follow(self, partition: "Partition") -> bool:
        """Begin a tenure, unless the one under way is for the same leader epoch; return whether it began."""
        current = self.states.get(partition.topic_partition)
        if current is not None:
            if current.partition is partition and current.leader_epoch == partition.leader_epoch:
                return False
            self.unfollow(partition.topic_partition)
        state = self.states[partition.topic_partition] = FetchState(partition)
        self._admit(state)
        return True

    def unfollow(self, topic_partition: TopicPartition) -> None:
        """End a tenure: from now on the log is not touched here."""
        state = self.states.pop(topic_partition, None)
        if state is None:
            return
        state.is_followed = False
        self.session.remove(state)
        self._resolving.pop(state, None)
        self._throttled.pop(state, None)

    # What to ask.

    def request(self, version: int, broker_epoch: int, now: float) -> bytes | None:
        """Return the body of the next fetch; None while there is nothing to fetch."""
        retries = self._retries
        while retries and retries[0][0] <= now:
            self._retry(heappop(retries)[2])
        if self._throttled or self._quota.is_limited:
            self._apply_quota()
        session = self.session
        if not len(session):
            # Nothing to ask for. What the leader keeps of the session goes with the next full request.
            session.restart()
            return None
        return session.request(version, broker_epoch)

    def next_due(self, now: float) -> float | None:
        """Return when there will be something to ask while nothing is asked; None if not by time alone."""
        due = self._retries[0][0] if self._retries else None
        if self._throttled:
            return now + THROTTLE_SECONDS if due is None else min(due, now + THROTTLE_SECONDS)
        return due

    def next_urgent(self) -> float | None:
        """Return when a partition is due that should not wait for the answer to the request under way."""
        if not self._retries:
            return None
        due, _, state = self._retries[0]
        return due if state.failures <= URGENT_FAILURES_MAX else None

    @property
    def resolving(self) -> list[FetchState]:
        """The partitions whose leader must be asked for its bounds."""
        return list(self._resolving)

    def connection_lost(self) -> None:
        """Forget the request under way: the next one names everything."""
        self.session.restart()

    # What the leader says.

    def on_answer(self, answer: FetchResponseFields, now: float) -> "Sequence[Partition]":
        """Apply an answer to the last request; return the partitions whose high watermark moved.

        Raises:
            ConnectionError: the leader refuses the whole request for a reason that only time may mend.
        """
        if answer.error_code:
            self._on_session_error(answer.error_code)
            return ()
        self._session_errors = 0
        # First of all: what is taken out of the session below must be told to the session that this opens.
        self.session.answered(answer.session_id)
        advanced = self._advanced = []
        find = self.session.find
        for fetched in answer.partitions:
            state = find(fetched.topic_id, fetched.partition)
            # Not ours, or of a tenure that began after the request: nothing that was asked for.
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
                # One partition's trouble must not end the others'. Its replica falls out of sync: safe.
                logger.exception(
                    "%s: cannot follow leader %d any more", state.topic_partition, self.leader_id
                )
                self._fail(state, "a defect; see the traceback above", now, is_disk=False)
        return advanced

    def on_bounds(self, state: FetchState, leader: LeaderOffsets, now: float) -> None:
        """Bring a log whose end the leader does not have back into the leader's range."""
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
        if is_changed or state.failures == 0:
            state.failures += not is_changed
            del self._resolving[state]
            state.refresh()
            self._fetch(state)
        else:
            self._delay(state, now)

    def on_bounds_error(self, state: FetchState, code: int, now: float) -> None:
        """Take note that the leader does not tell its bounds."""
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
                    state, f"leader {self.leader_id} has lost {gap}; they are missing here, too", now
                )
            state.fetch_offset = info.last_offset + 1
            state.last_fetched_epoch = log.leader_epochs.latest_epoch
            self.session.change(state)
            self.bytes_in += info.size
            if self._quota.is_limited and self._quota.is_throttled(state.topic_partition):
                self._quota.record(info.size)
        if state.failures:
            state.failures = 0
        high_watermark = fetched.high_watermark
        state.lag = high_watermark - state.fetch_offset if high_watermark > state.fetch_offset else 0
        if high_watermark > log.high_watermark and log.advance_high_watermark(high_watermark):
            self._advanced.append(state.partition)
        if fetched.log_start_offset > log.log_start_offset:
            log.delete_records_before(min(fetched.log_start_offset, log.high_watermark))
        if log.log_start_offset != state.log_start_offset:
            state.log_start_offset = log.log_start_offset
            self.session.change(state)

    def _align_empty_log(self, state: FetchState, records: memoryview) -> None:
        """Let an empty log begin where the first batch does, if that holds the offset asked for.

        The leader's log start may lie inside a batch (DeleteRecords); batches are never cut.
        """
        header = read_header(records)
        if header.base_offset < state.fetch_offset <= header.last_offset:
            state.partition.log.truncate_fully_and_start_at(max(header.base_offset, 0))

    def _truncate(self, state: FetchState, epoch: int, end_offset: int, now: float) -> None:
        """Cut off what the leader does not have, and ask from there."""
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
            # Nothing to cut, and yet the leader says so: asking again at once would go on for ever.
            self._report(state, f"the leader's log parts at {end_offset}, epoch {epoch}: not so here", now)
            self._delay(state, now)
            return
        state.refresh()
        self.session.change(state)

    def _on_error(self, state: FetchState, error_code: int, now: float) -> None:
        code = to_error_code(error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and state.status is FetchStatus.FETCHING:
            self._resolve(state)
        elif code is ErrorCode.FENCED_LEADER_EPOCH:
            # The leader has a newer epoch, of which the controller will tell us too: so it is at an election.
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
        """Append nothing of what a leader sent that does not continue the log, or is damaged."""
        size = 0 if fetched.records is None else len(fetched.records)
        self._report(
            state, f"{size} bytes from leader {self.leader_id} for {state.fetch_offset} refused: {error}", now
        )
        state.refresh()
        self._delay(state, now)

    def _on_session_error(self, error_code: int) -> None:
        code = to_error_code(error_code)
        self.session.restart()
        self._session_errors += 1
        if code in _RESTART_SESSION and self._session_errors == 1:
            return
        raise ConnectionError(f"leader {self.leader_id} answers a fetch with {code.name}")

    # Moving between states.

    def _admit(self, state: FetchState) -> None:
        """Ask for a partition from the next request on."""
        state.refresh()
        log = state.partition.log
        if state.last_fetched_epoch < 0 and log.log_end_offset > log.log_start_offset:
            # There are records, and no epoch to compare them by: only the leader's bounds are left.
            self._resolve(state)
        else:
            self._fetch(state)

    def _fetch(self, state: FetchState) -> None:
        state.status = FetchStatus.FETCHING
        self.session.add(state)

    def _resolve(self, state: FetchState) -> None:
        self._leave(state, FetchStatus.RESOLVING)
        self._resolving[state] = None

    def _delay(self, state: FetchState, now: float) -> None:
        self._schedule(state, FetchStatus.DELAYED, now, self._backoff_seconds)

    def _fail(self, state: FetchState, reason: str, now: float, *, is_disk: bool) -> None:
        self._report(state, f"following leader {self.leader_id} failed: {reason}", now)
        if is_disk:
            self._schedule(state, FetchStatus.FAILED, now, self._backoff_seconds * DISK_BACKOFF_FACTOR)
        else:
            self._leave(state, FetchStatus.FAILED)
            state.retry_at = _NEVER

    def _schedule(self, state: FetchState, status: FetchStatus, now: float, longest: float) -> None:
        self._leave(state, status)
        pause = min(FIRST_BACKOFF_SECONDS * 2 ** min(state.failures, 30), longest)
        state.failures += 1
        state.retry_at = now + pause
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
        """Leave throttled partitions out of the next request, or let them back in (KIP-73)."""
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

    # Telling the operator.

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
            logger.warning("%s: %s; more such lines are left out for a while", state.topic_partition, text)
