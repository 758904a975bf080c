"""The selector that calls connections itself is a selector to asyncio, and calls nobody twice or too late."""

import asyncio
import select
import selectors
import socket
from collections.abc import Iterator
from functools import partial

import pytest

from kalda.net.event_loop import EVENTS_PER_TURN_MAX, ConnectionSelector, new_event_loop, readers_of

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
