"""Checks the deliveries of a share group's records: `DeliveryCheck`.

The members report what they acquire, hand out, send and are answered. What a leader held of a record at that
moment is a `Grant`. Without it, as where a response arrives late, only what needs no leader is checked: one
that has been replaced and does not know it may deliver what the next leader has accepted, as Kafka's may.

What it checks, by the rule that a violation names:

- no delivery above the limit;
- no delivery after the end: a record whose acceptance or rejection was acknowledged is not delivered again;
- deliveries are counted: behind an acknowledged release, the next delivery has a higher count;
- one member at a time: nobody else gets a record before it is released, or its lock or session ends;
- records stay with their member: until then its leader does not give them up, whatever others do;
- what is stored stays: a leader in a later epoch knows of each end that was acknowledged;
- released records wait: not before the end of the delay that the release asks for, or the group's back-off;
- keys keep their order: a record is not delivered before those of its key in front of it are done.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kalda.clients.share.acknowledgements import AcknowledgeType

Place = tuple[int, int]
"""A partition and an offset."""

_NO_EPOCH: Final = -1
_ENDS: Final = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


class Violation(NamedTuple):
    """A rule and how it was broken."""

    rule: str
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Grant:
    """The leader's state of a record that a member has just acquired."""

    leader: object
    """One term of one leader: a share partition between its first and its last session there."""
    epoch: int
    deadline_ms: int
    """When the lock ends."""
    is_session_open: Callable[[], bool]
    is_held: Callable[[], bool]
    """Whether the member still has it, as far as the leader still leads."""


@dataclass(slots=True)
class DeliveredRecord:
    """The deliveries and acknowledgements of one record, as far as they are known."""

    deliveries: int = 0
    count_max: int = 0
    """The highest count of deliveries that a response named to a member."""
    accepted_epoch: int = _NO_EPOCH
    """From this leader epoch on the record is accepted; -1: no acceptance was acknowledged."""
    rejected_epoch: int = _NO_EPOCH
    rejected_count: int = 0
    """As how many deliveries the acknowledged rejection counts; 0 if nobody knows: the lock of the delivery
    may have ended before the rejection arrived, which the leader then took for one of the member's next, or
    for one of a record that was given up since."""
    rejected_by: str = ""
    ends_sent: int = 0
    """Acceptances and rejections that were sent and not refused: each may have been done."""
    rejections_sent: int = 0
    released_epoch: int = _NO_EPOCH
    released_count: int = 0
    holds: dict[str, "_Hold"] = field(default_factory=dict)
    """The last delivery to each member, in their order."""
    sent: dict[str, "deque[_Sent]"] = field(default_factory=dict)
    """By member, what has no answer. An answer may arrive after the next delivery to the same member."""
    wait: "_Wait | None" = None

    @property
    def end_epoch(self) -> int:
        """The leader epoch from which on it is accepted or rejected; -1 if that is not certain."""
        return max(self.accepted_epoch, self.rejected_epoch)


class _Hold:
    """One delivery of a record to a member."""

    def __init__(self, count: int, grant: Grant | None, at_ms: int) -> None:
        self.count: Final = count
        self.grant: Final = grant
        self.at_ms: Final = at_ms
        self.is_decided = False
        self.doubts = 0
        """How many acknowledgements of deliveries before to the same member may be taken for ones of this."""

    @property
    def may_be_over(self) -> bool:
        """Whether the member has acknowledged the record, or its leader may think so."""
        return self.is_decided or self.doubts > 0


class _Sent(NamedTuple):
    hold: _Hold
    kind: int
    at_ms: int
    delay_ms: int | None
    is_certain: bool = True
    """Whether the next answer is to this one: two leaders answer in any order."""


class _Wait(NamedTuple):
    leader: object
    until_ms: int


