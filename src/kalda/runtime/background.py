"""Runs fsync and unlink outside the event loop and returns their outcome to it.

A log's state has one owner, the event loop, so the port takes two functions: `work` runs on any thread and
uses only what it was given; `done` runs on the owner's thread and may change the log.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from kalda.runtime.error_text import error_text

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[], None]
Done = Callable[[BaseException | None], None]


class BackgroundExecutor(Protocol):
    """Runs blocking work outside the event loop."""

    def submit(self, work: Work, done: Done | None = None) -> None:
        """Run `work` elsewhere, then `done` with its exception or ``None`` on the owner's thread."""
        ...


class InlineExecutor:
    """Runs the work at once on the caller's thread: for tests, start and shutdown."""

    def submit(self, work: Work, done: Done | None = None) -> None:
        """Run `work`, then `done`."""
        error: BaseException | None = None
        try:
            work()
        except OSError as raised:
            error = raised
        finish(done, error)


async def run_in_background(executor: BackgroundExecutor, work: Callable[[], T]) -> T:
    """Return what `work` returns elsewhere; raises what it raises."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    results: list[T] = []

    def done(error: BaseException | None) -> None:
        # The caller may have been cancelled meanwhile.
        if future.done():
            return
        if error is None:
            future.set_result(results[0])
        else:
            future.set_exception(error)

    executor.submit(lambda: results.append(work()), done)
    return await future


def finish(done: Done | None, error: BaseException | None) -> None:
    """Call `done`, or log the error of work without one."""
    if done is not None:
        done(error)
    elif error is not None:
        logger.error("background work on the log failed: %s", error_text(error))
