"""Calls on their way between an event loop and the thread of a client library, and what comes back.

Nothing here knows which library. What must not be broken: the inbox keeps the order in which things came.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from kalda.zk.client.zookeeper_errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)


class CallLink(Protocol):
    """What a call was given to."""

    def answer(self, call: "Call", raw: object, failure: Exception | None) -> None:
        """Take an answer, from any thread."""
        ...


class Call:
    """One request, and who waits for its answer.

    kazoo takes it for an async result: from its thread it calls `set` or `set_exception`, sometimes twice.
    What `Any` stands for here is the library's, which has no types.
    """

    __slots__ = ("convert", "group", "index", "link", "on_error", "path", "request", "sent_at")

    def __init__(self, request: Any, path: str, convert: Callable[[Any], object]) -> None:
        self.request = request
        self.path = path
        self.convert = convert
        self.group: CallGroup | None = None
        """None for a call that nobody awaits: one that arms a watch again."""
        self.index = 0
        self.link: CallLink
        self.sent_at = 0.0
        self.on_error: Callable[[ZooKeeperError], None] | None = None

    @property
    def is_abandoned(self) -> bool:
        """Whether whoever waited was cancelled."""
        return self.group is not None and self.group.is_abandoned

    def succeed(self, raw: object) -> None:
        """Take the answer; on the loop."""
        result = self.convert(raw)
        if self.group is not None:
            self.group.complete(self.index, result)

    def fail(self, error: ZooKeeperError) -> None:
        """Take an error; on the loop."""
        if self.group is not None:
            self.group.complete(self.index, error)
        elif self.on_error is not None:
            self.on_error(error)

    # Called by kazoo.

    def set(self, value: object = None) -> None:
        """Take the answer; on kazoo's thread."""
        self.link.answer(self, value, None)

    def set_exception(self, exception: Exception) -> None:
        """Take an error; on kazoo's thread."""
        self.link.answer(self, None, exception)


class CallGroup:
    """Calls that are awaited together: one future for all of them."""

    __slots__ = ("_future", "_missing", "_outcomes")

    def __init__(self, calls: Sequence[Call]) -> None:
        self._outcomes: list[Any] = [None] * len(calls)
        self._missing = len(calls)
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for index, call in enumerate(calls):
            call.group = self
            call.index = index

    @property
    def is_abandoned(self) -> bool:
        """Whether the wait was cancelled."""
        return self._future.cancelled()

    def complete(self, index: int, outcome: object) -> None:
        """Take a result or an error."""
        self._outcomes[index] = outcome
        self._missing -= 1
        if not self._missing and not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> list[Any]:
        """Return what all have come to."""
        if self._missing:
            await self._future
        return self._outcomes


class Inbox:
    """What other threads have for the loop, in the order of its arrival; one wake-up for all that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_emptied: Callable[[], None]) -> None:
        self._loop = loop
        self._on_emptied = on_emptied
        self._items: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_woken = False

    def post(self, function: Callable[..., None], *arguments: object) -> None:
        """Have `function` called on the loop; from any thread."""
        self._items.append((function, arguments))
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._empty)
            except RuntimeError:
                # The loop is closed: nobody is left to be told.
                logger.debug("the event loop ended before its ZooKeeper session")

    def _empty(self) -> None:
        # Cleared first: what is added from now on wakes the loop again, at worst for nothing.
        self._is_woken = False
        items = self._items
        while items:
            function, arguments = items.popleft()
            try:
                function(*arguments)
            except Exception:
                # Most likely a watch's callback or a listener; what stands behind it must go on.
                logger.exception("taking what ZooKeeper said failed")
        self._on_emptied()
