"""Computes when a member sends a heartbeat, and when its session and poll interval expire. Pure.

All times are monotonic seconds. The session expires without a successful heartbeat; the poll interval expires
when the application does not call poll.
"""

from collections.abc import Callable
from typing import Final


class HeartbeatTiming:
    """The timers of one member of a classic group."""

    def __init__(
        self,
        *,
        session_timeout_ms: int,
        heartbeat_interval_ms: int,
        max_poll_interval_ms: int,
        backoff: Callable[[int], float],
    ) -> None:
        """`backoff` returns the seconds before the next attempt after so many failures."""
        self._session_seconds: Final = session_timeout_ms / 1000
        self._interval_seconds: Final = heartbeat_interval_ms / 1000
        self._poll_seconds: Final = max_poll_interval_ms / 1000
        self._backoff: Final = backoff
        self._failures = 0
        self._session_deadline = 0.0
        self.next_heartbeat_at = 0.0
        """When the next heartbeat is due."""
        self.poll_deadline = 0.0
        """When the member leaves the group unless poll is called before."""

    def joined(self, now: float) -> None:
        """Start all timers: the group has a new generation with this member in it."""
        self.session_is_alive(now)
        self.polled(now)
        self.next_heartbeat_at = now + self._interval_seconds

    def polled(self, now: float) -> None:
        """Record a call of `poll`."""
        self.poll_deadline = now + self._poll_seconds

    def sent(self, now: float) -> None:
        """Record that a heartbeat was sent."""
        self.next_heartbeat_at = now + self._interval_seconds

    def session_is_alive(self, now: float) -> None:
        """Record a response that shows that the coordinator considers this member alive."""
        self._failures = 0
        self._session_deadline = now + self._session_seconds

    def failed(self, now: float) -> None:
        """Record a failed heartbeat; the next one follows after a backoff."""
        self._failures += 1
        self.next_heartbeat_at = now + self._backoff(self._failures)

    def is_session_expired(self, now: float) -> bool:
        """Whether the session has expired by the member's clock."""
        return now >= self._session_deadline

    def is_poll_expired(self, now: float) -> bool:
        """Whether the application has not called poll for `max.poll.interval.ms`."""
        return now >= self.poll_deadline
