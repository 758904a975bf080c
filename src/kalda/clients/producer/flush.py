"""Waits for the results of many batches, also of those that are split meanwhile."""

import asyncio
from collections.abc import Callable, Sequence

from kalda.clients.producer.record_future import BatchResult


def wait_for_results(
    results: Sequence[BatchResult], timeout_s: float | None, monotonic: Callable[[], float]
) -> bool:
    """Block until all results are final and callbacks have run; return False if the time was over before."""
    deadline = None if timeout_s is None else monotonic() + timeout_s
    # The newest first: when it is final, so are most others, and the caller is not woken for each of them.
    waiting = list(results)
    while waiting:
        result = waiting.pop()
        left = None if deadline is None else max(0.0, deadline - monotonic())
        if not result.wait(left, is_delivered=True):
            return False
        waiting += result.successors
    return True


async def await_results(results: Sequence[BatchResult]) -> None:
    """Wait until all results, which belong to the running loop, are final."""
    waiting = list(reversed(results))
    while waiting:
        result = waiting[-1]
        if result.successors:
            waiting.pop()
            waiting += result.successors
        elif result.is_done:
            waiting.pop()
        else:
            # Also called when the batch is split: the callback moves to the part with the record at index 0.
            changed = asyncio.Event()
            result.add_callback(0, changed.set)
            await changed.wait()
