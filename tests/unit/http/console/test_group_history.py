"""Which events the page of a group's history shows, and in which words."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.events import BrokerEvents
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.errors import ClientError
from kalda.events.event import CausalEvent, EventId, EventKind
from kalda.http.console.group_history import EVENTS_MAX, History, read_history

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


STARTED = CausalEvent(
    id=EventId(1, 1),
    time_ms=500,
    kind=EventKind.BROKER_STARTED,
    subject={"broker": "1"},
    details={"is_first": True},
)


class FakeAdmin:
    """Returns events whatever group they are of, as a broker does with those about brokers."""

    def __init__(self, found: Mapping[int, BrokerEvents], errors: Mapping[int, ClientError]) -> None:
        self._found = Outcomes(found, errors)

    async def describe_events(self, **_asked: Any) -> Outcomes[int, BrokerEvents]:
        return self._found


async def read(
    group: str,
    *events: Sequence[CausalEvent],
    oldest_ms: int = 500,
    errors: Mapping[int, ClientError] | None = None,
) -> History:
    found = {number: BrokerEvents(tuple(each), oldest_ms) for number, each in enumerate(events, 1)}
    return await read_history(cast("AsyncAdmin", FakeAdmin(found, errors or {})), group)


async def test_the_events_of_a_group_come_with_the_newest_first_and_their_causes() -> None:
    history = await read("billing", [STARTED, LEFT, REBALANCING], [OTHER])

    first, second = history.rows
    assert ["1970-01-01 00:00:01.001", "group rebalancing"] == [each.text for each in first.cells[:2]]
    assert "Group billing began to rebalance: member m-1 left." == first.cells[2].text
    assert second.cells[2].text == first.cells[3].text
    assert "left group billing: the consumer is being closed" in second.cells[2].text
    assert ("", "event 1-10") == (second.cells[3].text, second.cells[1].note)
    assert [] == history.problems


async def test_of_a_group_without_events_nothing_is_kept() -> None:
    """Whoever asked for the history of any name had a copy of all events about brokers."""
    assert History([], []) == await read("nobody", [STARTED, LEFT], [OTHER])


async def test_what_is_missing_is_mentioned() -> None:
    now_ms = round(time.time() * 1000)
    events = [
        replace(LEFT, id=EventId(1, number), time_ms=now_ms + number) for number in range(EVENTS_MAX + 1)
    ]
    history = await read("billing", events, oldest_ms=now_ms, errors={2: ClientError("it is away.")})

    missing, dropped, cut = history.problems
    assert "The events of broker 2 are missing: it is away." == missing
    assert dropped.startswith("Not every broker keeps events from before 2")
    assert "Only the latest 5\u202f000 events are listed." == cut
    assert (EVENTS_MAX, now_ms + 1) == (len(history.rows), history.rows[-1].cells[0].value)


async def test_a_broker_that_has_all_its_events_has_dropped_none() -> None:
    now_ms = round(time.time() * 1000)

    assert [] == (await read("billing", [replace(STARTED, time_ms=now_ms)], oldest_ms=now_ms)).problems
