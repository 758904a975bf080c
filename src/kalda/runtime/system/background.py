"""Threads and processes of the operating system: the port of `kalda.runtime.background`."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Self, TypeVar

from kalda.runtime.background import Done, Work, finish

T = TypeVar("T")

_PARALLEL_MAX: Final = 8
"""Works of `run_all` at a time: file systems merge syncs that come together."""


class EventLoopExecutor:
    """A bounded thread pool that delivers results on the event loop; ``async with`` closes it."""

    has_processes = True

    def __init__(self, loop: asyncio.AbstractEventLoop, threads_max: int = 2) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix="log-background")

    def submit(self, work: Work, done: Done | None = None) -> None:
        """Queue `work` on the pool."""
        future = self._pool.submit(work)
        future.add_done_callback(lambda finished: self._return(finished, done))

    async def call(self, function: Callable[[], T]) -> T:
        """Call it on a thread of asyncio's pool."""
        return await asyncio.to_thread(function)

    def run_all(self, works: Sequence[Work]) -> list[BaseException | None]:
        """Run them on threads that end with the call."""
        with ThreadPoolExecutor(_PARALLEL_MAX, thread_name_prefix="log-parallel") as pool:
            return [future.exception() for future in [pool.submit(work) for work in works]]

    async def start_process(
        self, *arguments: str, environment: Mapping[str, str], line_bytes_max: int
    ) -> asyncio.subprocess.Process:
        """Start it as asyncio does."""
        return await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            limit=line_bytes_max,
        )

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
