"""Runs the heartbeats of a member: one request at a time, and the end of the poll interval."""

import asyncio
from typing import Final, Protocol

from kalda.runtime.clock import Clock


class HeartbeatPort(Protocol):
    """The member that the task works for. Times are monotonic seconds."""

    def heartbeat_due_at(self, now: float) -> float | None:
        """Return when the next heartbeat is due; None while the member is not in the group."""
        ...

    @property
    def poll_deadline(self) -> float:
        """When the member leaves the group unless poll is called before."""
        ...

    async def send_heartbeat(self) -> None:
        """Send a heartbeat and process the answer; raises nothing but bugs."""
        ...

    async def poll_expired(self) -> None:
        """Leave the group, because poll was not called; `heartbeat_due_at` is None from then on."""
        ...


class HeartbeatTask:
    """The task of one member."""

    def __init__(self, port: HeartbeatPort, clock: Clock) -> None:
        self._port: Final = port
        self._clock: Final = clock
        self._changed: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._request: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task unless it runs."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="heartbeats")

    def wake(self) -> None:
        """Recompute the next heartbeat, because the member has changed."""
        self._changed.set()

    async def close(self) -> None:
        """End the task and the request under way."""
        tasks = [each for each in (self._task, self._request) if each is not None]
        self._task = self._request = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        port = self._port
        while True:
            self._changed.clear()
            now = self._clock.monotonic()
            due_at = port.heartbeat_due_at(now)
            if due_at is None:
                await self._changed.wait()
                continue
            if now >= port.poll_deadline:
                await port.poll_expired()
                continue
            wake_at = port.poll_deadline
            if self._request is None:
                if now >= due_at:
                    self._request = asyncio.create_task(port.send_heartbeat(), name="heartbeat")
                    self._request.add_done_callback(self._request_done)
                else:
                    wake_at = min(wake_at, due_at)
            try:
                async with asyncio.timeout(max(wake_at - now, 0)):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _request_done(self, task: asyncio.Task[None]) -> None:
        self._request = None
        self._changed.set()
        if not task.cancelled():
            task.result()
