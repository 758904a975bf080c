"""Accounts for the memory of batches (`buffer.memory`) and queues the callers who wait for it. Sans-IO.

Python allocates and frees the memory itself, so the pool holds no buffers, only numbers. The accumulator's
lock guards all methods.

Waiters are served first in, first out: otherwise a caller with a large record would wait for ever beside
callers with small ones. No call stands between the change of a number and that of its owner: CPython runs
signal handlers in calls, and an exception out of one would lose the memory, or free it twice.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol


class MemoryWaiter:
    """A caller that wants `size` bytes; `wake` is called once, when they are reserved for it after a wait."""

    __slots__ = ("is_granted", "size", "wake")

    def __init__(self, size: int, wake: Callable[[], None]) -> None:
        self.size: Final = size
        self.wake: Final = wake
        self.is_granted = False
        """Whether the bytes are reserved, and no batch has taken them over."""


class MemoryHolder(Protocol):
    """A batch, which holds reserved bytes."""

    reserved: int
    """Its bytes of the pool."""


class BufferPool:
    """Accounts for `total` bytes, from which each batch of the producer reserves its memory."""

    def __init__(self, total: int) -> None:
        self.total: Final = total
        self._available = total
        self._waiters: Final[deque[MemoryWaiter]] = deque()

    @property
    def available(self) -> int:
        """The bytes that are not reserved."""
        return self._available

    @property
    def waiter_count(self) -> int:
        """The number of waiting callers."""
        return len(self._waiters)

    def reserve_nowait(self, waiter: MemoryWaiter) -> bool:
        """Reserve the bytes if they are free and no caller waits; return whether they are reserved."""
        size = waiter.size
        if self._waiters or size > self._available:
            return False
        self._available -= size
        waiter.is_granted = True
        return True

    def wait(self, waiter: MemoryWaiter) -> None:
        """Queue a caller that `reserve_nowait` refused; its size is at most `total`."""
        assert waiter.size <= self.total, f"{waiter.size} bytes never fit into {self.total}"
        self._waiters.append(waiter)

    def shrink(self, holder: MemoryHolder, size: int) -> None:
        """Free all but `size` of the bytes that a batch has reserved."""
        self._available += holder.reserved - size
        holder.reserved = size
        assert self._available <= self.total, f"{self._available} of {self.total} bytes are free"
        self._grant()

    def cancel(self, waiter: MemoryWaiter) -> None:
        """Remove a waiting caller and free the memory that is reserved for it."""
        if waiter.is_granted:
            waiter.is_granted = False
            self._available += waiter.size
            self._grant()
        elif waiter in self._waiters:
            self._waiters.remove(waiter)
            self._grant()

    def release(self, size: int) -> None:
        """Give `size` reserved bytes back and wake the callers whose turn it is."""
        self._available += size
        assert self._available <= self.total, f"{self._available} of {self.total} bytes are free"
        if self._waiters:
            self._grant()

    def fail_waiters(self) -> None:
        """Wake all callers without memory, because the producer closes."""
        while self._waiters:
            self._waiters.popleft().wake()

    def _grant(self) -> None:
        while self._waiters and self._waiters[0].size <= self._available:
            waiter = self._waiters[0]
            self._available -= waiter.size
            waiter.is_granted = True
            self._waiters.popleft()
            waiter.wake()
