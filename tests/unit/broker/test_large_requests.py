"""Large requests are decoded, handled and answered in turns, and their bytes are bounded."""

import asyncio
import itertools
import logging
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kalda.broker.requests import large_requests
from kalda.broker.requests.api import ApiHandler
from kalda.broker.requests.dispatch import Dispatcher
from kalda.broker.requests.large_requests import LARGE_BYTES, LargeRequest, LargeRequests
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.metrics import Metrics
from kalda.common.pending import Pending
from kalda.common.turns import STEPS_AT_ONCE, STEPS_PER_TURN, Steps, first_turn
from kalda.protocol import codec
from kalda.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.unit.broker.handler_parts import NO_SERVICES
from tests.unit.net.fakes import Harness, framed

KEYS = [f"group-{number}" for number in range(2_000)]
VERSION = 4


def frame(keys: list[str], correlation_id: int = 7) -> bytes:
    body = codec.encode(FindCoordinatorRequest(coordinator_keys=keys), VERSION)
    return struct.pack(">hhih", ApiKey.FIND_COORDINATOR, VERSION, correlation_id, -1) + b"\0" + body


class Broker:
    """A dispatcher whose handler answers each key in a step, and counts them."""

    def __init__(self, *, waits: bool = False, elements_max: int = large_requests.ELEMENTS_MAX) -> None:
        self.handled = 0
        self.waiting: Pending[FindCoordinatorResponse] | None = Pending() if waits else None
        handler = ApiHandler(
            access=None,
            key=ApiKey.FIND_COORDINATOR,
            versions=(0, VERSION),
            build=lambda _: lambda request, context: first_turn(self.steps(request)),
            error_response=lambda request, code: FindCoordinatorResponse(
                coordinators=[Coordinator(error_code=code)]
            ),
            elements_max=elements_max,
        )
        self.dispatcher = Dispatcher(NO_SERVICES, [handler], Metrics())
        self.harness = Harness(self.dispatcher.on_frame)

    def steps(self, request: FindCoordinatorRequest) -> Steps[Any]:
        response = FindCoordinatorResponse()
        for key in request.coordinator_keys:
            response.coordinators.append(Coordinator(key=key, node_id=len(key), host="h", port=1))
            self.handled += 1
            yield
        if self.waiting is None:
            return response
        return self.waiting.then(lambda done: done.value if done.value.coordinators else response)

    async def receive(self, *frames: bytes) -> list[int]:
        """Return how many keys were handled in each iteration of the loop until the answers are sent."""
        self.harness.receive(b"".join(map(framed, frames)))
        counts = [self.handled]
        for _ in range(100_000):
            await asyncio.sleep(0)
            counts.append(self.handled)
            self.harness.receive()
            if not self.harness.connection.outstanding_count:
                break
        return [after - before for before, after in itertools.pairwise(counts)]

    def answers(self) -> list[tuple[int, FindCoordinatorResponse]]:
        sent, found = self.harness.take_sent(), []
        while sent:
            size, correlation_id = struct.unpack_from(">ii", sent)
            found.append((correlation_id, codec.decode(FindCoordinatorResponse, VERSION, sent[9 : 4 + size])))
            sent = sent[4 + size :]
        return found


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until a condition holds."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never held")


async def test_no_turn_handles_more_than_its_elements_and_the_answer_is_the_whole_one() -> None:
    broker = Broker()
    assert len(frame(KEYS)) > LARGE_BYTES
    counts = await broker.receive(frame(KEYS))
    first, *others = filter(None, counts)
    assert first <= STEPS_AT_ONCE
    assert max(others) <= STEPS_PER_TURN
    ((correlation_id, response),) = broker.answers()
    assert (7, KEYS) == (correlation_id, [each.key for each in response.coordinators])


async def test_small_requests_are_answered_at_once() -> None:
    broker = Broker()
    broker.harness.receive(framed(frame(KEYS[:5])))
    ((_, response),) = broker.answers()
    assert KEYS[:5] == [each.key for each in response.coordinators]


async def test_a_small_request_of_many_steps_is_continued_in_turns() -> None:
    """The bytes of a request do not say what its elements cost."""
    broker = Broker()
    keys = [str(number) for number in range(500)]
    assert len(frame(keys)) < LARGE_BYTES
    counts = await broker.receive(frame(keys))
    assert max(counts) <= STEPS_PER_TURN
    ((_, response),) = broker.answers()
    assert keys == [each.key for each in response.coordinators]
    # Nor is the response encoded in one piece: no keys are handled in the last iterations.
    assert [0, 0, 0] == counts[-3:]


