"""Defines the port for work outside the event loop: fsync and unlink, slow computations, child processes.

State has one owner, the event loop, so `submit` takes two functions: `work` runs on any thread and uses only
what it was given; `done` runs on the owner's thread and may change the state.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
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


class Background(BackgroundExecutor, Protocol):
    """Everything of a process that runs outside its event loop."""

    @property
    def has_processes(self) -> bool:
        """Whether child processes may be started; they see the files of this machine only."""
        ...

    async def call(self, function: Callable[[], T]) -> T:
        """Call a function that may block for long; return its result, or raise its exception.

        It does not wait for submitted work, nor submitted work for it.
        """
        ...

    def run_all(self, works: Sequence[Work]) -> list[BaseException | None]:
        """Run all works, several at a time; return when all have ended, with the exception of each."""
        ...

    async def start_process(
        self, *arguments: str, environment: Mapping[str, str], line_bytes_max: int
    ) -> asyncio.subprocess.Process:
        """Start a child process with pipes for stdin and stdout; raises `OSError`."""
        ...


class InlineExecutor:
    """Runs the work at once on the caller's thread: for tests, simulations, start and shutdown."""

    has_processes = False

    def submit(self, work: Work, done: Done | None = None) -> None:
        """Run `work`, then `done`."""
        error: BaseException | None = None
        try:
            work()
        except OSError as raised:
            error = raised
        finish(done, error)

    async def call(self, function: Callable[[], T]) -> T:
        """Call it."""
        return function()

    def run_all(self, works: Sequence[Work]) -> list[BaseException | None]:
        """Run one after the other."""
        errors: list[BaseException | None] = []
        for work in works:
            self.submit(work, errors.append)
        return errors

    async def start_process(
        self, *arguments: str, environment: Mapping[str, str], line_bytes_max: int
    ) -> asyncio.subprocess.Process:
        """Refuse: a caller looks at `has_processes` first."""
        raise AssertionError(f"no process is started for {arguments}")


async def run_in_background(executor: BackgroundExecutor, work: Callable[[], T]) -> T:
    """Run `work` outside the event loop; return its result, or raise its exception."""
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
