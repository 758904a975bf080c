"""Queues requests from operators and brokers, up to a bound, for the controller's owner task."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kalda.cluster.history.author import REQUESTER
from kalda.common.errors import ApiError, ErrorCode

_WAITING_MAX: Final = 1_000
"""Requests that may wait. Operators and brokers send few of them: a thousand mean a stuck controller."""

Result = TypeVar("Result")


class RequestQueue:
    """The queue. A caller waits for its result; the request of a cancelled caller is skipped."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake: Final = wake
        self._waiting: deque[tuple[Callable[[], Awaitable[None]], asyncio.Future[None]]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def ask(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run `work` in the owner task and return its result.

        Raises:
            ApiError: the error of `work`; NOT_CONTROLLER: this broker stopped being controller before;
                REQUEST_TIMED_OUT: too many requests wait already.
        """
        if len(self._waiting) >= _WAITING_MAX:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, f"{len(self._waiting)} requests wait for the controller already."
            )
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        results: list[Result] = []
        requester = REQUESTER.get()

        async def note() -> None:
            token = REQUESTER.set(requester)
            try:
                results.append(await work())
            finally:
                REQUESTER.reset(token)

        self._waiting.append((note, done))
        self._wake()
        await done
        return results[0]

    async def serve(self) -> None:
        """Serve the oldest request.

        An exception other than `ApiError` is raised to the owner task, whose term it ends; the request fails
        with NOT_CONTROLLER.
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
        """Fail all waiting requests with NOT_CONTROLLER."""
        while self._waiting:
            _, done = self._waiting.popleft()
            if not done.done():
                done.set_exception(ApiError(ErrorCode.NOT_CONTROLLER))
