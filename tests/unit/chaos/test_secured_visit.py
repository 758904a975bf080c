"""Visits of brokers that go away."""

import select
import socket
import ssl
import struct
from typing import Any

import pytest

from tests.chaos.secured_visit import NoAnswerError, Visit


def test_a_connection_that_is_reset_before_the_handshake_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unclosed socket is a warning, and here a warning is an error."""
    connect = socket.create_connection

    with socket.create_server(("127.0.0.1", 0)) as server:

        def connect_and_reset(*given: Any) -> socket.socket:
            plain = connect(*given)
            accepted, _ = server.accept()
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()
            select.select([plain], [], [])
            return plain

        monkeypatch.setattr(socket, "create_connection", connect_and_reset)
        with pytest.raises(NoAnswerError, match=r"127\.0\.0\.1"):
            Visit(f"127.0.0.1:{server.getsockname()[1]}", ssl.create_default_context())
