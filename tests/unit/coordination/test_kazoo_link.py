"""How a link opens connections for kazoo's thread while its owner, on the loop, ends the session."""

import asyncio
import socket
from typing import cast

import pytest

from kalda.coordination.client_calls import Inbox
from kalda.coordination.kazoo_link import Connector, Link, LinkOwner

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
