"""Provides the base classes of consumers and share consumers: start, state, one poll at a time, iteration.

What is read, and how it ends, is in the classes themselves.
"""

import asyncio
import inspect
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from typing import Final, Generic, Self, TypeVar

from kalda.clients.config.reader_config import ReaderConfig
from kalda.clients.consumer.caller_thread import OneThreadAtATime
from kalda.clients.consumer.consumer_errors import WakeupError
from kalda.clients.errors import IllegalStateError
from kalda.clients.facade import A_co, AsyncClient, BlockingClient
from kalda.clients.loop_owner import LoopOwner
from kalda.clients.loop_thread import LoopThread
from kalda.clients.reprs import client_repr

ARROW_RECORDS_MAX: Final = 100_000
"""The default of the largest number of rows that `poll_arrow` returns."""
CLOSE_TIMEOUT_SECONDS: Final = 30.0
"""How long `close` may take; Java's default."""

Core = TypeVar("Core")
Record = TypeVar("Record")


class AsyncReader(AsyncClient, Generic[Core, Record]):
    """Base of the asynchronous consumers; a started one has a `Core`."""

    def _begin(self, name: str, config: ReaderConfig) -> None:
        self._config = config
        self._ready = asyncio.Event()
        self._core: Core | None = None
        self._generator: AsyncGenerator[Record, None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owner = LoopOwner(name)
        self._is_closed = self._is_polling = self._is_woken = False

    async def start(self) -> None:
        """Start to connect and, with topics, to join the group; ``async with`` calls it. Harmless twice.

        Raises:
            IllegalStateError: the consumer is closed.
        """
        if self._is_closed:
            raise IllegalStateError("this consumer is closed; create another one")
        self._owner.check()
        if self._core is None:
            self._loop = asyncio.get_running_loop()
            await self._start_core()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    def __repr__(self) -> str:
        if "_is_woken" not in vars(self):
            return client_repr(self, None, "closed")
        state = "closed" if self._is_closed else "open" if self._core is not None else "not started"
        return client_repr(self, self._config, state)

    def __aiter__(self) -> AsyncIterator[Record]:
        if self._generator is None:
            self._generator = self._records()
        return self._generator

    def wakeup(self) -> None:
        """Have the present or the next `poll` raise `WakeupError`. May be called from any thread."""
        self._is_woken = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._ready.set)

    @abstractmethod
    async def _start_core(self) -> None:
        """Make the core and start it."""

    @abstractmethod
    def _records(self) -> AsyncGenerator[Record, None]:
        """Yield records for ever; ends when the consumer is closed."""

    def _needs_close(self) -> bool:
        """Check the loop, and return whether there is something to close; if not, it is closed now."""
        if self._is_closed or self._core is None or self._owner.is_foreign_process:
            # In a fork the connections are those of the parent.
            self._is_closed = True
            return False
        self._owner.check()
        return True

    async def _end_polls(self) -> None:
        """End waiting polls, and iteration over the consumer."""
        self._is_closed = True
        self._ready.set()
        if self._generator is not None and not self._is_polling:
            await self._generator.aclose()

    def _on_ready(self) -> None:
        """Wake the task that waits for records."""
        self._ready.set()

    def _check_woken(self) -> None:
        """Raise what interrupts a poll."""
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")
        if self._is_closed:
            raise IllegalStateError("the consumer was closed while it waited for records")

    @contextmanager
    def _polling(self) -> Iterator[None]:
        """Refuse a second task: both would get some of the records."""
        if self._is_polling:
            raise IllegalStateError("another task polls this consumer; a consumer is for one task at a time")
        self._is_polling = True
        try:
            yield
        finally:
            self._is_polling = False

    def _not_usable(self) -> IllegalStateError:
        state = "closed" if self._is_closed else "not started; use `async with`, or await start()"
        return IllegalStateError(f"this consumer is {state}")

    def _check_loop(self) -> None:
        """Check that the caller runs on the consumer's loop."""
        self._owner.check()


class BlockingReader(BlockingClient[A_co], Generic[A_co, Record]):
    """Base of the synchronous consumers: a loop thread, one thread of the user's at a time, iteration."""

    def _begin(self, config: ReaderConfig) -> None:
        self._config = config
        self._guard = OneThreadAtATime(config.client_id, self)
        self._generator: Generator[Record, None, None] | None = None
        self._thread = LoopThread(config.client_id)

    def __repr__(self) -> str:
        inner = vars(self).get("_inner")
        state = "closed" if inner is None or self._thread.is_closed else "open"
        return client_repr(self, None if inner is None else self._config, state)

    def __iter__(self) -> Generator[Record, None, None]:
        # An interrupt ends the generator, and may keep it from saying so.
        if self._generator is None or inspect.getgeneratorstate(self._generator) == inspect.GEN_CLOSED:
            self._generator = self._records()
        return self._generator

    def __next__(self) -> Record:
        return next(iter(self))

    @abstractmethod
    def _records(self) -> Generator[Record, None, None]:
        """Yield records for ever; ends when the consumer is closed."""
