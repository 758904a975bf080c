"""Runs long work in a few threads, so that the event loop stays free; the queue of waiting work is bounded.

The threads are daemons: neither a shutdown nor the end of the interpreter waits for a schema that takes
minutes, as it would for those of a `ThreadPoolExecutor`.
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

_Job = tuple["Future[Any]", Callable[[], Any]]


class Background:
    """A bounded pool of threads for one event loop."""

    def __init__(self, threads: int) -> None:
        self._jobs: Final[SimpleQueue[_Job | None]] = SimpleQueue()
        self._threads: Final = [
            Thread(target=_work, args=(self._jobs,), name=f"kalda-http-{number}", daemon=True)
            for number in range(threads)
        ]
        self._running: Final[set[Future[Any]]] = set()
        self._max: Final = threads + WAITING_MAX
        self._is_closed = False

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function that runs in a thread.

        Raises:
            HttpError: too many calls wait, or the pool is closed (503).
        """
        if len(self._running) >= self._max or self._is_closed:
            raise HttpError(503, "the server has too much to compute; try again later")
        for each in self._threads:
            if each.ident is None:
                each.start()
                break
        pending: Future[T] = Future()
        self._running.add(pending)
        self._jobs.put((pending, partial(function, *args, **kwargs)))
        try:
            return await asyncio.wrap_future(pending)
        finally:
            self._running.discard(pending)

    async def close(self) -> None:
        """Drop the calls that wait; those that run end by themselves, or with the process."""
        self._is_closed = True
        for each in list(self._running):
            each.cancel()
        for _ in self._threads:
            self._jobs.put(None)


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
