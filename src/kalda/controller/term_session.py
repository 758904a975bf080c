"""Wraps the ZooKeeper session of a controller's term in operations that survive a lost connection.

A term lasts as long as the session that created ``/controller``. A short interruption must not cost the
cluster an election, so the active controller retries every operation until ZooKeeper responds or the session
is over.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kalda.common.backoff import jittered
from kalda.runtime.random import Random
from kalda.zookeeper.errors import ConnectionLossError, SessionExpiredError
from kalda.zookeeper.port import SessionState, ZooKeeperClient

RETRY_SECONDS: Final = 1.0
"""Pause before an operation that ZooKeeper failed is retried."""

Result = TypeVar("Result")

logger: Final = logging.getLogger(__name__)


class TermSession:
    """The session of the current term or, without a term, of the last election."""

    def __init__(self, zookeeper: ZooKeeperClient, random: Random) -> None:
        self._zookeeper: Final = zookeeper
        self._random: Final = random
        self._changed: Final = asyncio.Event()
        self._id = 0

    @property
    def is_same(self) -> bool:
        """Whether the client still has the session that `begin` saw."""
        return self._zookeeper.session_id == self._id

    def begin(self) -> None:
        """Bind the term, or the election, to the client's current session."""
        self._id = self._zookeeper.session_id

    def on_state(self) -> None:
        """Wake operations that wait for a change of the session's state."""
        self._changed.set()

    async def reliably(self, operation: Callable[[], Awaitable[Result]]) -> Result:
        """Run an operation of the active controller; retry it when a lost connection is back.

        Raises:
            SessionExpiredError: the session, and so the term, is over.
        """
        while True:
            try:
                return await operation()
            except ConnectionLossError as error:
                logger.warning(
                    "%s cannot be reached, the controller waits: %s", self._zookeeper.engine_name, error
                )
            await self._wait_connected()

    async def pause(self) -> None:
        """Wait until the session's state changes, at most about `RETRY_SECONDS`."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            # Not `wait_for`: before Python 3.12 it swallows a cancellation that comes with the event.
            async with asyncio.timeout(jittered(RETRY_SECONDS, self._random)):
                await self._changed.wait()

    async def _wait_connected(self) -> None:
        if self._zookeeper.state is SessionState.CONNECTED:
            # The state listener runs later than the operation fails, or the connection is back already.
            await self.pause()
        while self._zookeeper.state is SessionState.SUSPENDED:
            await self._changed.wait()
            self._changed.clear()
        if self._zookeeper.state is not SessionState.CONNECTED or not self.is_same:
            raise SessionExpiredError("the session of the controller's term is over")
