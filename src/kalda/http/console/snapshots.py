"""Caches what was read of the cluster for some seconds, separately for each caller.

Pages of one visitor need the same things again and again, and the topics of a large cluster take a while to
read. A value that is fresh is returned as it is. One that is a little old is read again, which a page waits
for only a moment: of a small cluster it shows the present state, of a large one perhaps the last. An old one
is read first. All who need a thing wait for one read of it. A caller who changes something does not wait for
a read that began before; it goes on for the others, and what it found is not kept.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, TypeVar

from kalda.clients.errors import ClientError
from kalda.http.callers import Caller
from kalda.http.errors import HttpError

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")

FRESH_SECONDS: Final = 3.0
FRESH_READS: Final = 5
"""A value is fresh for so many times the time that its read took, if that is longer: what takes a second to
read would otherwise be old when it is there, and be read again for each page."""
STALE_SECONDS: Final = 60.0
"""A person who comes back after a minute expects the present state."""
PATIENCE_SECONDS: Final = 0.2
ENTRIES_MAX: Final = 512
"""Some things of each of up to about 100 visitors."""


@dataclass(slots=True)
class _Entry:
    value: Any = None
    read_at: float = float("-inf")
    took_seconds: float = 0.0
    reading: "asyncio.Task[Any] | None" = None


class Snapshots:
    """Cached values by caller and name."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock: Final = clock
        self._entries: Final[OrderedDict[tuple[str, str], _Entry]] = OrderedDict()

    async def get(self, caller: Caller, name: str, read: Callable[[], Awaitable[T]]) -> T:
        """Return a value that is at most `STALE_SECONDS` old, reading it if necessary.

        Args:
            caller: Whose view it is; the brokers have accepted the login.
            name: What it is.
            read: Reads it.

        Raises:
            ClientError, HttpError: the login is not valid, or the read failed.
        """
        await caller.authenticate()  # the entry belongs to the name, which anyone can send
        key = (caller.principal, name)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
            while len(self._entries) > ENTRIES_MAX:
                self._entries.popitem(last=False)
        self._entries.move_to_end(key)
        age = self._clock() - entry.read_at
        if age < min(max(FRESH_SECONDS, FRESH_READS * entry.took_seconds), STALE_SECONDS):
            return entry.value  # type: ignore[no-any-return]  # what `read` of this name returned
        if entry.reading is None:
            entry.reading = asyncio.create_task(self._read(entry, read), name=f"console reads {name}")
            entry.reading.add_done_callback(_consume)
        reading = entry.reading
        if age < STALE_SECONDS:
            await asyncio.wait([reading], timeout=PATIENCE_SECONDS)
            return entry.value  # type: ignore[no-any-return]  # as above
        value: T = await asyncio.shield(reading)
        return value

    def known(self, caller: Caller, name: str) -> Any | None:
        """Return a cached value that is not too old, without a read; the login was checked before."""
        entry = self._entries.get((caller.principal, name))
        if entry is None or self._clock() - entry.read_at >= STALE_SECONDS:
            return None
        return entry.value

    def forget(self, caller: Caller) -> None:
        """Drop the cached values of a caller who has changed something, and those that are being read."""
        for key in [key for key in self._entries if key[0] == caller.principal]:
            del self._entries[key]

    async def _read(self, entry: _Entry, read: Callable[[], Awaitable[T]]) -> T:
        began = self._clock()
        try:
            value = await read()
            entry.value, entry.read_at, entry.took_seconds = value, began, self._clock() - began
            return value
        finally:
            entry.reading = None


def _consume(task: "asyncio.Task[Any]") -> None:
    """Log the exception of a background read; a visitor who waits for it gets the exception as well."""
    if task.cancelled():
        return
    error = task.exception()
    if error is not None and not isinstance(error, ClientError | HttpError):
        logger.error("%s failed", task.get_name(), exc_info=error)
