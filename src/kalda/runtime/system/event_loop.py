"""asyncio's event loop with a selector that calls connections itself: `new_event_loop`.

For each readable socket asyncio looks a key up, makes a list entry and runs a handle in a context, which is
about 2 us of the 13 us that a small produce request costs. `ConnectionSelector` calls the connections whose
sockets are readable as soon as it finds them. Everything else, writable sockets included, goes asyncio's way,
and on any other event loop connections do so too.

A thread that sleeps in ``epoll_wait`` needs 20 to 40 us to run again, as long as a small request takes.
`ConnectionSelector` may therefore ask again for a while before it sleeps (`poll_busily`), as Seastar and the
KVM module of Linux do.
"""

import asyncio
import contextlib
import os
import select
import selectors
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from time import perf_counter
from types import BuiltinFunctionType
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from kalda.runtime.system.clock import monotonic
from kalda.runtime.system.loop_logger import loop_logger
from kalda.runtime.system.portable import PORTABLE

logger: Final = loop_logger(__name__)

Result = TypeVar("Result")

EVENTS_PER_TURN_MAX: Final = 64
"""Sockets that are reported at once. Timers and the answers of other brokers get their turn after that many
requests; epoll reports the other sockets in the next turn before these come again."""


HITS_BEFORE_BUSY: Final = 8
"""Waits in a row, or nearly so, that must end within the time of a busy poll before the next one is busy."""

HITS_MAX: Final = 16
HITS_PER_MISS: Final = 4
"""A wait that takes longer undoes so many: a busy poll is worth its time if four of five find something."""

_ONE: Final = (1).to_bytes(8, sys.byteorder)


