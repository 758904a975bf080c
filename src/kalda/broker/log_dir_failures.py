"""A log directory failed: its replicas are given up, the controller is told, the broker goes on.

The controller then asks for the state of every replica here (a LeaderAndIsr), hears KAFKA_STORAGE_ERROR of
those that are gone, and elects other leaders. Only when no directory is left the broker ends.

A full disk is no failed one, but it keeps replicas from their roles, of which the controller hears the same.
When it has room again the controller is asked to tell the roles once more.
"""

import asyncio
import logging
from typing import Final, Protocol

from kalda.common.types import TopicPartition
from kalda.coordination.errors import CoordinationError
from kalda.coordination.isr_store import IsrStore
from kalda.storage.errors import LogDirectoryError
from kalda.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0


class TakesOffline(Protocol):
    """Whoever serves the replicas."""

    def take_offline(self, directory: str) -> list[TopicPartition]:
        """Give up the replicas in a directory; return them."""
        ...


class LogDirFailures:
    """Acts on the failures of one broker's log directories."""

    def __init__(
        self, broker_id: int, log_manager: LogManager, replicas: TakesOffline, store: IsrStore
    ) -> None:
        self._broker_id: Final = broker_id
        self._log_manager: Final = log_manager
        self._replicas: Final = replicas
        self._store: Final = store
        # Each directory fails once, so the queue is bounded.
        self._queue: list[str] = []
        self._is_due: Final = asyncio.Event()
        log_manager.environment.failures.on_failure = self._on_failure

    async def run(self) -> None:
        """Act on failures as they come, until cancelled.

        Raises:
            LogDirectoryError: no directory is left.
        """
        while True:
            await self._is_due.wait()
            self.give_up_failed()
            while not await self.tell_controller():
                await asyncio.sleep(RETRY_SECONDS)
                # The next disk does not wait for coordination.
                self.give_up_failed()

    def give_up_failed(self) -> None:
        """Give up the replicas of every directory that failed since.

        Raises:
            LogDirectoryError: no directory is left.
        """
        self._is_due.clear()
        failed, self._queue = self._queue, []
        for directory in failed:
            gone = self._replicas.take_offline(directory)
            reason = self._log_manager.offline_directories.get(directory)
            logger.error("log directory %s failed (%s): %d replicas go offline", directory, reason, len(gone))
        if not self._log_manager.live_directories:
            directories = ", ".join(
                f"{name} ({reason})" for name, reason in self._log_manager.offline_directories.items()
            )
            raise LogDirectoryError(
                f"broker {self._broker_id} ends: every log directory has failed: {directories}; "
                "mend one and start again"
            )

    def announce_recovery(self) -> None:
        """Have the controller tell this broker its roles again: replicas that it holds for lost can serve."""
        self._is_due.set()

    async def tell_controller(self) -> bool:
        """Leave a note for the controller; tell whether it could be left."""
        try:
            await self._store.announce_log_dir_failure(self._broker_id)
        except CoordinationError as error:
            logger.warning("the failure of a log directory is not announced yet: %s", error)
            return False
        return True

    def _on_failure(self, directory: str) -> None:
        # Called from inside an append or a flush: nothing may be taken away under its feet.
        self._queue.append(directory)
        self._is_due.set()
