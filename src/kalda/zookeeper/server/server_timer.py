"""The event-loop timer that lets a ZooKeeper server expire sessions and delete empty containers."""

import asyncio
from collections.abc import Callable
from typing import Final

from kalda.zookeeper.server.zookeeper_server import ZooKeeperServer


class ServerTimer:
    """Calls `ZooKeeperServer.pass_time` once per half bucket of the session time-outs."""

    def __init__(self, server: ZooKeeperServer, on_tick: Callable[[float], None] | None = None) -> None:
        self._server: Final = server
        self._on_tick: Final = on_tick
        """Called first at each tick, with the loop's time in seconds."""
        self._seconds: Final = server.sessions.bucket_ms / 2000
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start ticking; does nothing if the timer runs."""
        if self._timer is None:
            self._loop = loop
            self._tick()

    def stop(self) -> None:
        """Stop ticking; does nothing if the timer does not run."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        # Rearmed first, so that an exception below, which the loop reports, does not stop the timer.
        self._timer = self._loop.call_later(self._seconds, self._tick)
        if self._on_tick is not None:
            self._on_tick(self._loop.time())
        self._server.pass_time()
