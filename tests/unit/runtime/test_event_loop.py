"""The selector that calls connections itself is a selector to asyncio, and calls nobody twice or too late."""

import asyncio
import os
import select
import selectors
import socket
import sys
import threading
from collections.abc import Iterator
from functools import partial
from types import ModuleType

import pytest

from kalda.runtime.network import readers_of
from kalda.runtime.system.event_loop import (
    EVENTS_PER_TURN_MAX,
    HITS_BEFORE_BUSY,
    ConnectionEventLoop,
    ConnectionSelector,
    new_event_loop,
    poll_busily,
    threads_are_greenlets,
)

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="needs epoll")

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def selector() -> Iterator[ConnectionSelector]:
    with ConnectionSelector() as selector:
        yield selector


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    pairs = [socket.socketpair() for _ in range(3)]
    yield pairs
    for pair in pairs:
        for each in pair:
            each.close()


def test_a_readable_connection_is_called_and_not_returned(
    selector: ConnectionSelector, pairs: list[Pair]
) -> None:
    (ours, theirs), *_ = pairs
    calls: list[bytes] = []
    selector.add_reader(ours.fileno(), lambda: calls.append(ours.recv(10)))

    assert [] == selector.select(0)
    theirs.send(b"a")
    assert [] == selector.select(0)
    assert [b"a"] == calls


def test_each_call_of_wake_ends_a_wait(selector: ConnectionSelector) -> None:
    for _ in range(3):
        selector.wake()
        assert [] == selector.select(None)
    selector.wake()
    selector.wake()
    assert [] == selector.select(None)
    assert [] == selector.select(0)


def test_wake_has_no_effect_after_close(selector: ConnectionSelector, pairs: list[Pair]) -> None:
    """The number of the closed file may be that of another one, which gets no bytes then."""
    selector.close()
    again = [socket.socketpair() for _ in range(3)]
    selector.wake()
    ends = [each for pair in again for each in pair]
    for each in ends:
        each.setblocking(False)
        with pytest.raises(BlockingIOError):
            each.recv(1)
    for each in ends:
        each.close()


def test_a_call_of_another_thread_ends_a_wait() -> None:
    loop = ConnectionEventLoop()

    async def main() -> None:
        done = asyncio.Event()
        thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(done.set))
        thread.start()
        await asyncio.wait_for(done.wait(), 60)
        thread.join()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())


def test_a_peer_that_is_gone_makes_a_connection_readable(
    selector: ConnectionSelector, pairs: list[Pair]
) -> None:
    (ours, theirs), *_ = pairs
    calls: list[bytes] = []
    selector.add_reader(ours.fileno(), lambda: calls.append(ours.recv(10)))
    theirs.close()
    selector.select(0)
    assert [b""] == calls


def test_a_connection_may_be_registered_as_writable_meanwhile(
    selector: ConnectionSelector, pairs: list[Pair]
) -> None:
    (ours, theirs), *_ = pairs
    calls: list[bytes] = []
    selector.add_reader(ours.fileno(), lambda: calls.append(ours.recv(10)))
    key = selector.register(ours.fileno(), selectors.EVENT_WRITE, "data")
    theirs.send(b"a")

    assert [(key, selectors.EVENT_WRITE)] == selector.select(0)
    assert [b"a"] == calls
    selector.remove_reader(ours.fileno())
    theirs.send(b"b")
    assert [(key, selectors.EVENT_WRITE)] == selector.select(0)
    selector.add_reader(ours.fileno(), lambda: calls.append(ours.recv(10)))
    assert key == selector.unregister(ours.fileno())
    assert [] == selector.select(0)
    assert [b"a", b"b"] == calls


def test_a_connection_that_another_one_closed_is_not_called(
    selector: ConnectionSelector, pairs: list[Pair]
) -> None:
    (first, first_peer), (second, second_peer), _ = pairs
    calls: list[socket.socket] = []

    def call(mine: socket.socket, other: socket.socket) -> None:
        calls.append(mine)
        selector.remove_reader(other.fileno())

    selector.add_reader(first.fileno(), lambda: call(first, second))
    selector.add_reader(second.fileno(), lambda: call(second, first))
    first_peer.send(b"a")
    second_peer.send(b"b")
    selector.select(0)
    assert 1 == len(calls)


def test_a_connection_with_the_number_of_a_closed_one_is_not_called_for_it(
    selector: ConnectionSelector, pairs: list[Pair]
) -> None:
    (first, first_peer), (second, second_peer), _ = pairs
    calls: list[str] = []

    def replace(other: socket.socket) -> None:
        calls.append("replaced")
        selector.remove_reader(other.fileno())
        selector.add_reader(other.fileno(), lambda: calls.append("called"))

    selector.add_reader(first.fileno(), lambda: replace(second))
    selector.add_reader(second.fileno(), lambda: replace(first))
    first_peer.send(b"a")
    second_peer.send(b"b")
    selector.select(0)
    assert ["replaced"] == calls


