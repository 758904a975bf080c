"""Runs long work on the event loop in turns, between which the loop does other work.

A client may name 80,000 partitions in one request, and each costs 1 to 60 microseconds. Work that may be so
long is a generator, its steps: it yields where other work may come in between. As with `await`, what it has
read before a yield may have changed after it.

    first_turn(steps)    does the steps of one turn at once: all of them for nearly every request
    Turns.run(steps)     does the others later, one turn in each iteration of the event loop
    Turns.result(steps)  does them for a coroutine
    between(index)       is for coroutines: in a loop over elements, it waits for a turn now and then
    between_many(index)  is the same for a controller's loops over partitions, which cost less each

All works that wait for their turn take it one after the other, so that an iteration of the event loop has one
turn however many there are, and another one for requests of brokers.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar
from weakref import WeakKeyDictionary

from kalda.common.pending import Pending
from kalda.common.steps import Steps as Steps
from kalda.common.steps import result_of as result_of

T = TypeVar("T")

STEPS_AT_ONCE: Final = 32
"""Steps of the first turn, which spares the requests of a usual client with its 20 partitions all others."""

STEPS_PER_TURN: Final = 8
"""Steps of one later turn. A step takes up to 50 microseconds or so, and another client's request waits for a
turn at most; with 32 it waited for 0.4 ms, and waits for 0.2 ms in most cases now. An iteration of the event
loop itself takes 10 to 20 microseconds."""

_CHEAP_STEPS_PER_TURN: Final = 256

_BY_LOOP: "Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Turns]]" = WeakKeyDictionary()
_OF_BROKERS: "Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Turns]]" = WeakKeyDictionary()


def first_turn(steps: Steps[T]) -> "T | Steps[T]":
    """Do the first turn of some work; return its result, or the steps themselves if there are more.

    Raises:
        Exception: what a step raises.
    """
    return _turn(steps, STEPS_AT_ONCE)


async def between(index: int) -> None:
    """Wait for a turn before every 8th element of a loop but the first; `index` counts the elements."""
    if index and index % STEPS_PER_TURN == 0:
        await Turns.of_running_loop().wait()


async def between_many(index: int) -> None:
    """Wait for a turn of brokers before every 256th element but the first; for work of a few microseconds."""
    if index and index % _CHEAP_STEPS_PER_TURN == 0:
        await Turns.of_brokers().wait()


def _turn(steps: Steps[T], count: int) -> "T | Steps[T]":
    try:
        for _ in range(count):
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result
    return steps


class Turns:
    """The work that waits for its turn on one event loop."""

    def __init__(self) -> None:
        self._waiting: Final[deque[Callable[[], None]]] = deque()
        """Invariant: `_next` is scheduled while there are any."""

    @staticmethod
    def of_running_loop() -> "Turns":
        """Return the one of the running event loop."""
        return _BY_LOOP.setdefault(asyncio.get_running_loop(), Turns())

    @staticmethod
    def of_brokers() -> "Turns":
        """Return the one of the running event loop for what brokers and controllers ask for.

        It has a turn of its own in each iteration, so that clients with much work do not delay a controller.
        """
        return _OF_BROKERS.setdefault(asyncio.get_running_loop(), Turns())

    def run(self, steps: Steps[T]) -> Pending[T]:
        """Do the steps in later turns; abandoning the result ends them where they are."""
        work = _Work(self, steps)
        self.queue(work.turn)
        return work.pending

    async def result(self, steps: Steps[T]) -> T:
        """Do the steps as a coroutine: the first turn at once, the others later; return the result.

        Raises:
            Exception: what a step raises.
        """
        result = first_turn(steps)
        while result is steps:
            await self.wait()
            result = _turn(steps, STEPS_PER_TURN)
        return result  # type: ignore[return-value]  # not the steps

    async def wait(self) -> None:
        """Wait for a turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def begin() -> None:
            if not turn.done():
                turn.set_result(None)

        self.queue(begin)
        await turn

    def queue(self, turn: Callable[[], None]) -> None:
        """Call `turn` when it is its turn."""
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        # It stays in the queue meanwhile, so that a work that queues itself again does not schedule `_next`.
        try:
            self._waiting[0]()
        finally:
            self._waiting.popleft()
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._next)


class _Work(Generic[T]):
    """Steps that wait for their next turn."""

    # Not a closure that queues itself: such a cycle would keep a large result until the next collection.
    __slots__ = ("_is_abandoned", "_steps", "_turns", "pending")

    def __init__(self, turns: Turns, steps: Steps[T]) -> None:
        self._turns: Final = turns
        self._steps: Final = steps
        self._is_abandoned = False
        self.pending: Final[Pending[T]] = Pending()
        self.pending.on_abandoned = self._abandon

    def turn(self) -> None:
        """Do the steps of one turn."""
        if self._is_abandoned:
            self._steps.close()
            self.pending.on_abandoned = None
            return
        try:
            result = _turn(self._steps, STEPS_PER_TURN)
        except Exception as error:
            self.pending.fail(error)
            return
        if result is self._steps:
            self._turns.queue(self.turn)
        else:
            self.pending.complete(result)  # type: ignore[arg-type]  # not the steps

    def _abandon(self) -> None:
        # Not closed at once: one of the steps may be what closes the connection.
        self._is_abandoned = True
