"""A pool of threads for work that blocks: the port of `kalda.runtime.background`."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

from kalda.runtime.background import Done, Work, finish


class EventLoopExecutor:
    """A bounded thread pool that delivers results on the event loop; ``async with`` closes it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads_max: int = 2) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix="log-background")

    def submit(self, work: Work, done: Done | None = None) -> None:
        """Queue `work` on the pool."""
        future = self._pool.submit(work)
        future.add_done_callback(lambda finished: self._return(finished, done))

    def close(self) -> None:
        """Wait for queued work; its results still reach the loop if the loop keeps running."""
        self._pool.shutdown(wait=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        # Not on the loop, which delivers what the pool finishes.
        await self._loop.run_in_executor(None, self.close)

    def _return(self, future: "Future[None]", done: Done | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(finish, done, future.exception())
