"""DescribeEvents: the bounds of an answer."""

from typing import Any, cast

import pytest

from kalda.broker.requests.handlers import describe_events
from kalda.broker.requests.handlers.describe_events import handle
from kalda.common.errors import ApiError, ErrorCode
from kalda.events.event import decode_event
from kalda.events.recorder import EventRecorder
from kalda.protocol.messages.describe_events import (
    DescribeEventsRequest,
    DescribeEventsResponse,
    EventSubject,
)
from kalda.runtime.background import InlineExecutor
from kalda.runtime.clock import ManualClock
from tests.unit.storage.faulty_file_system import FaultyFileSystem

CONTEXT = cast(Any, None)


def recorder_with(count: int) -> EventRecorder:
    recorder = EventRecorder(
        3, ManualClock(), FaultyFileSystem(), InlineExecutor(), lambda: ["/data"], 1 << 20
    )
    recorder.open()
    for number in range(count):
        recorder.emit("x", {"topic": "orders"}, {"number": number})
    return recorder


def numbers(response: DescribeEventsResponse) -> list[object]:
    found = [decode_event(3, each) for each in response.events]
    return [event.details["number"] for event in found if event is not None]


async def test_answer_of_many_bytes_goes_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_events, "BYTES_MAX", 200)
    recorder = recorder_with(4)

    first = await handle(recorder, 3, DescribeEventsRequest(), CONTEXT)
    last = decode_event(3, first.events[-1])
    assert last is not None
    second = await handle(recorder, 3, DescribeEventsRequest(after_number=last.id.number), CONTEXT)

    assert first.has_more
    assert [0, 1, 2, 3] == [*numbers(first), *numbers(second)]
    assert not second.has_more


async def test_subjects_select() -> None:
    asked = DescribeEventsRequest(subjects=[EventSubject(subject_type="topic", subject_name="other")])

    assert [] == (await handle(recorder_with(2), 3, asked, CONTEXT)).events


async def test_broker_without_events_says_so() -> None:
    with pytest.raises(ApiError, match=r"kalda\.events\.bytes") as raised:
        await handle(None, 3, DescribeEventsRequest(), CONTEXT)
    assert ErrorCode.POLICY_VIOLATION == raised.value.code


async def test_too_many_subjects_are_refused() -> None:
    subjects = [EventSubject(subject_type="topic", subject_name=str(each)) for each in range(101)]
    with pytest.raises(ApiError, match="101") as raised:
        await handle(recorder_with(0), 3, DescribeEventsRequest(subjects=subjects), CONTEXT)
    assert ErrorCode.INVALID_REQUEST == raised.value.code
