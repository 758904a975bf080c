"""How a link stands between kazoo's thread and its owner on the loop."""

import asyncio
import socket
from typing import cast

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.states import KeeperState

from kalda.zk.client.kazoo.calls import Call, Inbox
from kalda.zk.client.kazoo.link import Connector, Link, LinkOwner

ADDRESS = ("127.0.0.1", 2181)


class FakeSocket:
    """Knows whether it was closed."""

    is_closed = False

    def setsockopt(self, *_: int) -> None:
        """Take an option."""

    def shutdown(self, _: int) -> None:
        """Cut, or say that there is nothing to cut any more."""
        if self.is_closed:
            raise OSError("not connected")

    def close(self) -> None:
        """Close."""
        self.is_closed = True


async def test_a_connection_that_comes_after_the_end_is_closed() -> None:
    """kazoo closes what it was given; what it is refused, nobody else would close."""
    opened = FakeSocket()

    def connect(address: tuple[str, int], timeout_seconds: float) -> socket.socket:
        link.end()
        return cast(socket.socket, opened)

    connector = Connector("127.0.0.1:2181", 10_000, connect)
    inbox = Inbox(asyncio.get_running_loop(), lambda: None)
    link = Link(cast(LinkOwner, None), inbox, connector, None, 0)

    with pytest.raises(ConnectionAbortedError):
        link.connect_socket(ADDRESS)

    assert opened.is_closed


class Told:
    """An owner that notes what it is told, in order."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def on_connected(self, link: Link, session_id: int) -> None:
        """Note it."""
        self.words.append("connected")

    def on_suspended(self, link: Link) -> None:
        """Note it."""
        self.words.append("suspended")

    def on_answer(self, link: Link, call: Call, raw: object, failure: Exception | None) -> None:
        """Note it."""
        self.words.append(f"answer {type(failure).__name__}")


async def test_a_lost_connection_is_told_before_the_calls_that_it_cost() -> None:
    """kazoo does it the other way round: who is told of a loss would call again on what is lost already."""
    told = Told()
    inbox = Inbox(asyncio.get_running_loop(), lambda: None)
    link = Link(cast(LinkOwner, told), inbox, Connector("127.0.0.1:2181", 10_000, refuse), None, 0)
    client = link._client
    client._session_callback(KeeperState.CONNECTED)
    call = Call("a request", "/a", lambda raw: raw)
    call.link = link
    client._pending.append((call.request, call, 1))

    client._session_callback(KeeperState.CONNECTING)
    await asyncio.sleep(0)

    assert ["connected", "suspended", "answer ConnectionLoss"] == told.words[:3]


async def test_a_server_that_answers_with_a_lost_connection_does_not_suspend_the_session() -> None:
    told = Told()
    inbox = Inbox(asyncio.get_running_loop(), lambda: None)
    link = Link(cast(LinkOwner, told), inbox, Connector("127.0.0.1:2181", 10_000, refuse), None, 0)
    link._client._session_callback(KeeperState.CONNECTED)
    call = Call("a request", "/a", lambda raw: raw)

    link.answer(call, None, ConnectionLoss())
    await asyncio.sleep(0)

    assert ["connected", "answer ConnectionLoss"] == told.words


def refuse(address: tuple[str, int], timeout_seconds: float) -> socket.socket:
    """Open no connection."""
    raise ConnectionRefusedError
