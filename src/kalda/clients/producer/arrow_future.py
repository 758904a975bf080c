"""Defines `ArrowFuture`, the future of all rows that one `send_arrow` sent, and what it returns.

It knows the batches that the rows went to, not the rows. Its result is final when that of each batch is.
"""

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple

from kalda.clients.producer.flush import wait_for_results
from kalda.clients.producer.record_future import BatchResult, set_from_any_thread
from kalda.common.public import public
from kalda.runtime.system.clock import monotonic


@public
class OffsetRange(NamedTuple):
    """Rows that are next to each other in a partition."""

    partition: int
    base_offset: int
    """The offset of the first of them; -1 where the producer did not get it."""
    record_count: int


@public
class ArrowMetadata(NamedTuple):
    """Where the rows of a `send_arrow` are."""

    topic: str
    record_count: int
    ranges: tuple[OffsetRange, ...]
    """Rows of a partition are in the order of the batch."""


@public
class ArrowFuture:
    """The future of the rows: ``future.result(10)`` in a thread, ``await future`` on an event loop."""

    __slots__ = ("_batches", "_topic")

    def __init__(self, topic: str, batches: Sequence[tuple[BatchResult, int]]) -> None:
        self._topic: Final = topic
        self._batches: Final = batches
        """The result and the number of records of each batch."""

    def done(self) -> bool:
        """Return whether each row was written or failed."""
        return self._first_incomplete() is None

    def result(self, timeout: float | None = None) -> ArrowMetadata:
        """Return the offsets of the rows; wait up to `timeout` seconds, without a limit by default.

        Raises:
            TimeoutError: the time is over; the rows may still be written.
            ClientError: the first failure; other rows may have been written, see `ranges`.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        return ArrowMetadata(self._topic, sum(count for _, count in self._batches), self.ranges())

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Return the first failure, None if all rows were written; wait as `result` does.

        Raises:
            TimeoutError: the time is over.
        """
        if not wait_for_results([result for result, _ in self._batches], timeout, monotonic):
            raise TimeoutError(
                f"rows for topic {self._topic} have no result within {timeout} seconds; they may still be "
                "written until `delivery.timeout.ms` is over"
            )
        for result, count in self._batches:
            for leaf, _ in _leaves(result, count):
                if leaf.error is not None:
                    return leaf.error
        return None

    def ranges(self) -> tuple[OffsetRange, ...]:
        """Return the offsets of the rows that were written so far."""
        return tuple(
            OffsetRange(leaf.partition, leaf.base_offset, records)
            for result, count in self._batches
            for leaf, records in _leaves(result, count)
            if leaf.is_done and leaf.error is None
        )

    def add_done_callback(self, callback: "Callable[[ArrowFuture], None]") -> None:
        """Call ``callback(future)`` once when the future is done, on the producer's loop thread; now if it
        is.

        An exception of the callback is logged.
        """
        incomplete = self._first_incomplete()
        if incomplete is None:
            callback(self)
        else:
            incomplete.add_callback(0, lambda: self.add_done_callback(callback))

    def __await__(self) -> Generator[object, None, ArrowMetadata]:
        if not self.done():
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self.add_done_callback(lambda _: set_from_any_thread(loop, waiter))
            yield from waiter
        return self.result(0)

    def __repr__(self) -> str:
        return f"<ArrowFuture {'done' if self.done() else 'pending'} {self._topic}>"

    def _first_incomplete(self) -> BatchResult | None:
        for result, count in self._batches:
            for leaf, _ in _leaves(result, count):
                if not leaf.is_done:
                    return leaf
        return None


def _leaves(result: BatchResult, count: int) -> list[tuple[BatchResult, int]]:
    """Return the results that have taken the place of `result`, or itself, with their numbers of records."""
    if not result.successors:
        return [(result, count)]
    leaves = []
    for successor, first, end in result.successor_ranges(count):
        leaves += _leaves(successor, end - first)
    return leaves
