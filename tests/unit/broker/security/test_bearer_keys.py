"""When the keys of an identity provider are read: by time, after an unknown key, after a file changed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import cast

import pytest

from kalda.broker.security.bearer_keys import BearerKeys, KeysError, KeyTimes
from kalda.security.sasl.signed_token import KeySet
from tests.runtimes import runtime_with
from tests.virtual_time import LoopClock, run_virtual

TIMES = KeyTimes(refresh_ms=60_000, retry_backoff_ms=100, retry_backoff_max_ms=1000)


class Reads:
    """The provider: when it was asked, and whether it answers."""

    def __init__(self, has_file: bool = False) -> None:
        self.at: list[float] = []
        self.is_failing = False
        self.file_state = 0
        self.keys = BearerKeys(
            "L",
            self._read,
            TIMES,
            runtime_with(clock=LoopClock()),
            (lambda: self.file_state) if has_file else None,
        )

    def _read(self) -> KeySet:
        self.at.append(asyncio.get_running_loop().time() - 1000)
        if self.is_failing:
            raise KeysError("the keys cannot be used: down")
        return cast("KeySet", f"keys {len(self.at)}")


def played(reads: Reads, play: Callable[[], Awaitable[None]]) -> list[float]:
    """Return when the keys were read while `play` ran."""

    async def main() -> None:
        await reads.keys.load()
        running = asyncio.create_task(reads.keys.run())
        await play()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run_virtual(main())
    return [round(at, 2) for at in reads.at]


@pytest.fixture(autouse=True)
def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread knows nothing of virtual time."""

    async def call(function: Callable[[], object]) -> object:
        return function()

    monkeypatch.setattr(asyncio, "to_thread", call)


def test_keys_are_read_again_when_they_are_old() -> None:
    assert [0, 60, 120] == played(Reads(), lambda: asyncio.sleep(130))


def test_unknown_keys_cause_a_read_at_a_bounded_rate() -> None:
    """Anyone can send a thousand tokens a second, each with another invented key."""
    reads = Reads()

    async def play() -> None:
        for _ in range(1200):
            reads.keys.request()
            await asyncio.sleep(0.01)

    assert [0, 5, 10] == played(reads, play)


def test_a_provider_that_is_down_is_asked_at_growing_intervals(caplog: pytest.LogCaptureFixture) -> None:
    """The former keys stay in force, and the log has one line for the failure and one for its end."""
    caplog.set_level(logging.INFO)
    reads = Reads()

    async def play() -> None:
        await asyncio.sleep(59)
        reads.is_failing = True
        await asyncio.sleep(4.6)
        assert "keys 1" == cast(object, reads.keys.current)
        reads.is_failing = False
        await asyncio.sleep(2)
        assert "keys 1" != cast(object, reads.keys.current)

    asked = played(reads, play)
    assert [0, 60] == asked[:2]
    waits = [after - before for before, after in pairwise(asked[1:])]
    assert pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0], rel=0.21) == waits[:5], "each is 20 % around its value"
    assert ["ERROR", "INFO"] == [record.levelname for record in caplog.records]


def test_a_changed_file_is_read_soon() -> None:
    """A key that was taken out of it must not count for another hour."""
    reads = Reads(has_file=True)

    async def play() -> None:
        await asyncio.sleep(12)
        reads.file_state = 1
        await asyncio.sleep(28)

    assert [0, 15] == played(reads, play)
