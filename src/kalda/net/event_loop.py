"""asyncio's event loop with a selector that calls connections itself: `new_event_loop`.

For each readable socket asyncio looks a key up, makes a list entry and runs a handle in a context, which is
about 2 us of the 13 us that a small produce request costs. `ConnectionSelector` calls the connections whose
sockets are readable as soon as it finds them. Everything else, writable sockets included, goes asyncio's way,
and on any other event loop connections do so too.
"""

import asyncio
import contextlib
import logging
import math
import select
import selectors
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

logger: Final = logging.getLogger(__name__)

EVENTS_PER_TURN_MAX: Final = 64
"""Sockets that are reported at once. Timers and the answers of other brokers get their turn after that many
requests; epoll reports the other sockets in the next turn before these come again."""


class Readers(Protocol):
    """What calls a connection when its socket is readable: an event loop, or a `ConnectionSelector`."""

    def add_reader(self, fd: int, callback: Callable[[], None], /) -> None:
        """Call the callback whenever the socket is readable."""
        ...

    def remove_reader(self, fd: int, /) -> object:
        """Do not call the callback of the socket any more."""
        ...


class ConnectionSelector(selectors.BaseSelector):
    """A selector over epoll that calls some readers itself; `selectors.EpollSelector` otherwise."""

    def __init__(self) -> None:
        self._epoll: Final = select.epoll()
        self._keys: Final[dict[int, selectors.SelectorKey]] = {}
        self._callbacks: Final[dict[int, Callable[[], None]]] = {}

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
        else:
            # Rounded up: epoll counts milliseconds, and a timer must not find that it is too early.
            timeout = math.ceil(timeout * 1e3) * 1e-3
        try:
            found = self._epoll.poll(timeout, EVENTS_PER_TURN_MAX)
        except InterruptedError:
            return []
        callbacks, keys = self._callbacks, self._keys
        ready: list[tuple[selectors.SelectorKey, int]] = []
        readable: list[tuple[int, Callable[[], None]]] = []
        for fd, event in found:
            if fd in callbacks and event & ~select.EPOLLOUT:
                readable.append((fd, callbacks[fd]))
            if fd in keys:
                key = keys[fd]
                events = (selectors.EVENT_READ if event & ~select.EPOLLOUT else 0) | (
                    selectors.EVENT_WRITE if event & ~select.EPOLLIN else 0
                )
                ready.append((key, events & key.events))
        # Only now, since a callback may close a socket, and open another one with its number.
        for fd, callback in readable:
            if callbacks.get(fd) is callback:
                try:
                    callback()
                except Exception:
                    logger.exception("the callback of a readable connection failed")
        return ready

    def close(self) -> None:
        """Close the poll set."""
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


class ConnectionEventLoop(asyncio.SelectorEventLoop):
    """asyncio's event loop with a `ConnectionSelector`."""

    def __init__(self) -> None:
        self.readers: Final = ConnectionSelector()
        super().__init__(self.readers)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop that calls connections itself; asyncio's own where the system has no epoll."""
    return ConnectionEventLoop() if hasattr(select, "epoll") else asyncio.new_event_loop()


def readers_of(loop: asyncio.AbstractEventLoop) -> Readers:
    """Return what calls connections on this loop when their sockets are readable."""
    return loop.readers if isinstance(loop, ConnectionEventLoop) else loop