async def test_the_next_request_of_the_connection_waits_for_the_answer() -> None:
    broker = Broker()
    broker.harness.receive(framed(frame(KEYS, 1)) + framed(frame(["last"], 2)))
    assert 0 == broker.handled
    while broker.harness.connection.outstanding_count or broker.handled <= len(KEYS):
        await asyncio.sleep(0)
        broker.harness.receive()
    assert [(1, len(KEYS)), (2, 1)] == [(number, len(each.coordinators)) for number, each in broker.answers()]


async def test_a_handler_may_wait_after_its_steps() -> None:
    broker = Broker(waits=True)
    broker.harness.receive(framed(frame(KEYS)))
    await until(lambda: broker.handled == len(KEYS))
    assert broker.waiting is not None
    broker.waiting.complete(FindCoordinatorResponse())
    await until(lambda: not broker.harness.connection.outstanding_count)
    assert [len(KEYS)] == [len(each.coordinators) for _, each in broker.answers()]


@pytest.mark.parametrize(
    ("data", "reason"),
    [(frame(KEYS)[:-5], "malformed"), (frame(KEYS), "more than 1999 elements")],
    ids=["truncated", "too many"],
)
async def test_a_large_request_that_is_refused_closes_the_connection(data: bytes, reason: str) -> None:
    broker = Broker(elements_max=len(KEYS) - 1)
    await broker.receive(data)
    assert broker.harness.connection.is_closed
    assert reason in broker.harness.owner.closed[0]
    assert 0 == broker.handled


async def test_a_closed_connection_ends_the_work() -> None:
    broker = Broker()
    broker.harness.receive(framed(frame(KEYS)))
    await until(lambda: broker.handled > 0)
    broker.harness.connection.close("the peer is gone", logging.DEBUG)
    handled = broker.handled
    for _ in range(100):
        await asyncio.sleep(0)
    assert handled == broker.handled


async def test_an_error_of_a_handler_is_the_answer() -> None:
    broker = Broker()

    def fails(request: FindCoordinatorRequest) -> Steps[Any]:
        yield
        raise ValueError

    broker.steps = fails  # type: ignore[method-assign]  # the handler looks it up
    await broker.receive(frame(KEYS))
    assert [ErrorCode.UNKNOWN_SERVER_ERROR] == [
        each.coordinators[0].error_code for _, each in broker.answers()
    ]


def unused() -> None:
    raise AssertionError("not expected to be called")


class TestLargeRequests:
    def test_few_are_in_work_and_the_others_wait(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(large_requests, "IN_WORK_BYTES_MAX", 100)
        begun: list[LargeRequest] = []
        requests = LargeRequests()
        first, *others = (requests.add(bytes(size), begun.append, unused) for size in (90, 20, 80, 500))
        requests.begin_next()
        assert [first] == begun
        first.end()
        first.end()
        assert [first, *others[:2]] == begun
        others[0].end()
        others[1].end()
        assert [first, *others] == begun

    def test_there_is_room_for_one_or_for_so_many_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(large_requests, "WAITING_BYTES_MAX", 100)
        requests = LargeRequests()
        assert requests.has_room(1_000)
        only = requests.add(bytes(60), LargeRequest.end, unused)
        assert [True, False] == [requests.has_room(size) for size in (40, 41)]
        requests.begin_next()
        assert only.is_ended
        assert requests.has_room(1_000)

    def test_those_that_wait_are_dropped_when_the_broker_ends(self) -> None:
        dropped: list[str] = []
        requests = LargeRequests()
        size, begun = large_requests.IN_WORK_BYTES_MAX, list[LargeRequest]()
        for name in "ab":
            requests.add(bytes(size), begun.append, partial(dropped.append, name))
        requests.begin_next()
        requests.close()
        assert ["b"] == dropped


@pytest.mark.parametrize("count", [1000, 10])
async def test_a_long_response_that_was_waited_for_is_encoded_in_turns(count: int) -> None:
    """The description of one group may name 1,000 members, each with 2,000 topics: 230 ms in one piece."""
    broker = Broker(waits=True)
    broker.harness.receive(framed(frame(KEYS[:1])))
    assert broker.waiting is not None
    broker.waiting.complete(FindCoordinatorResponse(coordinators=[Coordinator(key="k")] * count))
    assert (count > 512) == (broker.harness.connection.outstanding_count == 1)
    await until(lambda: not broker.harness.connection.outstanding_count)
    assert [count] == [len(each.coordinators) for _, each in broker.answers()]
