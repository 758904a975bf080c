"""Lets one thread at a time use a synchronous consumer, and wakes it when it waits.

A signal handler may raise an exception, or use the consumer, between any two steps of the thread that it
interrupts. Nothing here relies on a step that follows another.

`WakeSignal.set` never blocks, so the event loop and signal handlers may call it.
"""

import contextlib
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final

from kalda.clients.errors import IllegalStateError


class OneThreadAtATime:
    """A guard that refuses a second thread instead of making it wait; the same thread may enter again.

    A consumer has one position in each partition, so two threads that poll would get each other's records.

    An interrupt may keep the owner from leaving. So before another thread is refused, the guard looks whether
    the owner really is in a method of the consumer.
    """

    def __init__(self, name: str, guarded: object) -> None:
        """`guarded` is the object whose methods enter, as their ``self``."""
        self._name: Final = name
        self._guarded: Final = weakref.ref(guarded)
        # Its own `with` enters and leaves in one step. Reentrant for signal handlers.
        self._changing: Final = threading.RLock()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner != me:
            with self._changing:
                owner = self._owner
                if owner is not None and self._is_inside(owner):
                    raise IllegalStateError(
                        f"{self._name} is in use by thread {owner}; this is thread {me}. A consumer is for "
                        f"one thread at a time; only wakeup() may be called by another"
                    )
                self._depth = 0
                self._owner = me
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        depth = self._depth = self._depth - 1
        if depth <= 0:
            self._owner = None

    def _is_inside(self, thread_id: int) -> bool:
        guarded = self._guarded()
        frame = sys._current_frames().get(thread_id)
        while frame is not None:
            if guarded is not None and frame.f_locals.get("self") is guarded:
                return True
            frame = frame.f_back
        return False


class WakeSignal:
    """A flag that one thread waits for and others set; waiting clears it.

    One lock of the interpreter does the work. `threading.Event` takes several and is slower by half.
    """

    def __init__(self) -> None:
        self._unset: Final = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Wake the thread that waits, or the next one that does."""
        if self._unset.locked():
            # Another thread may have been first.
            with contextlib.suppress(RuntimeError):
                self._unset.release()

    def wait(self, seconds: float) -> bool:
        """Wait for the flag and clear it; return whether it was set within `seconds`."""
        if seconds <= 0:
            return self._unset.acquire(blocking=False)
        return self._unset.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))


class CallerTask(ABC):
    """A call that the event loop leaves for the user's thread and waits for."""

    is_started = False
    """Whether `run` has begun, so that nobody has to call it again."""

    @abstractmethod
    def run(self) -> None:
        """Make the call; sets `is_started` first."""


class CallerQueue:
    """Calls that the event loop leaves for the user's thread: listeners, interceptors, commit callbacks.

    Bounded by the group: it leaves one call of a listener at a time, and one call for each commit in flight.
    """

    def __init__(self, signal: WakeSignal) -> None:
        self._signal: Final = signal
        self._tasks: Final[deque[CallerTask]] = deque()
        self._calls: Final[deque[Callable[[], None]]] = deque()

    def add(self, call: Callable[[], None]) -> None:
        """Leave a call for the user's thread, and wake it; on the loop."""
        self._calls.append(call)
        self._signal.set()

    def add_rebalance(self, task: CallerTask) -> None:
        """Leave a call of a listener for the user's thread, and wake it; on the loop."""
        self._tasks.append(task)
        self._signal.set()

    def run(self, *, with_rebalances: bool) -> None:
        """Make the calls, in the user's thread; rebalances only in methods that may change the assignment."""
        while self._calls:
            self._calls.popleft()()
        while with_rebalances and self._tasks:
            task = self._tasks[0]
            # An interrupt between the two steps leaves the task here for the next call of the consumer.
            if not task.is_started:
                task.run()
            with contextlib.suppress(ValueError):
                self._tasks.remove(task)
