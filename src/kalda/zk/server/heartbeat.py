"""The event loop's timer that lets a server see time pass: sessions expire, containers are reaped."""

import asyncio
from collections.abc import Callable
from typing import Final

from kalda.zk.server.server import ZooKeeperServer


class Heartbeat:
    """Calls a server once per half bucket of its sessions' time-outs."""

    def __init__(self, server: ZooKeeperServer, also: Callable[[float], None] | None = None) -> None:
        self._server: Final = server
        self._also: Final = also
        self._seconds: Final = server.sessions.bucket_ms / 2000
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin; does nothing if it beats."""
        if self._timer is None:
            self._loop = loop
            self._beat()

    def stop(self) -> None:
        """End; does nothing if it does not beat."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        # First, so that a fault in what follows, which the loop reports, does not end the beat.
        self._timer = self._loop.call_later(self._seconds, self._beat)
        if self._also is not None:
            self._also(self._loop.time())
        self._server.pass_time()