class DeliveryCheck:
    """Compares the deliveries of one topic to one share group with each other.

    Args:
        limit: How often a record is delivered.
        wait_ms: Returns the back-off behind so many deliveries.
    """

    def __init__(self, limit: int, wait_ms: Callable[[int], int]) -> None:
        self._limit: Final = limit
        self._wait_ms: Final = wait_ms
        self.records: Final[dict[Place, DeliveredRecord]] = {}
        self._keys: Final[dict[tuple[int, bytes], dict[int, _Hold | None]]] = {}
        """The known offsets of each key of a partition, with the last delivery that a leader held."""
        self._undecided: Final[dict[tuple[str, Place], _Hold]] = {}
        """What members have and have not acknowledged, as leaders confirmed."""

    def of(self, place: Place) -> DeliveredRecord:
        """Return the known state of a record."""
        return self.records.setdefault(place, DeliveredRecord())

    def acquired(
        self, member: str, place: Place, count: int, grant: Grant | None, now_ms: int
    ) -> list[Violation]:
        """Note that a member was given a record."""
        record = self.of(place)
        what = f"{place} was delivered to {member} as delivery {count}"
        found: list[Violation] = []
        if count > self._limit:
            found.append(Violation("no delivery above the limit", f"{what} of {self._limit}"))
        if grant is not None:
            found += _contradictions(record, member, count, grant, now_ms, what)
        elif count > record.rejected_count:
            # It was delivered before the answer to the rejection, which came first.
            record.rejected_count = 0
        record.deliveries += 1
        record.count_max = max(record.count_max, count)
        before = record.holds.pop(member, None)
        hold = record.holds[member] = _Hold(count, grant, now_ms)
        if member == record.rejected_by:
            record.rejected_count = 0
        # Acknowledgements that are under way would be taken for ones of this delivery.
        hold.doubts = sum(each.kind != AcknowledgeType.RENEW for each in record.sent.get(member, ()))
        if grant is not None and (before is None or not before.may_be_over):
            self._undecided[member, place] = hold
        record.wait = None
        return found

    def taken_away(self, now_ms: int) -> list[Violation]:
        """Return the records that leaders have taken from members which may still be processing them."""
        found: list[Violation] = []
        for name, hold in list(self._undecided.items()):
            grant = hold.grant
            assert grant is not None, f"no leader held {name}"
            if now_ms >= grant.deadline_ms or not grant.is_session_open():
                del self._undecided[name]
            elif not grant.is_held():
                del self._undecided[name]
                left_ms = grant.deadline_ms - now_ms
                text = f"{name[1]} was taken from {name[0]}, {left_ms} ms before its lock ends"
                found.append(Violation("records stay with their member", text))
        return found

    def handed_out(
        self, member: str, place: Place, key: bytes, is_done: Callable[[Place], bool]
    ) -> list[Violation]:
        """Note that a member works on a record of a key, of which at most one may be in flight.

        `is_done` asks the leader about a record that was given up without an answer to anybody.
        """
        partition, offset = place
        hold = self.of(place).holds[member]
        known = self._keys.setdefault((partition, key), {})
        is_held = hold.grant is not None
        known[offset] = hold if is_held else known.get(offset)
        early: list[int] = []
        for other, delivery in known.items():
            if other < offset:
                before = partition, other
                if not self._may_be_done(before) and not is_done(before):
                    early.append(other)
            elif other > offset and is_held and delivery is not None and _is_before(delivery, hold):
                early.append(other)
        return [
            Violation(
                "keys keep their order",
                f"offset {max(other, offset)} of partition {partition} was delivered before "
                f"{min(other, offset)} was done, both of key {key!r}; found by {member}",
            )
            for other in early
        ]

    def _may_be_done(self, place: Place) -> bool:
        record = self.of(place)
        return record.ends_sent > 0 or record.count_max >= self._limit

    def sent(
        self,
        member: str,
        place: Place,
        kind: int,
        now_ms: int,
        *,
        delay_ms: int | None = None,
        is_answered: bool = True,
    ) -> None:
        """Note that an acknowledgement of a member is on its way; `is_answered`: an outcome follows.

        `delay_ms` is what a release asks for, None for the group's back-off.
        """
        record = self.of(place)
        hold = record.holds.get(member)
        if hold is None:
            return
        if is_answered:
            record.sent.setdefault(member, deque()).append(_Sent(hold, kind, now_ms, delay_ms))
        if kind != AcknowledgeType.RENEW:
            hold.is_decided = True
            self._undecided.pop((member, place), None)
        record.ends_sent += kind in _ENDS
        record.rejections_sent += kind == AcknowledgeType.REJECT

    def answered(
        self,
        member: str,
        place: Place,
        *,
        is_stored: bool,
        is_refused: bool = False,
        epoch: int = 0,
        forgotten_by: Callable[[Place, int], str | None] = lambda place, epoch: None,
    ) -> list[Violation]:
        """Note the answer to the oldest acknowledgement of a member for a record.

        `is_stored` and `is_refused` are False where nobody knows whether it was done. `epoch` is the highest
        leader epoch that any broker knows: the leader that answered has no higher one. `forgotten_by` returns
        a leader in an epoch above another one that would deliver a record.
        """
        record = self.of(place)
        sent = record.sent.get(member)
        if not sent:
            return []
        leaders = {id(each.hold.grant.leader) if each.hold.grant else None for each in sent}
        may_be_another = len(sent) > 1 and (len(leaders) > 1 or None in leaders)
        if may_be_another or not all(each.is_certain for each in sent):
            sent = record.sent[member] = deque(each._replace(is_certain=False) for each in sent)
        hold, kind, sent_ms, delay_ms, is_certain = sent.popleft()
        if not is_certain:
            return []
        if is_refused:
            record.ends_sent -= kind in _ENDS
            record.rejections_sent -= kind == AcknowledgeType.REJECT
            last = record.holds[member]
            if last is not hold and kind != AcknowledgeType.RENEW and last.doubts:
                last.doubts -= 1
        if not is_stored:
            return []
        if kind == AcknowledgeType.ACCEPT and record.accepted_epoch < 0:
            record.accepted_epoch = epoch
        elif kind == AcknowledgeType.REJECT and record.rejected_epoch < 0:
            record.rejected_epoch, record.rejected_by = epoch, member
            is_last = next(reversed(record.holds.values())) is hold
            record.rejected_count = hold.count if is_last else 0
        elif kind == AcknowledgeType.RELEASE:
            record.released_epoch, record.released_count = epoch, hold.count
            if hold.grant is not None and next(reversed(record.holds.values())) is hold:
                wait_ms = self._wait_ms(hold.count) if delay_ms is None else delay_ms
                record.wait = _Wait(hold.grant.leader, sent_ms + wait_ms)
        if kind not in _ENDS or hold.grant is None:
            return []
        later = forgotten_by(place, hold.grant.epoch)
        if later is None:
            return []
        text = f"{place} was acknowledged to {member} in epoch {hold.grant.epoch}; {later} would deliver it"
        return [Violation("what is stored stays", text)]


