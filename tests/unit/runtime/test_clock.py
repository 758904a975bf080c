"""The clocks."""

import pytest

from kalda.runtime.clock import ManualClock
from kalda.runtime.system import clock as system_clock
from kalda.runtime.system.clock import SystemClock


def test_time_is_never_before_1970(monkeypatch: pytest.MonkeyPatch) -> None:
    """A negative time means "none" in Kafka's formats: groups and commits failed on such a machine."""
    monkeypatch.setattr(system_clock, "time_ns", lambda: -1)
    assert 0 == SystemClock().time_ms()
    clock = ManualClock(5)
    clock.jump(-1)
    assert 0 == clock.time_ms()
    clock.jump(1)
    assert 5 == clock.time_ms()
