"""Ends the running parts of the server in order: streams when a shutdown begins, connections at its end."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

logger: Final = logging.getLogger(__name__)


class Lifetime:
    """The end of a process's services."""

    def __init__(self) -> None:
        self._on_stop: Final[list[Callable[[], None]]] = []
        self._on_close: Final[list[Callable[[], Awaitable[None]]]] = []
        self._is_stopping = False

    def on_stop(self, call: Callable[[], None]) -> None:
        """Call a function when a shutdown begins, before it waits for the responses under way."""
        self._on_stop.append(call)

    def on_close(self, call: Callable[[], Awaitable[None]]) -> None:
        """Await a function when no request is under way any more; the last one that was added comes first."""
        self._on_close.append(call)

    def stop(self) -> None:
        """Begin the shutdown; a second call does nothing."""
        if not self._is_stopping:
            self._is_stopping = True
            for call in self._on_stop:
                call()

    async def close(self) -> None:
        """Close all parts, even when some fail."""
        self.stop()
        while self._on_close:
            try:
                await self._on_close.pop()()
            except Exception:
                logger.exception("a part of the server could not be ended")
