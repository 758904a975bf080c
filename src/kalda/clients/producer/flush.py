"""Waits for the results of many batches, also of those that are split meanwhile."""

from collections.abc import Callable, Sequence

from kalda.clients.producer.record_future import BatchResult


def wait_for_results(
    results: Sequence[BatchResult], timeout_s: float | None, monotonic: Callable[[], float]
) -> bool:
    """Block until all results are final; return False if the time was over before."""
    deadline = None if timeout_s is None else monotonic() + timeout_s
    waiting = list(reversed(results))
    while waiting:
        result = waiting.pop()
        left = None if deadline is None else max(0.0, deadline - monotonic())
        if not result.wait(left):
            return False
        waiting += result.successors
    return True
