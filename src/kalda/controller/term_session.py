"""The session with coordination, as a controller needs it: office lasts as long as the session does.

A short interruption must not cost the cluster an election, so in office every operation is tried again until
coordination answers or the session is known to be over.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kalda.zk.client.port import SessionState, ZooKeeperClient
from kalda.zk.client.zookeeper_errors import ConnectionLossError, SessionExpiredError

RETRY_SECONDS: Final = 1.0
"""Pause after coordination failed, before the same is tried again."""

Result = TypeVar("Result")

logger: Final = logging.getLogger(__name__)


class TermSession:
    """The session of the term; out of office, that of the last election."""

    def __init__(self, zookeeper: ZooKeeperClient) -> None:
        self._zookeeper: Final = zookeeper
        self._changed: Final = asyncio.Event()
        self._id = 0

    @property
    def is_same(self) -> bool:
        """Whether the session is still the one that the term began, or the election was tried, with."""
        return self._zookeeper.session_id == self._id

    def begin(self) -> None:
        """From now on the session of today counts."""
        self._id = self._zookeeper.session_id

    def on_state(self) -> None:
        """The session's state is another."""
        self._changed.set()

    async def reliably(self, operation: Callable[[], Awaitable[Result]]) -> Result:
        """Do something in office; if coordination cannot be reached, again when it can.

        Raises:
            SessionExpiredError: the term is over meanwhile.
        """
        while True:
            try:
                return await operation()
            except ConnectionLossError as error:
                logger.warning("coordination cannot be reached, the controller waits: %s", error)
            await self._wait_connected()

    async def pause(self) -> None:
        """Wait for the session's state to change, but not for long."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), RETRY_SECONDS)

    async def _wait_connected(self) -> None:
        if self._zookeeper.state is SessionState.CONNECTED:
            # The listener hears of the loss later than the operation did, or it was a short one.
            await self.pause()
        while self._zookeeper.state is SessionState.SUSPENDED:
            await self._changed.wait()
            self._changed.clear()
        if self._zookeeper.state is not SessionState.CONNECTED or not self.is_same:
            raise SessionExpiredError("the session of the controller's term is over")
