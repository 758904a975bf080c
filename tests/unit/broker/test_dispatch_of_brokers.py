"""Requests that only brokers make: the oldest header there is, and a way past clients that wait."""

import asyncio
import struct
from typing import Any

import pytest

from kalda.broker.requests import dispatch as dispatch_module
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.dispatch import Dispatcher
from kalda.common.api_keys import ApiKey
from kalda.common.metrics import Metrics
from kalda.protocol import codec
from kalda.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from kalda.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.unit.broker.handler_parts import NO_SERVICES
from tests.unit.broker.test_dispatch import find_frame, request_frame
from tests.unit.net.fakes import Harness, framed


def handler(key: ApiKey, handle: Any) -> ApiHandler:
    return ApiHandler(
        access=None,
        key=key,
        is_of_brokers=key == ApiKey.CONTROLLED_SHUTDOWN,
        versions=(0, 2),
        build=lambda _: handle,
        error_response=lambda request, code: None,
    )


async def test_a_header_without_a_client_id_is_read() -> None:
    seen: list[tuple[int, str | None]] = []

    def shut_down(request: ControlledShutdownRequest, context: RequestContext) -> object:
        seen.append((request.broker_id, context.client_id))
        return ControlledShutdownResponse()

    shutdown = handler(ApiKey.CONTROLLED_SHUTDOWN, shut_down)
    harness = Harness(Dispatcher(NO_SERVICES, [shutdown], Metrics()).on_frame)
    # The id's first half must not be taken for the length of a client id.
    for broker_id in (5, 0x00030001, 0x7FFFFFFF):
        harness.receive(framed(struct.pack(">hhii", 7, 0, 9, broker_id)))
        sent = harness.take_sent()
        assert ControlledShutdownResponse() == codec.decode(ControlledShutdownResponse, 0, sent, 8)
    harness.receive(framed(request_frame(7, 1, struct.pack(">i", 4))))
    assert [(5, None), (0x00030001, None), (0x7FFFFFFF, None), (4, "me")] == seen


async def test_brokers_do_not_wait_behind_clients_that_wait_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion waits for a StopReplica: were that queued behind deletions, none of them would ever end."""
    monkeypatch.setattr(dispatch_module, "TASKS_MAX", 2)
    moved = asyncio.Event()

    async def find(*_: object) -> object:
        await moved.wait()
        return FindCoordinatorResponse()

    async def shut_down(*_: object) -> object:
        moved.set()
        return ControlledShutdownResponse()

    handlers = [handler(ApiKey.FIND_COORDINATOR, find), handler(ApiKey.CONTROLLED_SHUTDOWN, shut_down)]
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        harness = Harness(Dispatcher(NO_SERVICES, handlers, Metrics(), tasks).on_frame)
        for frame in [find_frame()] * 5 + [request_frame(7, 1, struct.pack(">i", 4))]:
            harness.receive(framed(frame))
    assert harness.connection.is_quiet


async def test_queued_requests_keep_their_order_when_a_brokers_request_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker's request runs beyond the bound; its end frees no place for a client's."""
    monkeypatch.setattr(dispatch_module, "TASKS_MAX", 1)
    moved, shut = asyncio.Event(), asyncio.Event()
    began: list[str] = []

    async def find(request: FindCoordinatorRequest, _: object) -> object:
        began.append(request.key)
        await moved.wait()
        return FindCoordinatorResponse()

    async def shut_down(*_: object) -> object:
        shut.set()
        return ControlledShutdownResponse()

    handlers = [handler(ApiKey.FIND_COORDINATOR, find), handler(ApiKey.CONTROLLED_SHUTDOWN, shut_down)]
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        harness = Harness(Dispatcher(NO_SERVICES, handlers, Metrics(), tasks).on_frame)
        frames = [find_frame(key) for key in ("a", "b", "c")]
        for frame in [*frames, request_frame(7, 1, struct.pack(">i", 4))]:
            harness.receive(framed(frame))
        await shut.wait()
        for _ in range(3):
            await asyncio.sleep(0)
        moved.set()
        # The group would end before the queued handlers begin.
        for _ in range(20):
            await asyncio.sleep(0)
    assert ["a", "b", "c"] == began
