"""Which events the page of a group's history shows, and in which words."""

from kalda.events.causes import Evidence
from kalda.events.event import CausalEvent, EventId, EventKind
from kalda.http.console.group_history import event_rows

LEFT = CausalEvent(
    id=EventId(1, 36),
    time_ms=1_000,
    kind=EventKind.MEMBER_LEFT,
    subject={"group": "billing", "member": "m-1", "client": "c-1"},
    details={"reason": "the consumer is being closed"},
)
REBALANCING = CausalEvent(
    id=EventId(1, 37),
    time_ms=1_001,
    kind=EventKind.GROUP_REBALANCING,
    subject={"group": "billing"},
    details={"reason": "member m-1 left"},
    cause=LEFT.id,
)
OTHER = CausalEvent(
    id=EventId(2, 1), time_ms=1_002, kind=EventKind.OFFSETS_DELETED, subject={"group": "other"}
)


def test_the_events_of_a_group_come_with_the_newest_first_and_their_causes() -> None:
    first, second = event_rows("billing", Evidence([LEFT, OTHER, REBALANCING]))

    assert ["1970-01-01 00:00:01.001", "group rebalancing"] == [each.text for each in first.cells[:2]]
    assert "Group billing began to rebalance: member m-1 left." == first.cells[2].text
    assert second.cells[2].text == first.cells[3].text
    assert "left group billing: the consumer is being closed" in second.cells[2].text
    assert ("", "event 1-10") == (second.cells[3].text, second.cells[1].note)
