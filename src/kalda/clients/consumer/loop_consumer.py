"""Implements the half of a synchronous consumer that runs on the loop thread.

It is an `AsyncConsumer` whose callbacks are left for the user's thread instead of being called.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kalda.clients.argument_checks import check_callback
from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.consumer.caller_thread import CallerQueue, CallerTask, WakeSignal
from kalda.clients.consumer.consumer_core import ConsumerCore
from kalda.clients.consumer.consumer_setup import ConsumerSetup, OffsetLike
from kalda.clients.consumer.group.port import Offsets, OnCommit
from kalda.clients.consumer.rebalance_listener import ConsumerRebalanceListener, RebalanceEvent
from kalda.clients.consumer.record_iteration import RecordIteration
from kalda.clients.errors import ClientError, IllegalStateError
from kalda.common.types import TopicPartition

if TYPE_CHECKING:
    from kalda.clients.consumer.arrow_poll import ArrowPoll

_ABANDON_SECONDS: Final = 1.0
"""Enough to leave the group; nobody waits for it."""
_LOOK_SECONDS: Final = 1.0
"""How soon the loop notices a listener whose end the user's thread could not report."""


class _ListenerTask(CallerTask):
    """One call of a listener by the user's thread, and its end on the loop."""

    def __init__(
        self,
        listener: ConsumerRebalanceListener,
        event: RebalanceEvent,
        partitions: Collection[TopicPartition],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._listener: Final = listener
        self._event: Final = event
        self._partitions: Final = partitions
        self._loop: Final = loop
        self._ended: Final = asyncio.Event()
        self._error: BaseException | None = None
        self._has_returned = False

    def run(self) -> None:
        """Call the listener, and pass its outcome to the loop."""
        try:
            self.is_started = True
            self._error = IllegalStateError("the listener was interrupted")
            name = self._event.value
            result = getattr(self._listener, name)(self._partitions)
            if inspect.iscoroutine(result):
                result.close()
                raise IllegalStateError(
                    f"{type(self._listener).__name__}.{name} is a coroutine; use AsyncConsumer, or a function"
                )
            self._error = None
        except Exception as error:
            self._error = error
        finally:
            self._has_returned = True
            # The listener may have closed the consumer, and with it the loop.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ended.set)

    async def wait_done(self) -> None:
        """Wait until the listener has returned; raises the listener's exception."""
        while not self._has_returned:
            # An interrupt of the user's thread may keep it from setting the event.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._ended.wait()
        if self._error is not None:
            raise self._error


class LoopConsumer(AsyncConsumer[Any, Any]):
    """An `AsyncConsumer` for `Consumer`; see there."""

    _SHARES_LOOP: ClassVar = False

    def __init__(
        self,
        setup: ConsumerSetup,
        listener: ConsumerRebalanceListener | None,
        signal: WakeSignal,
        queue: CallerQueue,
    ) -> None:
        self._set_up(setup, (), listener)
        self._signal: Final = signal
        self._queue: Final = queue

    def core(self) -> ConsumerCore:
        """Return the core, for the user's thread, with positions that count what was handed out.

        Raises:
            IllegalStateError: the consumer is closed.
        """
        return self._usable_core()

    def open_core(self) -> ConsumerCore:
        """Return the result of a method of `core` that a listener cannot call in `close`."""
        return self._open_core()

    def check_not_inside(self) -> None:
        """Check that the user's thread may wait for the loop; see `SubscriptionState.check_not_inside`."""
        if self._core is not None:
            self._core.subscription.check_not_inside()

    @property
    def iteration(self) -> RecordIteration:
        """The records that a loop is being given."""
        assert self._iteration is not None, "a started consumer iterates"
        return self._iteration

    @property
    def arrow(self) -> "ArrowPoll":
        """The rows of `poll_arrow`."""
        return self._arrow_poll()

    def give_up_arrow(self) -> None:
        """Have rows that were decoded and not returned come as records."""
        self._give_up_arrow()

    async def abandon(self) -> None:
        """Close without the application's thread; the listener is not called."""
        self._listener = None
        await self.close(_ABANDON_SECONDS)

    async def polled(self) -> None:
        """Call `ConsumerCore.polled` on the loop."""
        self._usable_core().polled()

    async def invoke(self, event: RebalanceEvent, partitions: Collection[TopicPartition]) -> None:
        """Have the user's thread call the listener; return when it has returned."""
        listener = self._listener
        if listener is None:
            return
        task = _ListenerTask(listener, event, partitions, asyncio.get_running_loop())
        self._queue.add_rebalance(task)
        await task.wait_done()

    async def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetLike] | None = None,
        on_commit: OnCommit | None = None,
    ) -> None:
        """Commit without waiting; the user's thread calls `on_commit`."""
        if on_commit is None:
            await super().commit_async(offsets)
            return
        check_callback("on_commit", on_commit)
        callback = on_commit

        def leave(committed: Offsets, error: ClientError | None) -> None:
            self._queue.add(lambda: callback(committed, error))

        await super().commit_async(offsets, leave)

    def _check_loop(self) -> None:
        """Check nothing: the user's thread asks, too, and `Consumer` has one loop."""

    def _on_ready(self) -> None:
        self._signal.set()

    def _on_committed(self, offsets: Offsets) -> None:
        if self._interceptors:
            self._queue.add(lambda: self._interceptors.on_commit(offsets))
