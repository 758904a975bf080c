"""Removes ended subscriptions in turns of the event loop, since a client or a broker may have very many."""

import asyncio
from collections.abc import Callable
from typing import Final

from kalda.net.connection import TURN_S

_REMOVED_PER_LOOK: Final = 64
"""Subscriptions between two looks at the clock."""


class EndedRemoval:
    """Calls `remove` with a count, in turns, until it returns False because nothing is left."""

    def __init__(self, remove: Callable[[int], bool]) -> None:
        self._remove: Final = remove
        self._is_due = False

    def soon(self) -> None:
        """Begin with the next iteration of the loop, unless the removal is under way."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + TURN_S
        while self._remove(_REMOVED_PER_LOOK):
            if loop.time() >= deadline:
                loop.call_soon(self._turn)
                return
        self._is_due = False
