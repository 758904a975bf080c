"""Runs what takes long in a few threads, so that the event loop stays free; what waits is bounded."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from kalda.http.errors import HttpError

P = ParamSpec("P")
T = TypeVar("T")

WAITING_MAX: Final = 256
"""Calls that wait for a thread. With 10 ms each, the last of them waits for about a second."""


class Background:
    """A bounded pool of threads for one event loop."""

    def __init__(self, threads: int) -> None:
        self._executor: Final = ThreadPoolExecutor(threads, thread_name_prefix="kalda-http")
        self._running = 0
        self._max: Final = threads + WAITING_MAX

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function that runs in a thread.

        Raises:
            HttpError: too many calls wait (503).
        """
        if self._running >= self._max:
            raise HttpError(503, "the server has too much to compute; try again later")
        self._running += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._executor, lambda: function(*args, **kwargs))
        finally:
            self._running -= 1

    async def close(self) -> None:
        """Wait for the calls that run, and drop those that wait."""
        await asyncio.to_thread(self._executor.shutdown, cancel_futures=True)
