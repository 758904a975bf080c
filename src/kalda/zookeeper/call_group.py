"""Collects the outcomes of calls that are awaited together; both engines of the client use it."""

import asyncio
from typing import Any


class CallGroup:
    """The outcomes of some calls, with one future for all of them.

    A call that completes at once costs no future: `wait` creates it only if an outcome is missing. Each index
    must be completed exactly once, and the group may be waited for once.
    """

    __slots__ = ("_future", "_missing", "_outcomes")

    def __init__(self, count: int) -> None:
        self._outcomes: list[Any] = [None] * count
        self._missing = count
        self._future: asyncio.Future[None] | None = None

    @property
    def is_abandoned(self) -> bool:
        """Whether the wait was cancelled."""
        return self._future is not None and self._future.cancelled()

    def complete(self, index: int, outcome: object) -> None:
        """Record the result or the exception of one call; each index completes exactly once."""
        self._outcomes[index] = outcome
        self._missing -= 1
        if not self._missing and self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> list[Any]:
        """Wait for all calls and return their outcomes in order; an exception is returned, not raised."""
        if self._missing:
            self._future = asyncio.get_running_loop().create_future()
            await self._future
        return self._outcomes
