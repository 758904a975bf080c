"""What guards all tests can tell: who leaves something is named."""

import gc
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

from tests import leftovers
from tests.leftovers import Belongings


@pytest.fixture
def ending() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_thread_that_goes_on_is_named(ending: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "SECONDS_MAX", 0.01)
    before = Belongings.now()
    thread = threading.Thread(target=ending.wait, name="goes-on", daemon=True)
    thread.start()
    assert ["thread goes-on"] == before.added()
    ending.set()
    thread.join()
    assert [] == before.added()


def test_a_thread_that_is_about_to_end_is_waited_for(ending: threading.Event) -> None:
    before = Belongings.now()
    first = threading.Thread(target=ending.wait, name="first")

    def start_another() -> None:
        first.start()
        ending.set()

    threading.Thread(target=start_another, name="second").start()
    assert [] == before.added()
    assert not first.is_alive()


def test_a_thread_that_is_only_being_started_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python lists it before it runs, and cannot join it then."""
    before = Belongings.now()
    starting = threading.Thread(target=int, name="starting")
    looks = iter([{starting}, {starting}, set()])
    monkeypatch.setattr(leftovers, "enumerate_threads", lambda: before.threads | next(looks))
    assert [] == before.added()


def test_a_socket_that_stays_open_is_named() -> None:
    before = Belongings.now()
    with socket.create_server(("127.0.0.1", 0)) as server:
        (left,) = before.added()
        assert f"(LISTEN) from addr(ip='127.0.0.1', port={server.getsockname()[1]})" in left
    assert [] == before.added()


def test_a_socket_that_nobody_can_close_any_more_warns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a cycle only the collector finds it; were it later, some other test would fail for it."""
    warnings: list[BaseException | None] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: warnings.append(told.exc_value))
    before = Belongings.now()
    gc.disable()
    try:
        cycle: list[object] = [socket.create_server(("127.0.0.1", 0))]
        cycle.append(cycle)
        del cycle
        assert 1 == len(leftovers.open_sockets().keys() - before.sockets)
        assert [] == before.added()
    finally:
        gc.enable()
    (warning,) = warnings
    assert isinstance(warning, ResourceWarning)
    assert set() == leftovers.open_sockets().keys() - before.sockets
