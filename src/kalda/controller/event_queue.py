"""Orders the events of one step: the event that starts it and the outcomes of the effects it leads to.

Outcomes of writes come first, with all the writes that they lead to: a refused write is decided again and
repeated. `RevisitBrokers` comes last, because until the writes are done the context may still name a
restarted broker as leader, and the broker would be sent that leadership.
"""

from collections import deque
from typing import Final

from kalda.controller.effects import Effect, RevisitBrokers
from kalda.controller.events import Event


class EventQueue:
    """The events that the core must still process before the step is complete."""

    def __init__(self, event: Event) -> None:
        self._events: Final = deque([event])
        self._last: Final[deque[Event]] = deque()

    def next_event(self) -> Event | None:
        """Remove and return the next event; None when the step is complete."""
        if self._events:
            return self._events.popleft()
        return self._last.popleft() if self._last else None

    def add(self, event: Event) -> None:
        """Append an event."""
        self._events.append(event)

    def add_outcome(self, effect: Effect, outcome: Event) -> None:
        """Append the outcome of an effect; that of `RevisitBrokers` waits for all others."""
        (self._last if isinstance(effect, RevisitBrokers) else self._events).append(outcome)

    @property
    def is_settled(self) -> bool:
        """Whether all writes so far, and the writes that they led to, have their outcome."""
        return not self._events
