"""Lets one thread at a time use a synchronous consumer, and wakes it when it waits.

What a maintainer must not break: `WakeSignal.set` never blocks, so the event loop may call it.
"""

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Final

from kalda.clients.errors import IllegalStateError


class OneThreadAtATime:
    """A guard that refuses a second thread instead of making it wait; the same thread may enter again.

    A consumer has one position in each partition, so two threads that poll would get each other's records.
    """

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self._lock: Final = threading.Lock()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner != me:
            if not self._lock.acquire(blocking=False):
                raise IllegalStateError(
                    f"{self._name} is in use by thread {self._owner}; this is thread {me}. A consumer is "
                    f"for one thread at a time; only wakeup() may be called by another"
                )
            self._owner = me
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._lock.release()


class WakeSignal:
    """A flag that one thread waits for and others set; waiting clears it.

    One lock of the interpreter does the work. `threading.Event` takes several and is slower by half.
    """

    def __init__(self) -> None:
        self._unset: Final = threading.Lock()
        self._unset.acquire()
        self._setting: Final = threading.Lock()

    def set(self) -> None:
        """Wake the thread that waits, or the next one that does."""
        with self._setting:
            if self._unset.locked():
                self._unset.release()

    def wait(self, seconds: float) -> bool:
        """Wait for the flag and clear it; return whether it was set within `seconds`."""
        if seconds <= 0:
            return self._unset.acquire(blocking=False)
        return self._unset.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))


class CallerQueue:
    """Calls that the event loop leaves for the user's thread: listeners, interceptors, commit callbacks.

    Bounded by the group: it leaves one call of a listener at a time, and one call for each commit in flight.
    """

    def __init__(self, signal: WakeSignal) -> None:
        self._signal: Final = signal
        self._rebalances: Final[deque[Callable[[], None]]] = deque()
        self._others: Final[deque[Callable[[], None]]] = deque()

    def add(self, call: Callable[[], None], *, is_rebalance: bool = False) -> None:
        """Leave a call for the user's thread, and wake it; on the loop."""
        (self._rebalances if is_rebalance else self._others).append(call)
        self._signal.set()

    def run(self, *, with_rebalances: bool) -> None:
        """Make the calls, in the user's thread; rebalances only in methods that may change the assignment."""
        while self._others:
            self._others.popleft()()
        while with_rebalances and self._rebalances:
            self._rebalances.popleft()()
