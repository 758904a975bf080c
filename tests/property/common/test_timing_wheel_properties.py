"""Laws of the timing wheel over random schedules of adds, cancels and steps of time."""

from hypothesis import given
from hypothesis import strategies as st

from kalda.common.timing_wheel import TimerEntry, TimingWheel
from kalda.runtime.clock import ManualClock

ADD = st.tuples(st.just("add"), st.one_of(st.integers(-5, 40), st.integers(0, 5_000), st.integers(0, 10**7)))
CANCEL = st.tuples(st.just("cancel"), st.integers(0, 1_000))
STEP = st.tuples(st.just("step"), st.one_of(st.integers(0, 30), st.integers(0, 20_000)))
SCHEDULES = st.lists(st.one_of(ADD, CANCEL, STEP), max_size=120)


@given(schedule=SCHEDULES, tick_ms=st.integers(1, 20), wheel_size=st.integers(2, 24))
def test_each_task_expires_once_and_on_time(
    schedule: list[tuple[str, int]], tick_ms: int, wheel_size: int
) -> None:
    """Exactly once unless cancelled; not before its delay; within a tick when time moves in small steps."""
    clock = ManualClock()
    wheel = TimingWheel[int](clock, tick_ms, wheel_size)
    now_ms = 0
    entries: list[tuple[TimerEntry[int], int]] = []
    cancelled: set[int] = set()
    expired: list[int] = []

    def step(milliseconds: int) -> None:
        nonlocal now_ms
        clock.advance(milliseconds / 1000)
        now_ms += milliseconds
        for task in wheel.advance():
            due_ms = entries[task][1]
            assert due_ms <= now_ms + 1e-6, f"task due at {due_ms} expired at {now_ms}"
            assert now_ms - milliseconds < due_ms + tick_ms + 1e-6, f"due at {due_ms}, missed before {now_ms}"
            expired.append(task)

    for action, argument in schedule:
        if action == "add":
            task = len(entries)
            entries.append((wheel.add(task, argument), now_ms + max(argument, 0)))
        elif action == "cancel" and entries:
            task = argument % len(entries)
            if entries[task][0].cancel():
                assert task not in expired
                cancelled.add(task)
        elif action == "step":
            step(argument)
        assert len(wheel) == len(entries) - len(expired) - len(cancelled)

    while (deadline := wheel.next_deadline()) is not None:
        # What the driver does: sleep until the deadline and no longer.
        step(max(1, round(deadline * 1000) - now_ms))
    assert sorted(expired) == sorted(set(range(len(entries))) - cancelled)


@given(delays_ms=st.lists(st.integers(0, 100_000), max_size=60), wheel_size=st.integers(2, 24))
def test_one_long_step_expires_in_order_of_time(delays_ms: list[int], wheel_size: int) -> None:
    """However late the driver is, earlier time-outs come first; equal ones in the order of their adds."""
    clock = ManualClock()
    wheel = TimingWheel[tuple[int, int]](clock, 1, wheel_size)
    for index, delay_ms in enumerate(delays_ms):
        wheel.add((delay_ms, index), delay_ms)
    clock.advance(101)
    expired = wheel.advance()
    assert sorted(expired) == sorted((delay_ms, index) for index, delay_ms in enumerate(delays_ms))
    assert [delay_ms for delay_ms, _ in expired] == sorted(delays_ms)
