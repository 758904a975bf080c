"""What comes from a library's thread reaches the loop in order, with few wake-ups."""

import asyncio
import socket
import threading

import pytest
from kazoo.protocol.states import Callback, WatchedEvent

from kalda.zk.client.kazoo.calls import Call, Inbox, group_calls
from kalda.zk.client.kazoo.link import Connector, Link, _Handler
from kalda.zk.client.port import EventType
from kalda.zk.client.zookeeper_errors import ConnectionLossError


class Owner:
    """Writes down what a link tells it."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def on_connected(self, link: Link, session_id: int) -> None: ...

    def on_suspended(self, link: Link) -> None: ...

    def on_expired(self, link: Link) -> None: ...

    def on_ended(self, link: Link, failure: BaseException | None, is_clean: bool) -> None: ...

    def on_event(self, link: Link, event_type: EventType, path: str) -> None:
        self.told.append(path)

    def on_answer(self, link: Link, call: Call, raw: object, failure: Exception | None) -> None:
        self.told.append(raw)


async def test_events_and_answers_keep_the_order_in_which_they_came() -> None:
    """A watch is told before the answer that shows the change; kazoo's own handler has a queue for each."""
    owner = Owner()
    inbox = Inbox(asyncio.get_running_loop(), lambda: None)
    link = Link(owner, inbox, Connector("host:1", 1000, socket.create_connection), None, 0)
    handler = _Handler(link)
    call = Call(None, "/a", lambda raw: raw)
    call.link = link

    def kazoo_thread() -> None:
        for number in range(200):
            handler.dispatch_callback(
                Callback("watch", None, (WatchedEvent("CHANGED", None, f"event {number}"),))
            )
            # Told to all watches of a lost connection; nobody here wants to know.
            handler.dispatch_callback(Callback("watch", None, (WatchedEvent("NONE", None, None),)))
            call.set(f"answer {number}")

    thread = threading.Thread(target=kazoo_thread)
    thread.start()
    thread.join()
    await asyncio.sleep(0)
    assert [f"{kind} {number}" for number in range(200) for kind in ("event", "answer")] == owner.told


async def test_what_comes_together_wakes_the_loop_once(caplog: pytest.LogCaptureFixture) -> None:
    emptied: list[None] = []
    inbox = Inbox(asyncio.get_running_loop(), lambda: emptied.append(None))
    seen: list[int] = []

    def take(number: int) -> None:
        if number == 3:
            raise RuntimeError("a callback's mistake")
        seen.append(number)

    def post_all() -> None:
        for number in range(1000):
            inbox.post(take, number)

    thread = threading.Thread(target=post_all)
    thread.start()
    thread.join()
    await asyncio.sleep(0)
    assert [number for number in range(1000) if number != 3] == seen
    assert 1 == len(emptied)
    assert "a callback's mistake" in caplog.text


async def test_inbox_of_a_closed_loop_takes_no_harm() -> None:
    loop = asyncio.new_event_loop()
    inbox = Inbox(loop, lambda: None)
    loop.close()
    inbox.post(print)


async def test_group_collects_results_and_errors_by_their_places() -> None:
    calls = [Call(None, f"/{number}", lambda raw: raw * 2) for number in range(3)]
    group = group_calls(calls)
    wait = asyncio.ensure_future(group.wait())
    await asyncio.sleep(0)
    calls[2].succeed(21)
    error = ConnectionLossError("gone", "/0")
    calls[0].fail(error)
    assert not wait.done()
    calls[1].succeed(1)
    assert [error, 2, 42] == await wait
    assert [] == await group_calls([]).wait()


async def test_cancelled_group_takes_late_answers_without_harm() -> None:
    calls = [Call(None, "/a", lambda raw: raw)]
    group = group_calls(calls)
    wait = asyncio.ensure_future(group.wait())
    await asyncio.sleep(0)
    wait.cancel()
    await asyncio.gather(wait, return_exceptions=True)
    assert calls[0].is_abandoned
    calls[0].succeed(1)
