"""Requests that pass from the event loop to kazoo's thread, and the inbox that brings the responses back.

This module does not import kazoo. The inbox must keep the order in which the thread posted its items.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from kalda.zk.client.call_group import CallGroup
from kalda.zk.client.zookeeper_errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)


class CallLink(Protocol):
    """The receiver of a call's response: the `Link` that sent it."""

    def answer(self, call: "Call", raw: object, failure: Exception | None) -> None:
        """Pass a response on; called from any thread."""
        ...


class Call:
    """One request, and the group that waits for its response.

    kazoo uses it as an async result: its thread calls `set` or `set_exception`, sometimes twice. `Any` stands
    for kazoo's objects, because kazoo has no types.
    """

    __slots__ = ("convert", "group", "index", "link", "on_error", "path", "request", "sent_at")

    def __init__(self, request: Any, path: str, convert: Callable[[Any], object]) -> None:
        self.request = request
        self.path = path
        self.convert = convert
        self.group: CallGroup | None = None
        """None for a call without a caller, which sets a watch again."""
        self.index = 0
        self.link: CallLink
        self.sent_at = 0.0
        self.on_error: Callable[[ZooKeeperError], None] | None = None

    @property
    def is_abandoned(self) -> bool:
        """Whether the caller was cancelled."""
        return self.group is not None and self.group.is_abandoned

    def succeed(self, raw: object) -> None:
        """Complete the call with a response; on the loop."""
        result = self.convert(raw)
        if self.group is not None:
            self.group.complete(self.index, result)

    def fail(self, error: ZooKeeperError) -> None:
        """Complete the call with an error; on the loop."""
        if self.group is not None:
            self.group.complete(self.index, error)
        elif self.on_error is not None:
            self.on_error(error)

    # Called by kazoo.

    def set(self, value: object = None) -> None:
        """Receive the response; on kazoo's thread."""
        self.link.answer(self, value, None)

    def set_exception(self, exception: Exception) -> None:
        """Receive an error; on kazoo's thread."""
        self.link.answer(self, None, exception)


def group_calls(calls: Sequence[Call]) -> CallGroup:
    """Return a group that waits for these calls."""
    group = CallGroup(len(calls))
    for index, call in enumerate(calls):
        call.group, call.index = group, index
    return group


class Inbox:
    """A queue from other threads to the loop, in the order of posting, with one wake-up for all items."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_emptied: Callable[[], None]) -> None:
        self._loop = loop
        self._on_emptied = on_emptied
        self._items: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._is_woken = False

    def post(self, function: Callable[..., None], *arguments: object) -> None:
        """Schedule a call on the loop; called from any thread."""
        self._items.append((function, arguments))
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._empty)
            except RuntimeError:
                # The loop is closed, so there is no caller left.
                logger.debug("the event loop ended before its ZooKeeper session")

    def _empty(self) -> None:
        # Cleared first: items posted from now on wake the loop again, at worst needlessly.
        self._is_woken = False
        items = self._items
        while items:
            function, arguments = items.popleft()
            try:
                function(*arguments)
            except Exception:
                # Most likely a watch callback or a state listener failed; later items must still run.
                logger.exception("handling an item from the ZooKeeper client's thread failed")
        self._on_emptied()