def test_an_event_is_not_for_a_file_that_was_registered_after_it_was_found(
    selector: ConnectionSelector, pairs: list[Pair]
) -> None:
    (first, first_peer), (second, second_peer), _ = pairs

    def replace() -> None:
        selector.unregister(second.fileno())
        selector.register(second.fileno(), selectors.EVENT_READ, "another")

    selector.register(second.fileno(), selectors.EVENT_READ, "one")
    selector.add_reader(first.fileno(), replace)
    first_peer.send(b"a")
    second_peer.send(b"b")
    assert [] == selector.select(0)
    first.recv(1)
    assert ["another"] == [key.data for key, _ in selector.select(0)]


def test_a_key_that_a_callback_replaced_is_not_returned(
    selector: ConnectionSelector, pairs: list[Pair]
) -> None:
    """asyncio would unregister the new one, whose handle it takes for the cancelled one."""
    (first, first_peer), (second, second_peer), _ = pairs

    def replace() -> None:
        second.recv(1)
        selector.modify(first.fileno(), selectors.EVENT_READ, "another")

    selector.register(first.fileno(), selectors.EVENT_READ, "one")
    selector.add_reader(second.fileno(), replace)
    first_peer.send(b"a")
    second_peer.send(b"b")
    assert [] == selector.select(0)
    assert ["another"] == [key.data for key, _ in selector.select(0)]


