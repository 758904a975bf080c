"""Runs an event loop on a thread of its own, for the synchronous clients.

Each synchronous client has one such thread; closing the client ends it. The thread is a daemon: a program
that forgets to close its clients still exits.

What a maintainer must not break: nothing of a client may be used in a forked child. The loop thread exists in
the parent only, and the child's copies of its sockets belong to the parent's connections.
"""

import asyncio
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar, TypeVarTuple

from kalda.clients.errors import IllegalStateError
from kalda.net.event_loop import new_event_loop

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

_JOIN_SECONDS: Final = 5.0
"""How long `close` waits for the thread; its loop has nothing left to do then, so it ends at once."""


class LoopThread:
    """An event loop that runs on a daemon thread until `close`."""

    def __init__(self, name: str) -> None:
        self.loop: Final = new_event_loop()
        self._pid: Final = os.getpid()
        self._name: Final = name
        self._is_closed = False
        # The thread refers to the loop only: a client that is dropped without `close` ends its thread.
        self._thread: Final = threading.Thread(target=_run, args=(self.loop,), name=name, daemon=True)
        self._thread.start()
        weakref.finalize(self, _stop, self.loop, self._pid).atexit = False

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the loop's thread."""
        return threading.current_thread() is self._thread

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    @property
    def is_usable(self) -> bool:
        """Whether the loop runs, and in this process."""
        return not self._is_closed and os.getpid() == self._pid

    def check_usable(self) -> None:
        """Raise an error where the loop cannot serve the caller.

        Raises:
            IllegalStateError: the client is closed, or the process is a fork of the one that created it.
        """
        if self._is_closed:
            raise IllegalStateError(f"{self._name} is closed")
        if os.getpid() != self._pid:
            raise IllegalStateError(
                f"{self._name} was created in process {self._pid} and cannot be used in its fork "
                f"{os.getpid()}; "
                "create one in each process, after the fork"
            )

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine on the loop; return the future of its result.

        Raises:
            IllegalStateError: as `check_usable`.
        """
        try:
            self.check_usable()
        except IllegalStateError:
            coroutine.close()
            raise
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result; an interrupted caller cancels the coroutine.

        Raises:
            IllegalStateError: as `check_usable`, or the caller is a callback on the loop's own thread, which
                would wait for itself.
        """
        if self.is_current:
            coroutine.close()
            raise IllegalStateError(
                f"{self._name} was called from one of its own callbacks, which must not block; "
                "hand the call to another thread"
            )
        future = self.submit(coroutine)
        try:
            return future.result()
        except CancelledError:
            raise IllegalStateError(f"{self._name} was closed during the call") from None
        except BaseException:
            # KeyboardInterrupt, or the coroutine's own exception, for which this does nothing.
            future.cancel()
            raise

    def call_soon(self, callback: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
        """Run a callback on the loop soon; safe in any thread. Without effect once the loop is closed."""
        try:
            self.loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            if not self._is_closed:
                raise

    def close(self) -> None:
        """Cancel what still runs, end the thread and close the loop; harmless when that is done."""
        if self._is_closed:
            return
        self._is_closed = True
        if os.getpid() != self._pid:
            return
        _stop(self.loop, self._pid)
        if not self.is_current:
            self._thread.join(_JOIN_SECONDS)

    def close_soon(self, last: Coroutine[Any, Any, object]) -> None:
        """Run a last coroutine and then end the thread, without waiting for it; for finalizers."""
        if self._is_closed or os.getpid() != self._pid:
            last.close()
            return
        self._is_closed = True

        async def end() -> None:
            try:
                await last
            finally:
                self.loop.stop()

        asyncio.run_coroutine_threadsafe(end(), self.loop)


def _stop(loop: asyncio.AbstractEventLoop, pid: int) -> None:
    """End the loop's thread; without effect in a fork, where the loop still belongs to the parent."""
    if os.getpid() == pid:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(loop.stop)


def _has_stopped(loop: asyncio.AbstractEventLoop) -> bool:
    """Run the loop until it is stopped; False if a user's callback ended it by an exit."""
    try:
        loop.run_forever()
    except (SystemExit, KeyboardInterrupt):
        # An exit ends the program only in the main thread. Here it would leave all callers waiting.
        logger.exception("A callback tried to end the program in the thread of a client; it is ignored")
        return False
    return True


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        while not _has_stopped(loop):
            pass
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
