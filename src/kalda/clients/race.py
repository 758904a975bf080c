"""Runs alternative attempts, starting the next when one fails or is slow; the first success wins."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def first_success(
    attempts: Sequence[Callable[[], Coroutine[Any, Any, T]]],
    *,
    next_after_seconds: float,
    passing: tuple[type[Exception], ...],
) -> T:
    """Return the result of the first attempt that succeeds; the others are cancelled.

    An attempt starts when the one before failed, or has been running for `next_after_seconds`.

    Args:
        attempts: Functions that return coroutines; at least one.
        next_after_seconds: The wait before the next attempt starts beside those that run.
        passing: The failures that another attempt may not meet. Any other failure ends all attempts.

    Raises:
        Exception: the last failure once all attempts failed, or the first one that is not `passing`.
    """
    assert attempts, "no attempt to run"
    waiting = list(reversed(attempts))
    running: set[asyncio.Task[T]] = set()
    try:
        while True:
            if waiting:
                running.add(asyncio.create_task(waiting.pop()(), name="attempt"))
            done, running = await asyncio.wait(
                running,
                timeout=next_after_seconds if waiting else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            failures = [task.exception() for task in done]
            for task, failure in zip(done, failures, strict=True):
                if failure is None:
                    return task.result()
            for failure in failures:
                assert failure is not None, "a success was returned above"
                if not isinstance(failure, passing) or not (running or waiting):
                    raise failure
    finally:
        for task in running:
            task.cancel()
        if running:
            await asyncio.gather(*running, return_exceptions=True)
