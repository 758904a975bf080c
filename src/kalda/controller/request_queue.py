"""What operators and brokers ask of the controller: a bounded queue that the owner task works off."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kalda.common.errors import ApiError, ErrorCode

_WAITING_MAX: Final = 1_000
"""Requests that may wait. Each is a person's or a broker's; a thousand mean that the controller is stuck."""

Result = TypeVar("Result")


class RequestQueue:
    """The queue. Whoever asks waits for an answer; whoever stops waiting is skipped."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake: Final = wake
        self._waiting: deque[tuple[Callable[[], Awaitable[None]], asyncio.Future[None]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def ask(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Have `work` done by the owner task, and return its result.

        Raises:
            ApiError: what `work` raises; NOT_CONTROLLER: the office was left before; REQUEST_TIMED_OUT: too
                many wait already.
        """
        if len(self._waiting) >= _WAITING_MAX:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"{len(self._waiting)} requests wait for the controller already."
            )
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        results: list[Result] = []

        async def note() -> None:
            results.append(await work())

        self._waiting.append((note, done))
        self._wake()
        await done
        return results[0]

    async def serve(self) -> None:
        """Work off the request that came first.

        What it raises but is no `ApiError` ends the term: the owner is told, and the request is refused.
        """
        note, done = self._waiting.popleft()
        if done.done():
            return
        try:
            await note()
        except ApiError as error:
            if not done.done():
                done.set_exception(error)
        except BaseException:
            if not done.done():
                done.set_exception(ApiError(ErrorCode.NOT_CONTROLLER))
            raise
        else:
            if not done.done():
                done.set_result(None)

    def refuse(self) -> None:
        """Answer all that wait: this broker is not the controller."""
        while self._waiting:
            _, done = self._waiting.popleft()
            if not done.done():
                done.set_exception(ApiError(ErrorCode.NOT_CONTROLLER))
