"""Runs long work in a few threads, so that the event loop stays free; the queue of waiting work is bounded.

The threads are daemons: the end of the interpreter does not wait for a schema that takes minutes, as it would
for the threads of a `ThreadPoolExecutor`. A shutdown gives what only computes a second; the requests then get
the status 503. For calls that change something it waits as for any response.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, ParamSpec, TypeVar

from kalda.http.errors import HttpError

P = ParamSpec("P")
T = TypeVar("T")

WAITING_MAX: Final = 256
"""Calls that wait for a thread. With 10 ms each, the last of them waits for about a second."""

ENDING_SECONDS: Final = 1.0
"""How long a shutdown waits for computations. Most take milliseconds; no thread can be ended from outside."""

_Job = tuple["Future[Any]", Callable[[], Any]]


class Background:
    """A bounded pool of threads for one event loop."""

    def __init__(self, threads: int) -> None:
        self._jobs: Final[SimpleQueue[_Job | None]] = SimpleQueue()
        self._threads: Final = [
            Thread(target=_work, args=(self._jobs,), name=f"kalda-http-{number}", daemon=True)
            for number in range(threads)
        ]
        self._computing: Final[set[asyncio.Future[Any]]] = set()
        self._running: Final[set[asyncio.Future[Any]]] = set()
        self._max: Final = threads + WAITING_MAX
        self._computes = True
        self._is_closed = False

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function that runs in a thread.

        Raises:
            HttpError: too many calls wait, or the pool is closed (503).
        """
        if self._is_closed:
            raise _shutting_down()
        return await self._result(self._running, partial(function, *args, **kwargs))

    async def compute(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function without effects, for which a shutdown need not wait.

        Raises:
            HttpError: too many calls wait, or a shutdown has lasted for too long (503).
        """
        if not self._computes:
            raise _shutting_down()
        return await self._result(self._computing, partial(function, *args, **kwargs))

    async def _result(self, among: set[asyncio.Future[Any]], function: Callable[[], T]) -> T:
        if len(self._running) + len(self._computing) >= self._max:
            raise HttpError(503, "the server has too much to compute; try again later")
        for each in self._threads:
            if each.ident is None:
                each.start()
                break
        pending: Future[T] = Future()
        result = asyncio.wrap_future(pending)
        among.add(result)
        self._jobs.put((pending, function))
        try:
            return await result
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not self._computes and result.cancelled() and task is not None and not task.cancelling():
                raise _shutting_down() from None
            raise
        finally:
            among.discard(result)

    def stop(self, after_seconds: float = ENDING_SECONDS) -> None:
        """End the computations when a shutdown has lasted for `after_seconds`."""
        asyncio.get_running_loop().call_later(after_seconds, self._end_computations)

    def close(self) -> None:
        """Take no more calls, and let those under way fail (503); their threads end with the process."""
        if self._is_closed:
            return
        self._is_closed = True
        self._end_computations()
        for each in list(self._running):
            each.cancel()
        for _ in self._threads:
            self._jobs.put(None)

    def _end_computations(self) -> None:
        self._computes = False
        for each in list(self._computing):
            each.cancel()


def _shutting_down() -> HttpError:
    return HttpError(503, "the server shuts down; try again later")


def _work(jobs: "SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        pending, function = job
        if not pending.set_running_or_notify_cancel():
            continue
        try:
            result = function()
        except BaseException as error:
            pending.set_exception(error)
        else:
            pending.set_result(result)
        del job, pending, function
