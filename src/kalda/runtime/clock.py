"""Defines the port for time: code that needs the time takes a `Clock`, so that tests can control it."""

from typing import Protocol


class Clock(Protocol):
    """Two readings of time; they are never mixed."""

    def time_ms(self) -> int:
        """Wall-clock milliseconds since the epoch: for record timestamps and retention, may jump.

        Never below 0, also where the machine's clock is before 1970: in Kafka's formats a negative time means
        that there is none.
        """
        ...

    def time_ns(self) -> int:
        """Wall-clock nanoseconds since the epoch, also below 0."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: for time-outs and latencies."""
        ...


class OffsetClock:
    """Another clock, with a wall clock that may be wrong."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.offset_ms = 0
        """How far the wall clock is ahead; below 0, behind."""
        # No method, whose frame every request would pay for.
        self.monotonic = clock.monotonic

    def time_ms(self) -> int:
        """Return wall-clock milliseconds with the offset."""
        return max(self._clock.time_ms() + self.offset_ms, 0)

    def time_ns(self) -> int:
        """Return wall-clock nanoseconds with the offset."""
        return self._clock.time_ns() + self.offset_ms * 1_000_000


class ManualClock:
    """A clock that moves only in `advance` and `jump`; `advance` moves both readings together."""

    def __init__(self, time_ms: int = 1_700_000_000_000) -> None:
        self._time_ms = time_ms
        self._monotonic = 0.0

    def time_ms(self) -> int:
        """Return the wall-clock milliseconds set so far."""
        return max(self._time_ms, 0)

    def time_ns(self) -> int:
        """Return the wall-clock nanoseconds set so far."""
        return self._time_ms * 1_000_000

    def monotonic(self) -> float:
        """Return the seconds advanced so far."""
        return self._monotonic

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator or NTP may; monotonic time stands still."""
        self._time_ms += round(seconds * 1000)

    def advance(self, seconds: float) -> None:
        """Move both readings forward."""
        assert seconds >= 0, f"time does not go back, got {seconds}"
        self._time_ms += round(seconds * 1000)
        self._monotonic += seconds
