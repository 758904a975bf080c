"""Implements the event loop of one simulated process: `SimulatedEventLoop`.

It is an asyncio loop without a selector and without a thread. `run_once` does what one iteration of asyncio's
loop does; the scheduler calls it. What has no place in a simulation, such as sockets and signals, raises
`NotImplementedError`, as `asyncio.AbstractEventLoop` does.
"""

import asyncio
import logging
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, Final, Protocol, TypeVar

from kalda.common.overriding import override
from kalda.simulation.scheduler import Scheduler

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")


class Watched(Protocol):
    """A simulated socket that an event loop watches by its number."""

    def is_readable(self) -> bool:
        """Whether a read would not wait."""
        ...

    def is_writable(self) -> bool:
        """Whether a write would not wait."""
        ...


class _Task(asyncio.Task[Any]):
    """A task whose hash is its number: a task group cancels its tasks in the order of a set."""

    def __init__(self, coro: Any, number: int, **options: Any) -> None:
        self._number: Final = number
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class _Handle(asyncio.Handle):
    """A handle that does not ask its loop for a debug mode, which a simulation lacks."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: "SimulatedEventLoop",
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    @override
    def cancel(self) -> None:
        self._cancelled = True
        self._callback = _do_nothing
        self._args = ()


class _TimerHandle(_Handle, asyncio.TimerHandle):
    """A timer of the same kind; the scheduler skips a cancelled one when it is due."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: "SimulatedEventLoop",
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = False


class SimulatedEventLoop(asyncio.AbstractEventLoop):
    """Runs the callbacks and tasks of one process in virtual time.

    Args:
        scheduler: Lets the loop run.
        watched: What exists under a number, in the whole simulation.
    """

    def __init__(self, scheduler: Scheduler, watched: dict[int, Watched]) -> None:
        self._scheduler: Final = scheduler
        self._runnable: Final = scheduler.runnable
        self._watched: Final = watched
        self._ready: Final[deque[_Handle]] = deque()
        self._readers: Final[dict[int, Callable[[], object]]] = {}
        self.writers: Final[dict[int, Callable[[], object]]] = {}
        """What is called when there is room to write, by number; most wait for nothing of the kind."""
        self._to_read: Final[dict[int, None]] = {}
        self._to_write: Final[dict[int, None]] = {}
        self._on_due: Final = self._due
        self._is_woken = False
        self._tasks_made = 0
        self.is_held = False
        """Whether the process stands still, as after SIGSTOP."""
        self._is_ended = False
        self.on_error: Callable[[dict[str, Any]], None] = _log_error
        """Gets the exceptions that nothing else handles."""

    # Running.

    def enter(self) -> None:
        """Make this the running loop of the thread."""
        # The system is asked for the process id by each change, so loops change only when they have to.
        events._set_running_loop(self)

    def leave(self) -> None:
        """Stop being the running loop of the thread."""
        events._set_running_loop(None)

    def run_once(self) -> None:
        """Call what is readable or writable and the callbacks that are ready now, after `enter`."""
        self._is_woken = False
        if not self._may_run():
            return
        if self._to_read or self._to_write:
            self._call_watchers()
        ready = self._ready
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                message = f"Exception in callback {handle._callback}"
                self.call_exception_handler({"message": message, "exception": error, "handle": handle})
            if self._is_ended or self.is_held:
                break
        if ready or self._to_read or self._to_write:
            self._wake()

    def _may_run(self) -> bool:
        return not self._is_ended and not self.is_held

    def hold(self) -> None:
        """Pause the process."""
        self.is_held = True

    def release(self) -> None:
        """Resume the process."""
        self.is_held = False
        self._wake()

    def end(self) -> None:
        """End the process: none of its callbacks or tasks runs again."""
        self._is_ended = True
        self._ready.clear()
        self._readers.clear()
        self.writers.clear()

    def notice(self, fd: int) -> None:
        """Check whether the socket with this number has become readable or writable."""
        watched = self._watched.get(fd)
        if watched is None:
            return
        if fd in self._readers and watched.is_readable():
            self._to_read[fd] = None
            if not self._is_woken:
                self._wake()
        if fd in self.writers and watched.is_writable():
            self._to_write[fd] = None
            if not self._is_woken:
                self._wake()

    def _wake(self) -> None:
        if not self._is_woken and not self.is_held and not self._is_ended:
            self._is_woken = True
            self._runnable.append(self)

    def _call_watchers(self) -> None:
        for waiting, callbacks in ((self._to_read, self._readers), (self._to_write, self.writers)):
            if not waiting:
                continue
            fds = list(waiting)
            waiting.clear()
            for fd in fds:
                callback = callbacks.get(fd)
                if callback is None or fd not in self._watched:
                    continue
                try:
                    callback()
                except Exception as error:
                    self.call_exception_handler({"message": "a reader or writer failed", "exception": error})
                if self._is_ended:
                    return
                # Watching is level-triggered.
                self.notice(fd)

    # The interface of asyncio.

    @override
    def time(self) -> float:
        return self._scheduler.now

    @override
    def call_soon(  # type: ignore[override]  # typeshed's signature has type variables of tuples
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._is_woken:
            self._wake()
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # a simulation has one thread

    @override
    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        when = self._scheduler.now + delay
        handle = _TimerHandle(when, callback, args, self, context)
        self._scheduler.call_unless_cancelled(when, self._on_due, handle)
        return handle

    @override
    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = _TimerHandle(when, callback, args, self, context)
        self._scheduler.call_unless_cancelled(when, self._on_due, handle)
        return handle

    def _due(self, handle: _TimerHandle) -> None:
        if not self._is_ended:
            self._ready.append(handle)
            if not self._is_woken:
                self._wake()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing; the scheduler skips the event."""

    @override
    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    @override
    def create_task(self, coro: Any, **options: Any) -> "asyncio.Task[Any]":
        self._tasks_made += 1
        return _Task(coro, self._tasks_made, loop=self, **options)

    @override
    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = self.create_future()

        def run() -> None:
            if future.done():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_soon(run)
        return future

    @override
    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., object], *args: Any
    ) -> None:
        self._readers[fd] = (lambda: callback(*args)) if args else callback
        self.notice(fd)

    @override
    def remove_reader(self, fd: Any) -> bool:
        self._to_read.pop(fd, None)
        return self._readers.pop(fd, None) is not None

    @override
    def add_writer(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., object], *args: Any
    ) -> None:
        self.writers[fd] = (lambda: callback(*args)) if args else callback
        self.notice(fd)

    @override
    def remove_writer(self, fd: Any) -> bool:
        self._to_write.pop(fd, None)
        return self.writers.pop(fd, None) is not None

    @override
    def is_running(self) -> bool:
        return not self._is_ended

    @override
    def is_closed(self) -> bool:
        return self._is_ended

    @override
    def get_debug(self) -> bool:
        return False

    @override
    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # What is left of a process that has ended reports how its tasks were destroyed.
        if not self._is_ended:
            self.on_error(context)


def new_simulated_loop(scheduler: Scheduler, watched: dict[int, Watched]) -> SimulatedEventLoop:
    """Return the event loop of a new process; see `SimulatedEventLoop`."""
    # What a simulation lacks is abstract for the type checker, and raises NotImplementedError when called.
    return SimulatedEventLoop(scheduler, watched)  # type: ignore[abstract]


def _log_error(context: dict[str, Any]) -> None:
    logger.error("%s", context.get("message"), exc_info=context.get("exception"))


def _do_nothing() -> None:
    """Stand for a callback that was cancelled."""
