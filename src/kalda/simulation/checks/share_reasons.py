"""Finds why a share group gave up records, from its dead letters and its stored state."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from kalda.clients.values import ConsumerRecord
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.share.delivery_state import RecordState, StateRange
from kalda.coordinator.share.share_records import Snapshot, Update, decode
from kalda.simulation.checks.deliveries import Place

_REJECTED: Final = "Offset rejected by client."
_EXCEEDED: Final = "Offset delivery count exceeded the threshold."


class Letter(NamedTuple):
    """A dead letter (KIP-1191)."""

    topic: str
    group: str
    place: Place
    deliveries: int
    is_rejected: bool
    reason: str
    """Why, as the member said; empty if the letter has a general text."""
    key: bytes | None
    value: bytes | None


def read_letter(record: ConsumerRecord[Any, Any]) -> Letter:
    """Return what a record of the topic for letters says."""
    headers = {name: value or b"" for name, value in record.headers}

    def text(name: str) -> str:
        return headers.get(f"__dlq.errors.{name}", b"").decode()

    message = text("message")
    return Letter(
        text("topic"),
        text("group"),
        (int(text("partition") or -1), int(text("offset") or -1)),
        int(text("delivery.count") or -1),
        message != _EXCEEDED,
        "" if message in (_REJECTED, _EXCEEDED) else message,
        record.key,
        record.value,
    )


class Reasons:
    """The states that a share coordinator has stored of each record, as far as its topic still has them."""

    def __init__(self, is_complete: bool) -> None:
        self.is_complete: Final = is_complete
        """Whether nothing was deleted from the topic."""
        self._counts: Final[dict[Place, int]] = {}
        """The highest stored number of deliveries."""
        self._dead: Final[set[Place]] = set()

    def add(self, partition: int, ranges: Iterable[StateRange]) -> None:
        """Take the states of a record of the topic."""
        for each in ranges:
            for offset in range(each.first, each.last + 1):
                place = partition, offset
                self._counts[place] = max(each.deliveries, self._counts.get(place, 0))
                if each.state == RecordState.ARCHIVING:
                    self._dead.add(place)

    def is_dead(self, place: Place) -> bool:
        """Return whether a record has waited for its dead letter."""
        return place in self._dead

    def is_at_limit(self, place: Place, limit: int) -> bool:
        """Return whether the last delivery that the group allows was possible.

        The delivery itself is not stored where the start offset passes the record at once.
        """
        return self._counts.get(place, 0) >= limit - 1


def reasons_of(found: Mapping[Place, ConsumerRecord[Any, Any]], group_id: str) -> Reasons:
    """Return what the records of the topic of share coordinators say of a group with one topic."""
    firsts: dict[int, int] = {}
    for partition, offset in found:
        firsts[partition] = min(offset, firsts.get(partition, offset))
    reasons = Reasons(not any(firsts.values()))
    for record in found.values():
        decoded = decode(CoordinatorRecord(record.key, record.value))
        if decoded is None or decoded[0].group_id != group_id:
            continue
        key, value = decoded
        if isinstance(value, Snapshot):
            reasons.add(key.partition, value.state.ranges)
        elif isinstance(value, Update):
            reasons.add(key.partition, value.ranges)
    return reasons
