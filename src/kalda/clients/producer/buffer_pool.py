"""Accounts for the memory of batches (`buffer.memory`) and queues the callers who wait for it. Sans-IO.

Python allocates and frees the memory itself, so the pool holds no buffers, only numbers. The accumulator's
lock guards all methods.

What a maintainer must not break: waiters are served first in, first out, and nobody passes them by. A caller
with a large record would else wait for ever beside callers with small ones.
"""

from collections import deque
from collections.abc import Callable
from typing import Final


class MemoryWaiter:
    """A caller that waits for `size` bytes; `wake` is called once, when they are reserved for it."""

    __slots__ = ("is_granted", "size", "wake")

    def __init__(self, size: int, wake: Callable[[], None]) -> None:
        self.size: Final = size
        self.wake: Final = wake
        self.is_granted = False


class BufferPool:
    """`total` bytes, of which each batch in the producer has reserved some."""

    def __init__(self, total: int) -> None:
        self.total: Final = total
        self._available = total
        self._waiters: Final[deque[MemoryWaiter]] = deque()

    @property
    def available(self) -> int:
        """Bytes that nobody has reserved."""
        return self._available

    @property
    def waiter_count(self) -> int:
        """How many callers wait."""
        return len(self._waiters)

    def reserve_nowait(self, size: int) -> bool:
        """Reserve `size` bytes if they are free and nobody waits; return whether it did."""
        if self._waiters or size > self._available:
            return False
        self._available -= size
        return True

    def wait(self, size: int, wake: Callable[[], None]) -> MemoryWaiter:
        """Queue a caller that `reserve_nowait` refused; `size` is at most `total`."""
        assert size <= self.total, f"{size} bytes never fit into {self.total}"
        waiter = MemoryWaiter(size, wake)
        self._waiters.append(waiter)
        return waiter

    def cancel(self, waiter: MemoryWaiter) -> None:
        """Let a caller give up; what was reserved for it meanwhile is free again."""
        if waiter.is_granted:
            waiter.is_granted = False
            self.release(waiter.size)
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
            waiter = self._waiters.popleft()
            self._available -= waiter.size
            waiter.is_granted = True
            waiter.wake()