def _is_before(one: _Hold, other: _Hold) -> bool:
    """Return whether a leader held one delivery before another, which the same or a later leader holds."""
    assert one.grant is not None, "no leader held the first"
    assert other.grant is not None, "no leader held the second"
    return one.at_ms < other.at_ms and one.grant.epoch <= other.grant.epoch


def _contradictions(
    record: DeliveredRecord, member: str, count: int, grant: Grant, now_ms: int, what: str
) -> list[Violation]:
    found: list[Violation] = []
    if _NO_EPOCH < record.end_epoch <= grant.epoch:
        how = "accepted" if record.accepted_epoch >= 0 else "rejected"
        found.append(Violation("no delivery after the end", f"{what} in epoch {grant.epoch}; it was {how}"))
    if _NO_EPOCH < record.released_epoch <= grant.epoch and count <= record.released_count:
        text = f"{what}; it was released after {record.released_count}"
        found.append(Violation("deliveries are counted", text))
    if record.wait is not None and record.wait.leader is grant.leader and now_ms < record.wait.until_ms:
        text = f"{what}, {record.wait.until_ms - now_ms} ms before its back-off ended"
        found.append(Violation("released records wait", text))
    for other, hold in record.holds.items():
        held = hold.grant
        if (
            other != member
            and not hold.may_be_over
            and held is not None
            and held.leader is grant.leader
            and now_ms < held.deadline_ms
            and held.is_session_open()
        ):
            text = f"{what}; {other} has it for {held.deadline_ms - now_ms} ms more"
            found.append(Violation("one member at a time", text))
    return found