class ConnectionSelector(selectors.BaseSelector):
    """A selector over epoll that calls some readers itself; `selectors.EpollSelector` otherwise.

    A wait is a busy poll of at most `busy_poll_seconds`, and then a sleep, while the waits before ended so
    soon. 0 is no busy poll.
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        """`clock` returns seconds."""
        self.busy_poll_seconds = 0.0
        self._epoll: Final = select.epoll()
        self._clock: Final = clock
        self._hits = 0
        self._keys: Final[dict[int, selectors.SelectorKey]] = {}
        self._callbacks: Final[dict[int, Callable[[], None]]] = {}
        # Descriptors that were removed since the events at hand were found: these are not for a file that was
        # opened later and has the number of one of them. An event that is left out is found again.
        self._removed: Final[set[int]] = set()
        # Edge-triggered, so that nobody has to read it: each write ends a wait. A file object, because after
        # `close` the number may be that of another file.
        self._waker: Final = os.fdopen(os.eventfd(0, os.EFD_CLOEXEC), "wb", buffering=0)
        self._epoll.register(self._waker.fileno(), select.EPOLLIN | select.EPOLLET)

    def wake(self) -> None:
        """End the present wait, or the next one; in any thread. Without effect once it is closed."""
        with contextlib.suppress(OSError, ValueError):
            self._waker.write(_ONE)

    # Connections.

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        """Call the callback whenever the socket is readable or its peer is gone."""
        before = self._mask(fd)
        self._callbacks[fd] = callback
        self._watch(fd, before)

    def remove_reader(self, fd: int) -> None:
        """Do not call the callback of the socket any more; the socket must be open."""
        before = self._mask(fd)
        self._callbacks.pop(fd, None)
        self._removed.add(fd)
        self._watch(fd, before)

    # The interface of selectors.

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Watch a file; raises as `selectors.BaseSelector.register`."""
        if not events or events & ~(selectors.EVENT_READ | selectors.EVENT_WRITE):
            raise ValueError(f"Invalid events: {events!r}")
        fd = self._descriptor(fileobj)
        if fd in self._keys:
            raise KeyError(f"{fileobj!r} (FD {fd}) is already registered")
        before = self._mask(fd)
        key = self._keys[fd] = selectors.SelectorKey(fileobj, fd, events, data)
        try:
            self._watch(fd, before)
        except BaseException:
            del self._keys[fd]
            raise
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Watch a file no more; raises as `selectors.BaseSelector.unregister`."""
        fd = self._descriptor(fileobj)
        before = self._mask(fd)
        key = self._keys.pop(fd, None)
        if key is None:
            raise KeyError(f"{fileobj!r} is not registered")
        self._removed.add(fd)
        # The file may be closed since it was registered.
        with contextlib.suppress(OSError):
            self._watch(fd, before)
        return key

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Change the events or the data of a file; raises as `selectors.BaseSelector.modify`."""
        fd = self._descriptor(fileobj)
        if fd not in self._keys:
            raise KeyError(f"{fileobj!r} is not registered")
        before = self._mask(fd)
        key = self._keys[fd] = self._keys[fd]._replace(events=events, data=data)
        self._watch(fd, before)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for sockets, call the readable connections and return the others' keys and events."""
        if timeout is None:
            timeout = -1
        elif timeout <= 0:
            timeout = 0
        try:
            # epoll counts milliseconds; `poll` rounds them up, so that no timer finds that it is too early.
            if timeout and self.busy_poll_seconds:
                found = self._poll_busily(timeout)
            else:
                found = self._epoll.poll(timeout, EVENTS_PER_TURN_MAX)
        except InterruptedError:
            return []
        callbacks, keys, removed = self._callbacks, self._keys, self._removed
        removed.clear()
        ready: list[tuple[selectors.SelectorKey, int]] = []
        for fd, event in found:
            if fd in removed:
                continue
            callback = callbacks.get(fd)
            if callback is not None and event != select.EPOLLOUT:
                try:
                    callback()
                except Exception:
                    logger.exception("the callback of a readable connection failed")
            if fd in keys and fd not in removed:
                key = keys[fd]
                events = (selectors.EVENT_READ if event & ~select.EPOLLOUT else 0) | (
                    selectors.EVENT_WRITE if event & ~select.EPOLLIN else 0
                )
                ready.append((key, events & key.events))
        if not ready:
            return ready
        # A callback may have replaced a key that was found before it; asyncio would remove the new one for
        # the cancelled handle of the old.
        return [each for each in ready if keys.get(each[0].fd) is each[0]]

    def _poll_busily(self, timeout: float) -> list[tuple[int, int]]:
        poll, clock = self._epoll.poll, self._clock
        found = poll(0, EVENTS_PER_TURN_MAX)
        if found:
            return found
        began = clock()
        end = began + self.busy_poll_seconds
        if self._hits < HITS_BEFORE_BUSY:
            found = poll(timeout, EVENTS_PER_TURN_MAX)
            is_hit = bool(found) and clock() < end
        else:
            # A timer may be due earlier; it runs late by no more than a busy poll.
            while not found and clock() < end:
                found = poll(0, EVENTS_PER_TURN_MAX)
            is_hit = bool(found)
            if not is_hit:
                found = poll(timeout, EVENTS_PER_TURN_MAX)
        self._hits = min(self._hits + 1, HITS_MAX) if is_hit else max(self._hits - HITS_PER_MISS, 0)
        return found

    def close(self) -> None:
        """Close the poll set."""
        self._waker.close()
        self._epoll.close()
        self._keys.clear()
        self._callbacks.clear()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Return the keys by file or descriptor."""
        return _Keys(self._keys, self._descriptor)

    def _descriptor(self, fileobj: Any) -> int:
        fd = fileobj if isinstance(fileobj, int) else int(fileobj.fileno())
        if fd < 0:
            # Closed: only its key has the number.
            for key in self._keys.values():
                if key.fileobj is fileobj:
                    return key.fd
            raise ValueError(f"Invalid file object: {fileobj!r}")
        return fd

    def _mask(self, fd: int) -> int:
        key = self._keys.get(fd)
        mask = select.EPOLLIN if fd in self._callbacks else 0
        if key is not None:
            mask |= select.EPOLLIN if key.events & selectors.EVENT_READ else 0
            mask |= select.EPOLLOUT if key.events & selectors.EVENT_WRITE else 0
        return mask

    def _watch(self, fd: int, before: int) -> None:
        mask = self._mask(fd)
        if not before:
            if mask:
                self._epoll.register(fd, mask)
        elif not mask:
            self._epoll.unregister(fd)
        elif mask != before:
            self._epoll.modify(fd, mask)


class _Keys(Mapping[Any, selectors.SelectorKey]):
    """The keys of a selector by file or descriptor."""

    def __init__(self, keys: dict[int, selectors.SelectorKey], descriptor: Callable[[Any], int]) -> None:
        self._keys: Final = keys
        self._descriptor: Final = descriptor

    def __getitem__(self, fileobj: Any) -> selectors.SelectorKey:
        try:
            return self._keys[self._descriptor(fileobj)]
        except (KeyError, ValueError):
            raise KeyError(f"{fileobj!r} is not registered") from None

    def __iter__(self) -> Any:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _loop_time() -> Callable[[], float]:
    """Return `time.monotonic`, which costs half as much as `clock.monotonic`, unless it is a fake already.

    freezegun replaces functions in modules. It does not find this one, which becomes a part of a class.
    """
    return time.monotonic if isinstance(time.monotonic, BuiltinFunctionType) else monotonic


class ConnectionEventLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop with a `ConnectionSelector`."""

    def __init__(self) -> None:
        self.readers: Final = ConnectionSelector()
        super().__init__(self.readers)

    def _write_to_self(self) -> None:
        # Without the two system calls in which asyncio's own way reads its socket. Each of them lets another
        # thread have the interpreter, for which this one has to wait then.
        self.readers.wake()

    time = staticmethod(_loop_time())
    """Returns monotonic seconds, also where the time of a program's tests stands still."""


class PortableEventLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop with the selector that it chooses, such as one over kqueue."""

    time = staticmethod(_loop_time())


class RunningLoops:
    """Keeps the running loop of each greenlet: a trace function of greenlets.

    Where gevent or eventlet replaces threads, the loops of several clients run in one thread of the system,
    for which asyncio allows one running loop.
    """

    def __init__(self, before: Callable[[str, Any], object] | None) -> None:
        """`before` is the trace function that this one follows."""
        self._before: Final = before
        self._loops: Final[WeakKeyDictionary[Any, asyncio.AbstractEventLoop]] = WeakKeyDictionary()

    def __call__(self, event: str, switch: Any) -> None:
        """Note a switch from one greenlet to another."""
        origin, target = switch
        loop = asyncio._get_running_loop()
        if loop is not None:
            self._loops[origin] = loop
        else:
            self._loops.pop(origin, None)
        asyncio._set_running_loop(self._loops.get(target))
        if self._before is not None:
            self._before(event, switch)


class GreenletEventLoop(PortableEventLoop):
    """asyncio's event loop, for a thread that is a greenlet of gevent or eventlet."""

    def run_forever(self) -> None:
        """Run, beside the loops of other greenlets."""
        greenlet: Any = sys.modules["greenlet"]
        before = greenlet.gettrace()
        if not isinstance(before, RunningLoops):
            greenlet.settrace(RunningLoops(before))
        super().run_forever()


def threads_are_greenlets() -> bool:
    """Return whether gevent or eventlet has replaced the threads of this process."""
    gevent = sys.modules.get("gevent.monkey")
    if gevent is not None and gevent.is_module_patched("threading"):
        return True
    eventlet = sys.modules.get("eventlet.patcher")
    return eventlet is not None and bool(eventlet.is_monkey_patched("thread"))


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop that calls connections itself; asyncio's own where the system has no epoll.

    asyncio's default loop on Windows has no `add_reader`.
    """
    # Asked at each call: gevent takes epoll away, also after this module was imported.
    if threads_are_greenlets():
        return GreenletEventLoop()
    is_linux = hasattr(select, "epoll") and hasattr(os, "eventfd") and not PORTABLE
    return ConnectionEventLoop() if is_linux else PortableEventLoop()


def run_on_new_loop(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine as `asyncio.run` does, on a loop of `new_event_loop`; return its result."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def poll_busily(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    """Let the loop's waits be busy polls of at most this time, where they find something; 0 is never.

    With a single processor they never are, since the peers of the same machine could not run meanwhile.
    """
    if isinstance(loop, ConnectionEventLoop):
        loop.readers.busy_poll_seconds = seconds if len(os.sched_getaffinity(0)) > 1 else 0.0
