"""The hierarchical timing wheel on a clock that the test holds."""

import pytest

from kalda.common.timing_wheel import TimingWheel
from kalda.runtime.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def advance(wheel: TimingWheel[str], clock: ManualClock, milliseconds: int) -> list[str]:
    clock.advance(milliseconds / 1000)
    return wheel.advance()


def test_worked_example_expires_each_task_at_its_time(clock: ManualClock) -> None:
    """The example of the module's docstring, step by step."""
    wheel = TimingWheel[str](clock, tick_ms=1, wheel_size=3)
    for delay_ms in (2, 5, 13):
        wheel.add(f"due at {delay_ms}", delay_ms)
    expired_at = {now: expired for now in range(1, 15) if (expired := advance(wheel, clock, 1))}
    assert {2: ["due at 2"], 5: ["due at 5"], 13: ["due at 13"]} == expired_at
    assert 0 == len(wheel)


def test_overflow_wheels_are_made_only_when_needed(clock: ManualClock) -> None:
    wheel = TimingWheel[str](clock, tick_ms=1, wheel_size=3)
    wheel.add("in level 0", 2)
    assert 1 == wheel.level_count
    wheel.add("in level 1", 8)
    assert 2 == wheel.level_count
    wheel.add("in level 2", 26)
    assert 3 == wheel.level_count


def test_nothing_expires_before_its_delay(clock: ManualClock) -> None:
    """A time-out that fires early breaks promises; one that fires within a tick of its time does not."""
    wheel = TimingWheel[str](clock, tick_ms=10, wheel_size=4)
    clock.advance(0.003)
    wheel.add("due at 103", 100)
    assert [] == advance(wheel, clock, 99)
    assert [] == advance(wheel, clock, 1)
    assert ["due at 103"] == advance(wheel, clock, 7)


def test_tasks_of_one_tick_expire_in_the_order_they_came(clock: ManualClock) -> None:
    wheel = TimingWheel[str](clock)
    for name in "abc":
        wheel.add(name, 7)
    assert ["a", "b", "c"] == advance(wheel, clock, 7)


def test_long_step_returns_everything_due_earliest_first(clock: ManualClock) -> None:
    """The loop may be late: what is due comes in order of time, not of level."""
    wheel = TimingWheel[str](clock, tick_ms=1, wheel_size=3)
    for delay_ms in (700, 3, 90, 26, 1):
        wheel.add(str(delay_ms), delay_ms)
    assert ["1", "3", "26", "90", "700"] == advance(wheel, clock, 1000)


def test_cancelled_task_never_expires(clock: ManualClock) -> None:
    wheel = TimingWheel[str](clock)
    entry = wheel.add("cancelled", 30)
    wheel.add("kept", 30)
    assert entry.cancel()
    assert not entry.is_waiting
    assert not entry.cancel()
    assert 1 == len(wheel)
    assert ["kept"] == advance(wheel, clock, 30)


def test_cancel_after_expiry_says_so(clock: ManualClock) -> None:
    wheel = TimingWheel[str](clock)
    entry = wheel.add("due", 1)
    assert ["due"] == advance(wheel, clock, 1)
    assert not entry.cancel()
    assert 0 == len(wheel)


def test_negative_delay_is_due_with_the_next_tick(clock: ManualClock) -> None:
    wheel = TimingWheel[str](clock)
    clock.advance(0.0005)
    wheel.add("late", -5)
    assert ["late"] == advance(wheel, clock, 1)


def test_delay_of_a_client_without_limit_is_kept(clock: ManualClock) -> None:
    """`fetch.max.wait.ms` may be the largest int32, and an int64 must not break the wheel either."""
    wheel = TimingWheel[str](clock)
    wheel.add("25 days", 2**31 - 1)
    entry = wheel.add("for ever", 2**63 - 1)
    assert [] == advance(wheel, clock, 2**31 - 2)
    assert ["25 days"] == advance(wheel, clock, 1)
    assert entry.is_waiting


def test_next_deadline_is_none_while_nothing_waits(clock: ManualClock) -> None:
    wheel = TimingWheel[str](clock)
    assert wheel.next_deadline() is None
    entry = wheel.add("cancelled", 5)
    entry.cancel()
    assert wheel.next_deadline() is None


def test_next_deadline_leads_to_every_expiry(clock: ManualClock) -> None:
    """The driver sleeps until `next_deadline`; doing only that must not miss or delay anything."""
    wheel = TimingWheel[str](clock, tick_ms=1, wheel_size=3)
    for delay_ms in (2, 5, 13, 200):
        wheel.add(str(delay_ms), delay_ms)
    expired = []
    while (deadline := wheel.next_deadline()) is not None:
        clock.advance(max(0.0, deadline - clock.monotonic()))
        expired += [(round(clock.monotonic() * 1000), task) for task in wheel.advance()]
    assert [(2, "2"), (5, "5"), (13, "13"), (200, "200")] == expired


def test_cancelled_tasks_do_not_wake_the_driver(clock: ManualClock) -> None:
    """Most delayed fetches are cancelled: an alarm for each would cost more than the fetches."""
    wheel = TimingWheel[str](clock)
    for delay_ms in range(1, 15):
        wheel.add("cancelled", delay_ms).cancel()
    wheel.add("kept", 18)
    deadline = wheel.next_deadline()
    assert pytest.approx(0.018) == deadline


def test_bucket_is_used_again_after_a_turn(clock: ManualClock) -> None:
    """A task cancelled in a bucket must not make the bucket's next task early."""
    wheel = TimingWheel[str](clock, tick_ms=1, wheel_size=4)
    wheel.add("cancelled", 2).cancel()
    assert [] == advance(wheel, clock, 1)
    wheel.add("due at 5", 4)
    clock.advance(0.001)
    wheel.add("due at 4", 2)
    assert [] == wheel.advance()
    assert ["due at 4"] == advance(wheel, clock, 2)
    assert ["due at 5"] == advance(wheel, clock, 1)


def test_add_after_a_long_pause_is_on_time(clock: ManualClock) -> None:
    """While nothing waits nobody advances the wheel, so its own time is far behind when a task comes."""
    wheel = TimingWheel[str](clock)
    clock.advance(86_400)
    wheel.add("due", 50)
    assert [] == advance(wheel, clock, 49)
    assert ["due"] == advance(wheel, clock, 1)
