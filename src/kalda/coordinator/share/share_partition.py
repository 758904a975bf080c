"""The deliveries of one share partition: what members acquire of its records, and how they acknowledge it.

The leader of the partition runs it for one share group. A fetch acquires whole batches by the offsets in
their headers; records are not decoded, unless their times or the order of their keys count. An
acknowledgement splits ranges. A record that is given up waits for its dead letter, if the group has them,
before it is done. What an acknowledgement changes is a `Transition`: the driver stores it and then confirms
it, or takes it back if it could not be stored. Until then nobody gets the records, and no time-out takes
them.

No clock and no I/O: callers pass the time in milliseconds. Kafka's class is ``SharePartition``.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.share.acknowledgement import Acknowledgement, parts_of
from kalda.coordinator.share.delivery_state import (
    COUNT_MAX,
    DELIVERIES_MAX,
    AcknowledgeType,
    PartitionState,
    RecordState,
    StateRange,
)
from kalda.coordinator.share.fetched_batch import FetchedBatch, pieces
from kalda.coordinator.share.in_flight_records import DeadRange, InFlightRecords
from kalda.coordinator.share.partition_limits import PartitionLimits
from kalda.coordinator.share.record_ranges import NO_MEMBER, Change, RecordRange, Transition
from kalda.protocol.messages.share_acknowledge import GROUPS_DELAY

BATCH_OFFSETS_MAX: Final = 10_000
"""What a fetch acquires of one batch, unless more records may be in flight. A batch can have millions of
records. If a member acknowledged each of them in another way, their state would not fit into a record."""


_AVAILABLE: Final = RecordState.AVAILABLE
_ACQUIRED: Final = RecordState.ACQUIRED
_ACKNOWLEDGED: Final = RecordState.ACKNOWLEDGED
_ARCHIVING: Final = RecordState.ARCHIVING
_ARCHIVED: Final = RecordState.ARCHIVED

_STATE_AFTER: Final = {
    AcknowledgeType.GAP: _ARCHIVED,
    AcknowledgeType.ACCEPT: _ACKNOWLEDGED,
    AcknowledgeType.RELEASE: _AVAILABLE,
    AcknowledgeType.REJECT: _ARCHIVED,
}


class AcquiredRange(NamedTuple):
    """Offsets that a member has acquired, and how often they were delivered, this time included."""

    first: int
    last: int
    deliveries: int


class Progress(NamedTuple):
    """What to store so that transitions hold for the next leader, too."""

    start_offset: int
    complete_count: int
    ranges: tuple[StateRange, ...]


class SharePartition:
    """The deliveries of one partition to one share group."""

    def __init__(self, state: PartitionState, limits: PartitionLimits) -> None:
        """`state` has a start offset: the caller has chosen one where the group had none."""
        self.state_epoch: Final = state.state_epoch
        self._records: Final = InFlightRecords(state, limits)
        self._ranges: Final = self._records.ranges
        self._turns: Final = self._records.turns

    # Looking.

    @property
    def limits(self) -> PartitionLimits:
        """The settings of the group in force."""
        return self._records.limits

    @property
    def start_offset(self) -> int:
        """Every offset below it is done."""
        return self._records.start_offset

    @property
    def end_offset(self) -> int:
        """The first offset that was never delivered."""
        return self._records.end_offset

    @property
    def in_flight_count(self) -> int:
        """How many offsets there are from the start offset to the end offset."""
        return self._records.in_flight_count

    @property
    def acquired_count(self) -> int:
        """How many offsets members have acquired."""
        return sum(each.size for each in self._ranges if each.state is _ACQUIRED)

    @property
    def waiting_count(self) -> int:
        """How many offsets below the end wait for their time, or for the end of a back-off."""
        return sum(each.size for each in self._ranges if each.state is _AVAILABLE and each.deadline_ms)

    @property
    def complete_count(self) -> int:
        """How many offsets from the start offset on are done."""
        return sum(each.size for each in self._ranges if each.state.is_terminal)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the first lock or wait ends, None if there is none."""
        # Only acquired and available ranges have deadlines.
        deadlines = [
            each.deadline_ms for each in self._ranges if each.deadline_ms and each.transition is None
        ]
        if self._records.end_due_ms:
            deadlines.append(self._records.end_due_ms)
        return min(deadlines) if deadlines else None

    def next_fetch_offset(self, now_ms: int = 0) -> int | None:
        """Return the first offset that may be acquired; None if there are too many records in flight."""
        if self._records.available_count:
            for each in self._ranges:
                if self._records.may_acquire(each, now_ms):
                    return each.first
        if self.in_flight_count >= self.limits.in_flight_max or self._records.end_due_ms > now_ms:
            return None
        return self.end_offset

    def first_unknown(self, first: int, last: int) -> int | None:
        """Return the first of some offsets whose time and key are not known; None if there is none."""
        first = max(first, self.start_offset)
        if first < self.end_offset:
            unknown = self._turns.first_unknown(first, last)
            if unknown is not None:
                return unknown
        return max(first, self.end_offset) if last >= self.end_offset else None

    def dead_ranges(self, count_max: int) -> list[DeadRange]:
        """Return the first offsets whose dead letters are to be written, `count_max` at most."""
        found: list[DeadRange] = []
        for each in self._ranges:
            if count_max <= 0:
                break
            if each.state is _ARCHIVING and each.transition is None:
                last = min(each.last, each.first + count_max - 1)
                found.append(DeadRange(each.first, last, each.count, each.is_rejected, each.reason))
                count_max -= last - each.first + 1
        return found

    @property
    def dead_count(self) -> int:
        """How many offsets wait for their dead letters."""
        return sum(each.size for each in self._ranges if each.state is _ARCHIVING)

    def holder(self, offset: int) -> tuple[str, int] | None:
        """Return the member that has acquired a record, and when its lock ends; None if nobody has."""
        if not self.start_offset <= offset < self.end_offset:
            return None
        each = self._ranges[self._ranges.index_of(offset)]
        return (each.member, each.deadline_ms) if each.state is _ACQUIRED else None

    def is_done(self, offset: int) -> bool:
        """Return whether a record will not be delivered again."""
        if not self.start_offset <= offset < self.end_offset:
            return offset < self.start_offset
        state = self._ranges[self._ranges.index_of(offset)].state
        return state.is_terminal or state is _ARCHIVING

    def state_ranges(self) -> tuple[StateRange, ...]:
        """Return the state of every offset in flight; what is acquired is available to a next leader."""
        return tuple(StateRange(each.first, each.last, each.state, each.count) for each in self._ranges)

    def check_invariants(self) -> None:
        """Assert that the ranges cover the offsets from start to end, and that counts are right."""
        self._records.check_invariants()

    # What time, the log and the settings of the group change.

    def end_waits(self, now_ms: int) -> bool:
        """Let records be acquired whose wait is over by now; return whether there are any."""
        return self._records.end_waits(now_ms)

    def move_start(self, log_start_offset: int) -> bool:
        """Give up the records that the log has deleted; return whether there were any."""
        return self._records.move_start(log_start_offset)

    def set_limits(self, limits: PartitionLimits) -> None:
        """Obey other settings of the group from now on."""
        self._records.set_limits(limits)

    # Acquiring.

    def acquire(
        self,
        member_id: str,
        fetch_offset: int,
        batches: Iterable[FetchedBatch],
        now_ms: int,
        *,
        records_max: int,
        batch_size: int = 0,
        is_strict: bool = False,
        is_first: bool = True,
    ) -> list[AcquiredRange]:
        """Acquire records for a member from batches that were read from `fetch_offset` on.

        Whole batches until `records_max` is reached; with `is_strict` no record more (KIP-1206). Of a batch
        with very many records, the next fetch acquires the rest. Batches of new records are joined to ranges
        of up to `batch_size`. Offsets between the batches do not exist in the log any more, so they are
        archived. Suspect records (`PartitionLimits.suspect_count`) come alone: some of them and nothing else,
        and none without `is_first`, which says that the request has no records yet.
        """
        limits = self.limits
        deadline_ms = now_ms + limits.lock_ms
        self._records.end_due_ms = 0
        acquired: list[AcquiredRange] = []
        left = records_max
        position = max(fetch_offset, self.start_offset)
        for first, last, is_skipped, due_ms, late, keys in batches:
            if left <= 0:
                break
            if last < position:
                continue
            if first > position:
                self._records.archive_available(position, first - 1)
            first = position = max(first, position)
            if is_skipped:
                self._records.archive_available(first, last)
                position = last + 1
                continue
            if first < self.end_offset:
                if limits.looks_into_batches:
                    self._turns.examine(first, min(last, self.end_offset - 1), due_ms, late, keys)
                taken, is_over = self._acquire_again(
                    member_id,
                    first,
                    min(last, self.end_offset - 1),
                    left if is_strict else last - first + 1,
                    now_ms,
                    is_first=is_first and not acquired,
                )
                acquired += taken
                left -= sum(each.last - each.first + 1 for each in taken)
                if is_over:
                    break
                first = self.end_offset
            if left > 0 and first <= last:
                room = limits.in_flight_max - self.in_flight_count
                if room <= 0:
                    break
                if due_ms > now_ms:
                    self._records.end_due_ms = due_ms
                    break
                end = min(last, first + max(room, BATCH_OFFSETS_MAX) - 1)
                for to, wait_ms in pieces(first, end, late, keys) if late or keys else ((end, 0),):
                    is_blocked = bool(keys) and self._turns.keys.add(to, keys.get(to))
                    if wait_ms or is_blocked:
                        self._records.append(to, _AVAILABLE, 0)
                        self._ranges[-1].deadline_ms, self._ranges[-1].is_blocked = (
                            wait_ms,
                            is_blocked,
                        )
                        continue
                    begin = self.end_offset
                    added = AcquiredRange(begin, min(to, begin + left - 1) if is_strict else to, 1)
                    self._records.append(added.last, _ACQUIRED, 1)
                    self._lock(self._ranges[-1], member_id, deadline_ms)
                    left -= added.last - begin + 1
                    _join(acquired, added, batch_size)
                    if added.last < to or (is_strict and left <= 0):
                        break
                if self.end_offset <= last:
                    break
            position = last + 1
        self._records.advance()
        self._ranges.coalesce()
        return acquired

    def _acquire_again(
        self, member_id: str, first: int, last: int, count_max: int, now_ms: int, *, is_first: bool
    ) -> tuple[list[AcquiredRange], bool]:
        """Acquire what is available between two offsets below the end, `count_max` offsets at most.

        The second result says that nothing more may be acquired, because of suspect records.
        """
        taken: list[AcquiredRange] = []
        limits = self.limits
        suspect_count, deadline_ms = limits.suspect_count, now_ms + limits.lock_ms
        if not self._records.available_count:
            return taken, False
        index = self._ranges.split(first)
        self._ranges.split(last + 1)
        while index < len(self._ranges) and count_max > 0:
            each = self._ranges[index]
            if each.first > last:
                break
            if self._records.may_acquire(each, now_ms):
                is_suspect = each.count >= suspect_count
                if is_suspect:
                    if taken or not is_first:
                        return taken, True
                    count_max = min(count_max, limits.suspects_max(each.count, each.size))
                if each.size > count_max:
                    self._ranges.split(each.first + count_max)
                count_max -= each.size
                self._records.available_count -= each.size
                each.state, each.count = _ACQUIRED, min(each.count + 1, DELIVERIES_MAX)
                self._lock(each, member_id, deadline_ms)
                taken.append(AcquiredRange(each.first, each.last, each.count))
                if is_suspect:
                    return taken, True
            index += 1
        return taken, False

    def _lock(self, each: RecordRange, member_id: str, deadline_ms: int) -> None:
        each.member = member_id
        each.deadline_ms = deadline_ms
        each.is_known = True

    # Acknowledging.

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], now_ms: int
    ) -> Transition | None:
        """Acknowledge records of a member, all or none; return what is to be stored, None for nothing.

        Acknowledgements of records below the start offset change nothing: the log has deleted them.

        Raises:
            ApiError: INVALID_REQUEST, a range is malformed; INVALID_RECORD_STATE, a record is not acquired by
                the member, or an acknowledgement of it is being stored.
        """
        wanted = parts_of(acknowledgements, may_renew=self.limits.may_renew)
        for first, last, _, _, _ in wanted:
            self._check_acquired(member_id, first, last)
        transition = Transition(now_ms)
        for first, last, kind, delay_ms, reason in wanted:
            if last < self.start_offset:
                continue
            index = self._ranges.split(max(first, self.start_offset))
            self._ranges.split(last + 1)
            for part in self._ranges.until(index, last):
                if kind is AcknowledgeType.RENEW:
                    part.deadline_ms = now_ms + self.limits.lock_ms
                else:
                    is_rejected = kind is AcknowledgeType.REJECT
                    self._begin(
                        transition,
                        part,
                        _STATE_AFTER[kind],
                        is_rejected=is_rejected,
                        reason=reason,
                        delay_ms=delay_ms,
                    )
        return self._begun(transition)

    def bury(self, dead: Iterable[DeadRange]) -> Transition | None:
        """Archive records whose dead letters are written, or are not wanted any more."""
        transition = Transition()
        for first, last, _, _, _ in dead:
            if last < self.start_offset:
                continue
            index = self._ranges.split(max(first, self.start_offset))
            self._ranges.split(last + 1)
            for each in self._ranges.until(index, last):
                if each.state is _ARCHIVING and each.transition is None:
                    # What was said of them stays, should that not be stored.
                    self._begin(
                        transition,
                        each,
                        _ARCHIVED,
                        each.count,
                        is_rejected=each.is_rejected,
                        reason=each.reason,
                    )
        return self._begun(transition)

    def release(self, member_id: str) -> Transition | None:
        """Make available what a member has acquired, because it has closed its session.

        The delivery does not count: the member has acknowledged what it passed on to its program.
        """
        transition = Transition()
        for each in self._acquired_by(member_id):
            self._begin(transition, each, _AVAILABLE, count=each.count - 1)
        return self._begun(transition)

    def abandon(self, member_id: str, now_ms: int, unsent: Iterable[AcquiredRange] = ()) -> Transition | None:
        """End the locks of a member that is gone without closing its session.

        The delivery counts, because one of the records may be what ended the member; not that of records that
        were not sent.
        """
        transition = Transition(now_ms)
        for first, last, _ in unsent:
            if last < self.start_offset or last >= self.end_offset:
                continue
            index = self._ranges.split(max(first, self.start_offset))
            self._ranges.split(last + 1)
            for each in self._ranges.until(index, last):
                if each.state is _ACQUIRED and each.member == member_id and each.transition is None:
                    self._begin(transition, each, _AVAILABLE, count=each.count - 1)
        for each in self._acquired_by(member_id):
            self._begin(transition, each, _AVAILABLE)
        return self._begun(transition)

    def _acquired_by(self, member_id: str) -> list[RecordRange]:
        return [
            each
            for each in self._ranges
            if each.state is _ACQUIRED and each.member == member_id and each.transition is None
        ]

    def expire(self, now_ms: int) -> Transition | None:
        """End the locks that are over by now: the records become available, or are given up at the limit."""
        transition = Transition(now_ms)
        for each in self._ranges:
            if each.state is _ACQUIRED and each.transition is None and each.deadline_ms <= now_ms:
                self._begin(transition, each, _AVAILABLE)
        return self._begun(transition)

    def progress(self, transitions: Iterable[Transition]) -> Progress:
        """Return what to store for transitions that are going to be confirmed together."""
        changes = [change for each in transitions for change in each.changes]
        after = {id(each.records): each.state for each in changes}
        start_offset, complete = self.start_offset, 0
        is_done = True
        for each in self._ranges:
            is_terminal = after.get(id(each), each.state).is_terminal
            is_done = is_done and is_terminal
            if is_done:
                start_offset = each.last + 1
            elif is_terminal:
                complete += each.size
        ranges = tuple(
            StateRange(each.first, each.last, state, count)
            for each, state, count, _ in changes
            if each.last >= start_offset
        )
        return Progress(start_offset, min(complete, COUNT_MAX), ranges)

    def confirm(self, transition: Transition) -> None:
        """Apply a transition: it is stored."""
        limits, now_ms = self.limits, transition.now_ms
        for each, state, count, delay_ms in transition.changes:
            # A range that the log's start has passed is not in the list any more, and harms nobody.
            each.state, each.count = state, count
            each.transition = None
            each.member, each.deadline_ms = NO_MEMBER, 0
            if state is not _ARCHIVING:
                each.is_rejected, each.reason = False, b""
            if state is _AVAILABLE and each.last >= self.start_offset:
                self._records.available_count += each.size
                if now_ms is None:
                    continue
                if delay_ms > 0:
                    each.deadline_ms = now_ms + delay_ms
                elif delay_ms < 0 and limits.backoff_ms:
                    each.deadline_ms = now_ms + limits.wait_ms(count)
        if self._turns.keys:
            for change in transition.changes:
                if change.state is not _AVAILABLE:
                    self._turns.pass_on(change.records.first, change.records.last)
        self._records.advance()
        self._ranges.coalesce()

    def take_back(self, transition: Transition) -> None:
        """Leave everything as it was before a transition: it could not be stored."""
        for each in transition.changes:
            each.records.transition = None
        self._ranges.coalesce()

    def _check_acquired(self, member_id: str, first: int, last: int) -> None:
        if last < self.start_offset:
            return
        if last >= self.end_offset:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"The offsets {first} to {last} were not delivered; the next one is {self.end_offset}.",
            )
        index = self._ranges.index_of(max(first, self.start_offset))
        for each in self._ranges.until(index, last):
            if each.state is not _ACQUIRED or each.transition is not None or each.member != member_id:
                raise ApiError(
                    ErrorCode.INVALID_RECORD_STATE,
                    f"The offsets {each.first} to {each.last} are not acquired by member {member_id}.",
                )

    def _begin(
        self,
        transition: Transition,
        each: RecordRange,
        state: RecordState,
        count: int = -1,
        *,
        is_rejected: bool = False,
        reason: bytes = b"",
        delay_ms: int = GROUPS_DELAY,
    ) -> None:
        if count < 0:
            count = each.count
            is_given_up = is_rejected
            if state is _AVAILABLE and count >= self.limits.delivery_count_limit:
                state, is_given_up = _ARCHIVED, True
            if is_given_up and self.limits.has_dead_letters:
                state = _ARCHIVING
        each.is_rejected, each.reason = is_rejected, reason
        each.transition = transition
        transition.changes.append(Change(each, state, count, delay_ms))

    def _begun(self, transition: Transition) -> Transition | None:
        if transition.changes:
            return transition
        self._ranges.coalesce()
        return None


def _join(acquired: list[AcquiredRange], added: AcquiredRange, batch_size: int) -> None:
    """Add a range of new records, as a part of the last one if that stays within `batch_size`."""
    before = acquired[-1] if acquired else None
    if (
        before is not None
        and before.last + 1 == added.first
        and before.deliveries == added.deliveries
        and added.last - before.first < batch_size
    ):
        acquired[-1] = before._replace(last=added.last)
    else:
        acquired.append(added)
