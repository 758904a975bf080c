"""Runs an event loop on a thread of its own, for the synchronous clients.

Each synchronous client has one such thread; closing the client ends it. The thread is a daemon: a program
that forgets to close its clients still exits.

Nothing of a client may be used in a forked child. The loop thread exists in the parent only, and the child's
copies of its sockets belong to the parent's connections. The thread takes no lock that a caller may hold
while it waits for the thread: see `loop_logger`.
"""

import asyncio
import contextlib
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, TypeVar, TypeVarTuple

from kalda.clients.errors import IllegalStateError, RequestTimedOutError
from kalda.runtime.system.event_loop import new_event_loop
from kalda.runtime.system.loop_logger import loop_logger, mark_loop_thread

logger: Final = loop_logger(__name__)

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

# asyncio and futures log on the loop's thread, too.
for _name in ("asyncio", "concurrent.futures"):
    loop_logger(_name)

STANDSTILL_SECONDS_MIN: Final = 5.0
STANDSTILL_SECONDS_MAX: Final = 30.0
"""How long the loop's thread may stand still before a caller gives up: as long as the call may take, but at
least what a busy machine causes, and at most what no callback may take."""
WATCH_SECONDS: Final = 1.0
"""How often a caller that waits looks whether the loop's thread runs."""
_TICK_SECONDS: Final = 1.0
"""How late a call may be that was left for the loop by a thread that an exception interrupted then."""
_FRAMES_SHOWN: Final = 3
_JOIN_SECONDS: Final = 5.0
"""How long `close` waits for the thread; its loop has nothing left to do then, so it ends at once."""


class LoopWatch:
    """Notices for a caller that waits that the loop's thread stands still.

    What runs on the loop ends by its own time-outs as long as the loop runs. A callback of the program may
    block the thread for ever: it waits for a lock of this caller.

    Looks are counted, not the time: in a process that was stopped, or paused with its container, it passes.
    """

    def __init__(self, thread: "LoopThread", timeout_s: float) -> None:
        """`timeout_s` is the caller's own time, within `STANDSTILL_SECONDS_MIN` and `_MAX`."""
        self._thread: Final = thread
        self._seconds: Final = min(max(timeout_s, STANDSTILL_SECONDS_MIN), STANDSTILL_SECONDS_MAX)
        self._has_turned = True
        self._looks = 0
        """How often the caller has looked since the loop was asked for a sign."""

    def check(self) -> None:
        """Look again; called after each `WATCH_SECONDS` of waiting.

        Raises:
            RequestTimedOutError: the thread stands still.
            IllegalStateError: the client was closed meanwhile.
        """
        if self._thread.is_closed:
            raise IllegalStateError(f"{self._thread.name} was closed during the call")
        if self._has_turned:
            self._has_turned, self._looks = False, 0
            self._thread.call_soon(self._turned)
            return
        self._looks += 1
        waited = self._looks * WATCH_SECONDS
        if waited >= self._seconds:
            raise RequestTimedOutError(
                f"{self._thread.name} has not answered for {waited:.0f} s: its thread is held up "
                f"{self._thread.position()}. A callback of a client must not block, nor wait for a lock that "
                "the caller of the client holds"
            )

    def _turned(self) -> None:
        self._has_turned = True


