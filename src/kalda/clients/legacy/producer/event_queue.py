"""Holds the events of an async producer between the callers of `send` and the producer's thread."""

import threading
from collections import deque
from typing import Final, Generic, TypeVar, cast

from kalda.clients.held_lock import Reentrant, check_not_held
from kalda.clients.legacy.producer.producer_errors import QueueClosedError

T = TypeVar("T")


class EventQueue(Generic[T]):
    """A bounded queue that can be closed, for many writers and one reader."""

    def __init__(self, size_max: int) -> None:
        self._size_max: Final = size_max
        self._events: Final[deque[T]] = deque()
        self._is_closed = False
        self._changed: Final = threading.Condition()

    def __len__(self) -> int:
        return len(self._events)

    def check_not_inside(self) -> None:
        """Check that the caller did not interrupt a method here that holds the lock.

        Raises:
            IllegalStateError: it did; the queue's reader would wait for it.
        """
        # A caller that waits has released the lock, and goes on when the queue is closed.
        check_not_held(cast(Reentrant, self._changed), "producer", "`send`")

    def put(self, event: T, timeout_ms: int) -> bool:
        """Add an event; return whether there was room for it.

        Args:
            event: The event.
            timeout_ms: How long to wait for room: 0 not at all, a negative number without end.

        Raises:
            QueueClosedError: the queue is closed, or was while this waited.
        """
        with self._changed:
            timeout = None if timeout_ms < 0 else timeout_ms / 1000
            self._changed.wait_for(lambda: self._is_closed or len(self._events) < self._size_max, timeout)
            if self._is_closed:
                raise QueueClosedError("the producer is closed; the event was not added to its queue")
            if len(self._events) >= self._size_max:
                return False
            self._events.append(event)
            self._changed.notify_all()
            return True

    def take(self, count_max: int, timeout_s: float) -> list[T] | None:
        """Return events in order, at most `count_max`; none if the time is up, None at the end of all."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._events, timeout_s)
            if not self._events:
                return None if self._is_closed else []
            taken = [self._events.popleft() for _ in range(min(count_max, len(self._events)))]
            self._changed.notify_all()
            return taken

    def close(self) -> None:
        """Take no more events; those in the queue are still returned."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
