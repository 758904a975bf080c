"""Defines what a record may have to wait for on its way to a batch, and how a thread or a task waits.

`ProducerCore` decides: its generators yield what has to happen before they go on. `drive` and `drive_async`
do it, for `Producer` and `AsyncProducer`.

An exception of a wait, or between two steps, ends the generator, which gives back the memory that it has
reserved.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from kalda.clients.producer.buffer_pool import MemoryWaiter
from kalda.runtime.system.clock import monotonic

T = TypeVar("T")
W = TypeVar("W", bound=MemoryWaiter)


@dataclass(frozen=True, slots=True)
class WaitForMetadata:
    """The topic, or the partition of it, is not known yet."""

    topic: str
    partition: int | None


@dataclass(frozen=True, slots=True)
class RunBlocking:
    """A call that takes the processor for long; the generator gets its result."""

    call: Callable[[], Any]


class BeforeBatch:
    """A batch begins; the sender needs a turn where it shares the caller's loop."""


BEFORE_BATCH: Final = BeforeBatch()

Step: TypeAlias = WaitForMetadata | RunBlocking | BeforeBatch | W
"""The event that a generator waits for; a waiter for memory is of the caller's kind."""
Steps: TypeAlias = Generator[Step[W], Any, T]


class BlockingWaiter(MemoryWaiter):
    """A thread that waits for memory."""

    __slots__ = ("_granted",)

    def __init__(self, size: int) -> None:
        self._granted: Final = threading.Lock()
        self._granted.acquire()
        super().__init__(size, self._granted.release)

    def wait(self, deadline: float) -> None:
        """Return when the memory is granted or `monotonic` has come to `deadline`."""
        self._granted.acquire(timeout=min(max(0.0, deadline - monotonic()), threading.TIMEOUT_MAX))


class AsyncWaiter(MemoryWaiter):
    """A task that waits for memory."""

    __slots__ = ("_granted",)

    def __init__(self, size: int) -> None:
        self._granted: Final = asyncio.Event()
        super().__init__(size, self._granted.set)

    async def wait(self, deadline: float) -> None:
        """Return when the memory is granted or the loop's time has come to `deadline`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._granted.wait()


def drive(
    steps: Steps[BlockingWaiter, T], do: Callable[[Step[BlockingWaiter], float], object], timeout_s: float
) -> T:
    """Take the steps of a generator in this thread; return the generator's result.

    Args:
        steps: The generator.
        do: Does a step, and may block until the deadline, a `monotonic` time, that it gets.
        timeout_s: The time for all steps, from the first one on.
    """
    try:
        step = next(steps)
        deadline = monotonic() + timeout_s
        while True:
            try:
                result = do(step, deadline)
            except BaseException as error:
                steps.throw(error)
            step = steps.send(result)
    except StopIteration as end:
        done: T = end.value
        return done
    except BaseException:
        # Also an interrupt between two steps.
        steps.close()
        raise


async def drive_async(
    steps: Steps[AsyncWaiter, T],
    do: Callable[[Step[AsyncWaiter], float], Awaitable[object]],
    timeout_s: float,
) -> T:
    """Take the steps of a generator in this task, as `drive` does in a thread; deadlines are the loop's."""
    try:
        step = next(steps)
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            try:
                result = await do(step, deadline)
            except BaseException as error:
                steps.throw(error)
            step = steps.send(result)
    except StopIteration as end:
        done: T = end.value
        return done
    except BaseException:
        # Also an interrupt between two steps.
        steps.close()
        raise