class LoopCall(Generic[T]):
    """A coroutine on the loop, and its result for the thread that waits for it.

    The task is dropped on the loop's thread. Its end runs a callback of `weakref`, which would print an
    exception of a signal handler there and go on: Ctrl-C would be lost in the thread that waits.

    It has no lock but one that only `wait` takes. The condition of a `concurrent.futures.Future` can stay
    locked when an exception of a signal handler ends a call of it, and the loop's thread would wait for ever.
    """

    def __init__(
        self, thread: "LoopThread", coroutine: Coroutine[Any, Any, T], on_done: Callable[[], object] | None
    ) -> None:
        self._thread: Final = thread
        self._coroutine: Final = coroutine
        self._on_done: Final = on_done
        self._unset: Final = threading.Lock()
        self._unset.acquire()
        self._task: asyncio.Task[T] | None = None
        self._result: T
        self._error: BaseException | None = None
        self._has_result = False
        self._is_done = self._is_cancelled = False

    def start(self) -> None:
        """Start the coroutine; an interrupted caller has to `cancel`, for it may have been started."""
        self._thread.loop.call_soon_threadsafe(self._start)

    def done(self) -> bool:
        """Whether the coroutine has ended."""
        return self._is_done

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, or the time is up."""
        self._unset.acquire(timeout=seconds)

    def result(self) -> T:
        """Wait for the coroutine, and return its result or raise its exception.

        Raises:
            IllegalStateError: the client was closed during the call.
        """
        if self._error is not None:
            raise self._error
        if not self._has_result:
            raise IllegalStateError(f"{self._thread.name} was closed during the call")
        return self._result

    def cancel(self) -> None:
        """Cancel the coroutine if it has not ended."""
        if not self._is_done:
            self._is_cancelled = True
            self._thread.call_soon(self._cancel)

    def _start(self) -> None:
        if self._is_cancelled:
            self._coroutine.close()
            self._is_done = True
            return
        self._task = self._thread.loop.create_task(self._coroutine)
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self._is_done:
            # An interrupt came before `start` did anything.
            self._start()

    def _end(self, task: "asyncio.Task[T]") -> None:
        self._task = None
        if not task.cancelled():
            # Taken here, because nobody may be there to take it.
            self._error = task.exception()
            if self._error is None:
                self._result = task.result()
                self._has_result = True
        self._is_done = True
        self._unset.release()
        if self._on_done is not None:
            self._on_done()


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
    def name(self) -> str:
        """The name of the client, for messages."""
        return self._name

    def position(self) -> str:
        """Return where the thread is now, for messages."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        if frame is None:
            return "nowhere: it has ended"
        frames = traceback.extract_stack(frame)[-_FRAMES_SHOWN:]
        return "in " + ", from ".join(
            f"{each.name} ({os.path.basename(each.filename)}:{each.lineno})" for each in reversed(frames)
        )

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on the loop's thread."""
        return threading.current_thread() is self._thread

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    @property
    def is_in_fork(self) -> bool:
        """Whether the process is a fork of the one that created the thread."""
        return os.getpid() != self._pid

    @property
    def is_usable(self) -> bool:
        """Whether the loop runs, and in this process."""
        return not (self._is_closed or sys.is_finalizing()) and os.getpid() == self._pid

    def check_usable(self) -> None:
        """Raise an error where the loop cannot serve the caller.

        Raises:
            IllegalStateError: the client is closed, the process is a fork of the one that created it, or the
                interpreter shuts down: Python has ended the loop's thread then.
        """
        if self._is_closed:
            raise IllegalStateError(f"{self._name} is closed")
        if os.getpid() != self._pid:
            raise IllegalStateError(
                f"{self._name} was created in process {self._pid} and cannot be used in its fork "
                f"{os.getpid()}; "
                "create one in each process, after the fork"
            )
        if sys.is_finalizing():
            raise IllegalStateError(
                f"{self._name} cannot be used any more: the interpreter shuts down; use and close it before "
                "the program ends, not in a `__del__` that runs after that"
            )

    def new_call(
        self, coroutine: Coroutine[Any, Any, T], on_done: Callable[[], object] | None = None
    ) -> LoopCall[T]:
        """Return a call, for the caller to start; `on_done` is called on the loop when it has ended.

        Example::

            call = thread.new_call(coroutine)
            try:
                call.start()
                ...
            finally:
                call.cancel()

        Raises:
            IllegalStateError: as `check_usable`.
        """
        try:
            self.check_usable()
        except IllegalStateError:
            coroutine.close()
            raise
        return LoopCall(self, coroutine, on_done)

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float = STANDSTILL_SECONDS_MAX) -> T:
        """Run a coroutine on the loop and return its result; an interrupted caller cancels the coroutine.

        The coroutine ends in time by itself; `timeout_s` is its time, for `LoopWatch`.

        Raises:
            RequestTimedOutError: the loop's thread stands still.
            IllegalStateError: as `check_usable`, or the caller is a callback on the loop's own thread, which
                would wait for itself.
        """
        if self.is_current:
            coroutine.close()
            raise IllegalStateError(
                f"{self._name} was called from one of its own callbacks, which must not block; "
                "hand the call to another thread"
            )
        call = self.new_call(coroutine)
        try:
            call.start()
            watch = LoopWatch(self, timeout_s)
            call.wait(WATCH_SECONDS)
            while not call.done():
                watch.check()
                call.wait(WATCH_SECONDS)
            return call.result()
        except BaseException:
            # KeyboardInterrupt, or the coroutine's own exception, for which this does nothing.
            call.cancel()
            raise

    def call_soon(self, callback: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
        """Run a callback on the loop soon; safe in any thread. Without effect once the loop is closed."""
        try:
            self.loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            if not self._is_closed:
                raise

    def close(self) -> None:
        """Cancel what still runs, end the thread and close the loop; harmless when that is done.

        Nothing is skipped in a second call: an interrupt may have ended the first.
        """
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


def _tick(loop: asyncio.AbstractEventLoop) -> None:
    """Keep the loop turning: an interrupt may keep `call_soon_threadsafe` from waking it."""
    loop.call_later(_TICK_SECONDS, _tick, loop)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    mark_loop_thread()
    _tick(loop)
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