def test_a_callback_that_fails_does_not_keep_others_from_their_turn(
    selector: ConnectionSelector, pairs: list[Pair], caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(0)
        raise ValueError("broken")

    for ours, theirs in pairs:
        selector.add_reader(ours.fileno(), fail)
        theirs.send(b"a")
    selector.select(0)
    assert [0, 0, 0] == calls
    assert "the callback of a readable connection failed" in caplog.text


def test_a_turn_is_bounded_and_the_next_one_begins_with_the_others(selector: ConnectionSelector) -> None:
    pairs = [socket.socketpair() for _ in range(EVENTS_PER_TURN_MAX + 10)]
    calls: list[int] = []
    for ours, theirs in pairs:
        selector.add_reader(ours.fileno(), partial(calls.append, ours.fileno()))
        theirs.send(b"a")
    selector.select(0)
    assert EVENTS_PER_TURN_MAX == len(calls)
    selector.select(0)
    assert len(pairs) == len(set(calls))
    for pair in pairs:
        for each in pair:
            each.close()


def test_it_is_a_selector_otherwise(selector: ConnectionSelector, pairs: list[Pair]) -> None:
    (ours, theirs), *_ = pairs
    key = selector.register(ours, selectors.EVENT_READ, "data")
    assert key == selector.get_key(ours)
    assert [ours.fileno()] == list(selector.get_map())
    with pytest.raises(KeyError, match="already registered"):
        selector.register(ours.fileno(), selectors.EVENT_READ)
    with pytest.raises(ValueError, match="Invalid events"):
        selector.register(theirs, 0)
    with pytest.raises(KeyError, match="not registered"):
        selector.modify(theirs, selectors.EVENT_READ)
    with pytest.raises(KeyError, match="not registered"):
        selector.unregister(theirs)
    with pytest.raises(KeyError, match="not registered"):
        selector.get_key(theirs)
    theirs.send(b"a")
    assert [(key, selectors.EVENT_READ)] == selector.select(None)
    changed = selector.modify(ours, selectors.EVENT_WRITE, "other")
    assert [(changed, selectors.EVENT_WRITE)] == selector.select(0.01)
    ours.close()
    assert changed == selector.unregister(ours)
    with pytest.raises(ValueError, match="Invalid file object"):
        selector.unregister(ours)
    assert 0 == len(selector.get_map())
    assert [] == selector.select(0.001)


def test_other_loops_call_connections_themselves() -> None:
    loop = asyncio.SelectorEventLoop()
    assert loop is readers_of(loop)
    loop.close()


@pytest.mark.parametrize(("module", "name"), [(select, "epoll"), (os, "eventfd")])
def test_a_system_that_lacks_what_it_needs_has_another_loop(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    monkeypatch.delattr(module, name)
    loop = new_event_loop()
    assert loop is readers_of(loop)
    loop.close()


def test_asyncio_runs_on_it(pairs: list[Pair]) -> None:
    (ours, theirs), *_ = pairs

    async def main() -> bytes:
        loop = asyncio.get_running_loop()
        received: asyncio.Future[bytes] = loop.create_future()
        readers_of(loop).add_reader(ours.fileno(), lambda: received.set_result(ours.recv(10)))
        theirs.setblocking(False)
        await loop.sock_sendall(theirs, b"hello")
        answer = await received
        readers_of(loop).remove_reader(ours.fileno())
        await asyncio.to_thread(lambda: None)
        return answer

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert b"hello" == runner.run(main())


class Waits:
    """A poll set and a clock in one: each wait ends after the next of the given times."""

    def __init__(self, seconds: list[float]) -> None:
        self.now = 0.0
        self.asked: list[float] = []
        self._seconds = iter(seconds)
        self._ready_at: float | None = None

    def poll(self, timeout: float, _: int) -> list[tuple[int, int]]:
        if self._ready_at is None:
            self._ready_at = self.now + next(self._seconds)
        self.asked.append(timeout)
        self.now += 0.000_010
        if timeout:
            self.now = max(self.now, self._ready_at)
        if self.now < self._ready_at:
            return []
        self._ready_at = None
        return [(-1, select.EPOLLIN)]


def busy_selector(monkeypatch: pytest.MonkeyPatch, seconds: list[float]) -> tuple[ConnectionSelector, Waits]:
    waits = Waits(seconds)
    selector = ConnectionSelector(lambda: waits.now)
    selector.close()
    monkeypatch.setattr(selector, "_epoll", waits)
    selector.busy_poll_seconds = 0.000_100
    return selector, waits


def sleeps(selector: ConnectionSelector, waits: Waits) -> bool:
    """Wait once; return whether the thread slept for it."""
    waits.asked.clear()
    selector.select(None)
    return -1 in waits.asked


def test_waits_are_busy_once_those_before_were_short(monkeypatch: pytest.MonkeyPatch) -> None:
    selector, waits = busy_selector(monkeypatch, [0.000_050] * 100)
    assert [True] * HITS_BEFORE_BUSY + [False] * 20 == [
        sleeps(selector, waits) for _ in range(HITS_BEFORE_BUSY + 20)
    ]


def test_waits_that_are_too_long_are_not_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    selector, waits = busy_selector(monkeypatch, [0.000_150] * 100)
    for _ in range(100):
        assert sleeps(selector, waits)
        # Once before sleeping, and then once with a timeout: nothing is polled in between.
        assert [0, -1] == waits.asked


def test_a_busy_poll_that_finds_nothing_is_not_repeated_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    selector, waits = busy_selector(monkeypatch, [0.000_050] * 50 + [1.0] * 50)
    for _ in range(50):
        selector.select(None)
    polled = []
    for _ in range(50):
        assert sleeps(selector, waits)
        polled.append(len(waits.asked))
    assert all(each > 2 for each in polled[:3])
    assert {2} == set(polled[3:])


def test_a_selector_sleeps_at_once_unless_it_may_poll_busily(monkeypatch: pytest.MonkeyPatch) -> None:
    selector, waits = busy_selector(monkeypatch, [0.000_050] * 50)
    selector.busy_poll_seconds = 0
    for _ in range(50):
        selector.select(None)
    assert [-1] * 50 == waits.asked


def test_a_turn_that_does_not_wait_polls_once(monkeypatch: pytest.MonkeyPatch) -> None:
    selector, waits = busy_selector(monkeypatch, [0.000_050] * 50)
    assert [] == selector.select(0)
    assert [0] == waits.asked


@pytest.mark.parametrize(("processors", "seconds"), [({0, 1}, 0.000_1), ({1}, 0.0)])
def test_the_loop_of_a_broker_polls_busily_if_others_can_run_meanwhile(
    monkeypatch: pytest.MonkeyPatch, processors: set[int], seconds: float
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: processors)
    loop = ConnectionEventLoop()
    try:
        poll_busily(loop, 0.000_1)
        selector = readers_of(loop)
        assert isinstance(selector, ConnectionSelector)
        assert seconds == selector.busy_poll_seconds
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("module", "function", "threads"),
    [
        ("gevent.monkey", "is_module_patched", "threading"),
        ("eventlet.patcher", "is_monkey_patched", "thread"),
    ],
)
def test_replaced_threads_are_noticed(
    monkeypatch: pytest.MonkeyPatch, module: str, function: str, threads: str
) -> None:
    """Also where the program has imported them and replaces other modules only."""
    found: list[bool] = []
    for replaced in ("socket", threads):
        library = ModuleType(module)
        setattr(library, function, replaced.__eq__)
        monkeypatch.setitem(sys.modules, module, library)
        found.append(threads_are_greenlets())
    assert [False, True] == found
