"""Spreads calls that can wait over turns of the event loop: a stream that ends has many answers."""

from collections import deque
from collections.abc import Callable
from typing import Final

from kalda.broker.nats.ended_removal import EndedRemoval


class LaterCalls:
    """The calls that wait; what they are for was bounded where it waited before."""

    def __init__(self) -> None:
        self._calls: Final[deque[Callable[[], object]]] = deque()
        self._turns: Final = EndedRemoval(self._make_some)

    def add(self, call: Callable[[], object]) -> None:
        """Make a call after all earlier ones."""
        self._calls.append(call)
        self._turns.soon()

    def _make_some(self, count_max: int) -> bool:
        for _ in range(min(count_max, len(self._calls))):
            self._calls.popleft()()
        return bool(self._calls)
