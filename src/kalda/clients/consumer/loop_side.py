"""The half of a synchronous consumer that lives on the loop thread.

It is an `AsyncConsumer` whose callbacks are left for the user's thread instead of being called.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from kalda.clients.argument_checks import check_callback
from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.consumer.caller_thread import CallerQueue, WakeSignal
from kalda.clients.consumer.consumer_core import ConsumerCore
from kalda.clients.consumer.consumer_setup import ConsumerSetup, OffsetLike
from kalda.clients.consumer.group_port import Offsets, OnCommit
from kalda.clients.consumer.rebalance_listener import ConsumerRebalanceListener, RebalanceEvent
from kalda.clients.consumer.record_iteration import RecordIteration
from kalda.clients.errors import ClientError, IllegalStateError
from kalda.common.types import TopicPartition

if TYPE_CHECKING:
    from kalda.clients.consumer.arrow_poll import ArrowPoll

_ABANDON_SECONDS: Final = 1.0
"""Enough to leave the group; nobody waits for it."""


class LoopSide(AsyncConsumer):
    """An `AsyncConsumer` for `Consumer`; see there."""

    def __init__(
        self,
        setup: ConsumerSetup,
        listener: ConsumerRebalanceListener | None,
        signal: WakeSignal,
        queue: CallerQueue,
    ) -> None:
        self._prepare(setup, (), listener)
        self._signal: Final = signal
        self._queue: Final = queue

    def core(self) -> ConsumerCore:
        """Return the core, for the user's thread, with positions that count what was handed out.

        Raises:
            IllegalStateError: the consumer is closed.
        """
        return self._usable_core()

    def open_core(self) -> ConsumerCore:
        """Return what `core` returns, for methods that a listener cannot call in `close`."""
        return self._open_core()

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
        """Close without the user, whose listener cannot be called any more."""
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
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def finish(error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def report(error: BaseException | None) -> None:
            # The listener may have closed the consumer, and with it the loop.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(finish, error)

        def call() -> None:
            try:
                result = getattr(listener, event.value)(partitions)
                if inspect.iscoroutine(result):
                    result.close()
                    raise IllegalStateError(
                        f"{type(listener).__name__}.{event.value} is a coroutine; use AsyncConsumer, "
                        f"or a function"
                    )
            except Exception as error:
                report(error)
            except BaseException:
                report(IllegalStateError("the listener was interrupted"))
                raise
            else:
                report(None)

        self._queue.add(call, is_rebalance=True)
        await done

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

    def _on_ready(self) -> None:
        self._signal.set()

    def _on_committed(self, offsets: Offsets) -> None:
        if self._interceptors:
            self._queue.add(lambda: self._interceptors.on_commit(offsets))
