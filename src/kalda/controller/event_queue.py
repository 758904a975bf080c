"""The order in which an event, and what becomes of its effects, are fed to the core.

Outcomes of writes come first, with all the writes that they lead to: a write that was refused is judged again
and repeated. Brokers are revisited when nothing else is left, because until then the context may still say
that a restarted broker leads, and it would be told so.
"""

from collections import deque
from typing import Final

from kalda.controller.effects import Effect, RevisitBrokers
from kalda.controller.events import Event


class EventQueue:
    """What is still to be fed to the core on account of one event."""

    def __init__(self, event: Event) -> None:
        self._events: Final = deque([event])
        self._last: Final[deque[Event]] = deque()

    def next_event(self) -> Event | None:
        """Take the next event off; None when all is settled."""
        if self._events:
            return self._events.popleft()
        return self._last.popleft() if self._last else None

    def add(self, event: Event) -> None:
        """Put an event behind those that are there."""
        self._events.append(event)

    def add_outcome(self, effect: Effect, outcome: Event) -> None:
        """Put what an effect came to in its place."""
        (self._last if isinstance(effect, RevisitBrokers) else self._events).append(outcome)

    @property
    def is_settled(self) -> bool:
        """Whether the writes so far, and those they led to, are over."""
        return not self._events
