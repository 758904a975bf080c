"""How a loop spends its time."""

import asyncio
from typing import Any, cast

import pytest

from kalda.common import measured_loop
from kalda.common.measured_loop import IdleShare, MeasuredEventLoop, run_measured


class Loop:
    """A loop whose waiting time is set by the test."""

    waited_seconds = 0.0


def test_share_is_that_of_the_last_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_loop, "monotonic", lambda: 0.0)
    loop = Loop()
    share = IdleShare(cast("Any", loop))
    assert 1.0 == share.read(0.0)
    for now, waited, expected in (
        (10.0, 10.0, 1.0),
        (20.0, 10.0, 0.5),
        (40.0, 10.0, 0.0),
        (50.0, 20.0, 10 / 30),
        (500.0, 470.0, 1.0),
    ):
        loop.waited_seconds = waited
        assert expected == pytest.approx(share.read(now)), now


def test_many_readings_keep_few_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_loop, "monotonic", lambda: 0.0)
    share = IdleShare(cast("Any", Loop()))
    for number in range(100_000):
        share.read(number / 100)
    assert len(share._marks) < 40


def test_waiting_and_working_are_told_apart() -> None:
    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, MeasuredEventLoop)
        waited = loop.waited_seconds
        await asyncio.sleep(0.01)
        return loop.waited_seconds - waited, loop.busy_seconds

    waited, busy = run_measured(main())
    assert waited > 0
    assert busy > 0
