"""Requests that come before the controller has spoken: held in order, bounded; its own are served."""

import struct
from typing import cast

import pytest

from kalda.broker.requests import early_requests
from kalda.broker.requests.early_requests import EarlyRequests
from kalda.broker.requests.handlers import HANDLERS
from kalda.common.api_keys import ApiKey
from kalda.net.connection import Connection


class FakeConnection:
    """As much of a connection as is used."""

    def __init__(self, number: int, rig: "Rig") -> None:
        self.id = number
        self.is_closed = False
        self._rig = rig

    def keep(self, frame: memoryview) -> bytearray:
        return bytearray(frame)

    def handle_kept(self, frame: memoryview) -> None:
        self._rig.early.on_frame(cast(Connection, self), frame)

    def close(self, reason: str, level: int = 0) -> None:
        self.is_closed = True


class Rig:
    def __init__(self) -> None:
        self.handled: list[tuple[int, bytes]] = []
        self.early = EarlyRequests(
            lambda connection, frame: self.handled.append((connection.id, bytes(frame))),
            frozenset(handler.key for handler in HANDLERS if handler.is_served_early),
        )

    def frame(self, connection: FakeConnection, key: ApiKey, rest: bytes = b"") -> bytes:
        """Have a request come in; return its frame, whose memory is used again at once, as a server does."""
        data = bytearray(struct.pack(">h", key) + rest)
        frame = bytes(data)
        self.early.on_frame(cast(Connection, connection), memoryview(data))
        data[:] = bytes(len(data))
        return frame


def test_clients_wait_and_are_answered_in_order() -> None:
    rig = Rig()
    one, two = FakeConnection(1, rig), FakeConnection(2, rig)
    frames = [
        (1, rig.frame(one, ApiKey.METADATA, b"a")),
        (2, rig.frame(two, ApiKey.PRODUCE, b"b")),
        (1, rig.frame(one, ApiKey.FETCH, b"c")),
    ]
    assert [] == rig.handled
    rig.early.open()
    assert frames == rig.handled
    frames.append((2, rig.frame(two, ApiKey.FETCH, b"d")))
    assert frames == rig.handled


def test_the_controller_is_served_at_once() -> None:
    """Or nobody would ever be told what there is."""
    rig = Rig()
    controller = FakeConnection(1, rig)
    keys = (ApiKey.API_VERSIONS, ApiKey.UPDATE_METADATA, ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA)
    frames = [(1, rig.frame(controller, key)) for key in keys]
    assert frames == rig.handled


def test_nothing_overtakes_what_is_held_on_its_connection() -> None:
    """Answers go out in the order of the requests."""
    rig = Rig()
    client = FakeConnection(1, rig)
    frames = [(1, rig.frame(client, ApiKey.METADATA)), (1, rig.frame(client, ApiKey.API_VERSIONS))]
    assert [] == rig.handled
    rig.early.open()
    assert frames == rig.handled


def test_a_client_that_left_is_forgotten() -> None:
    rig = Rig()
    client = FakeConnection(1, rig)
    rig.frame(client, ApiKey.METADATA)
    client.is_closed = True
    rig.early.open()
    assert [] == rig.handled


@pytest.mark.parametrize("bound", ["FRAMES_HELD_MAX", "BYTES_HELD_MAX"])
def test_what_is_held_is_bounded(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_requests, bound, {"FRAMES_HELD_MAX": 2, "BYTES_HELD_MAX": 4}[bound])
    rig = Rig()
    polite, greedy = FakeConnection(1, rig), FakeConnection(2, rig)
    rig.frame(polite, ApiKey.METADATA)
    rig.frame(polite, ApiKey.METADATA)
    rig.frame(greedy, ApiKey.METADATA)
    assert greedy.is_closed
    assert not polite.is_closed
    rig.early.open()
    assert 2 == len(rig.handled)


def test_junk_is_held_too() -> None:
    """The dispatcher refuses it, in its turn."""
    rig = Rig()
    client = FakeConnection(1, rig)
    rig.early.on_frame(cast(Connection, client), memoryview(bytearray(b"\0")))
    assert [] == rig.handled


def test_clients_are_sent_away_when_waiting_is_given_up() -> None:
    """Another broker may know more; whoever comes again waits again."""
    rig = Rig()
    client, later = FakeConnection(1, rig), FakeConnection(2, rig)
    rig.frame(client, ApiKey.METADATA)
    rig.early.give_up()
    assert client.is_closed
    frames = [(2, rig.frame(later, ApiKey.METADATA))]
    assert [] == rig.handled
    rig.early.open()
    assert frames == rig.handled
