"""Handles log directories that fail or are full, so that other brokers lead the partitions in them.

In both cases a notification in ZooKeeper makes the controller send this broker all its roles again
(LeaderAndIsr). The replicas in a failed directory go offline, and requests for them get KAFKA_STORAGE_ERROR.
The broker ends when no directory is left. Its events are on the failed disks, so the notification then has
the reasons, and the controller keeps them among its own events.

In a full directory the replicas keep their roles and stop fetching, and the controller gets
INELIGIBLE_REPLICA for them: it elects other in-sync replicas where there are any, and removes these from the
ISR. `LogDirFailures` probes a full directory once a second; when it has space again, its replicas fetch, and
the controller is notified again.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from kalda.broker.replicas.role_changes import RoleChanges
from kalda.cluster.isr_store import IsrStore
from kalda.cluster.schema import LogDirEvent
from kalda.events.event import EventKind
from kalda.runtime.background import run_in_background
from kalda.runtime.error_text import error_text
from kalda.storage.errors import LogDirectoryError
from kalda.storage.log_manager import LogManager
from kalda.storage.space_probe import check_room
from kalda.storage.volume import volume_bytes
from kalda.zookeeper.errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
"""The pause between two attempts to notify the controller, and between two probes of a directory."""

END_NOTICE_SECONDS_MAX: Final = 2.0
"""How long a broker that ends without a log directory tries to notify the controller."""


class LogDirFailures:
    """Handles the failed and the full log directories of one broker."""

    def __init__(
        self,
        broker_id: int,
        log_manager: LogManager,
        roles: RoleChanges,
        store: IsrStore,
        volume: Callable[[str], tuple[int, int]] = volume_bytes,
        *,
        broker_epoch: Callable[[], int] = lambda: -1,
    ) -> None:
        """`volume` returns the total and the usable bytes of a directory's volume, `broker_epoch` the epoch
        of the present registration."""
        self._broker_id: Final = broker_id
        self._log_manager: Final = log_manager
        self._roles: Final = roles
        self._store: Final = store
        self._broker_epoch: Final = broker_epoch
        # Each directory fails once, so the queue is bounded.
        self._queue: list[str] = []
        self._newly_full: Final[set[str]] = set()
        self._is_due: Final = asyncio.Event()
        self._is_unannounced = False
        """Whether the controller is still to be notified, which a ZooKeeper outage may delay."""
        self._volume: Final = volume
        self._failures: Final = log_manager.resources.failures
        self._failures.listen(on_failure=self._on_failure, on_full=self._on_full)

    async def run(self) -> None:
        """Handle failed and full directories until cancelled.

        Raises:
            LogDirectoryError: no directory is left.
        """
        while True:
            is_probe_due = await self._wait()
            try:
                self.take_failed_offline()
            except LogDirectoryError:
                await self._notify_end()
                raise
            self.pause_full()
            if is_probe_due:
                for directory in tuple(self._failures.full):
                    await self.probe(directory)
            if self._is_unannounced:
                self._is_unannounced = False
                self._is_unannounced = not await self.notify_controller() or self._is_unannounced

    async def _wait(self) -> bool:
        """Wait for an event or the next retry; return whether it was the retry."""
        is_polling = self._is_unannounced or self._failures.full
        try:
            async with asyncio.timeout(RETRY_SECONDS if is_polling else None):
                await self._is_due.wait()
        except TimeoutError:
            return True
        self._is_due.clear()
        return False

    def take_failed_offline(self) -> None:
        """Take the replicas offline in every directory that failed since the last call.

        Raises:
            LogDirectoryError: no directory is left.
        """
        failed, self._queue = self._queue, []
        self._is_unannounced |= bool(failed)
        for directory in failed:
            gone = self._roles.take_offline(directory)
            reason = self._log_manager.offline_directories.get(directory)
            logger.error("log directory %s failed (%s): %d replicas go offline", directory, reason, len(gone))
            self._emit(EventKind.DIRECTORY_FAILED, directory, reason)
        if not self._log_manager.live_directories:
            directories = ", ".join(
                f"{name} ({reason})" for name, reason in self._log_manager.offline_directories.items()
            )
            raise LogDirectoryError(
                f"broker {self._broker_id} ends: every log directory has failed: {directories}; "
                "repair one and start the broker again"
            )

    def pause_full(self) -> None:
        """Stop fetching for the replicas in every directory that became full since the last call."""
        while self._newly_full:
            directory = self._newly_full.pop()
            reason = self._failures.full.get(directory)
            if reason is None:
                # The directory failed meanwhile.
                continue
            self._is_unannounced = True
            count = self._roles.pause_following(directory)
            self._emit(EventKind.DIRECTORY_FULL, directory, reason)
            logger.error(
                "Log directory %s is full (%s; %d bytes free): its %d replicas cannot be written, and other "
                "in-sync replicas lead where there are any. Delete topics, lower their retention or grow the "
                "volume",
                directory,
                reason,
                self._volume(directory)[1],
                count,
            )

    async def probe(self, directory: str) -> None:
        """Put a full directory back into use if it has space."""
        resources = self._log_manager.resources
        work = partial(check_room, resources.file_system, directory, self._volume)
        try:
            await run_in_background(resources.executor, work)
        except OSError as error:
            # A device may break while it is full.
            self._failures.note(directory, error)
            return
        if self._failures.full.pop(directory, None) is None:
            return
        self._newly_full.discard(directory)
        self._is_unannounced = True
        count = self._roles.resume_following(directory)
        self._emit(EventKind.DIRECTORY_RECOVERED, directory, None)
        logger.info(
            "Log directory %s has room again (%d bytes free): its %d replicas are written again",
            directory,
            self._volume(directory)[1],
            count,
        )

    def announce_recovery(self) -> None:
        """Make the controller send all roles again: replicas that it counts as offline can serve."""
        self._is_unannounced = True
        self._is_due.set()

    async def notify_controller(self) -> bool:
        """Write a notification for the controller; return whether this succeeded."""
        try:
            await self._store.announce_log_dir_failure(LogDirEvent(self._broker_id))
        except ZooKeeperError as error:
            logger.warning("Cannot notify the controller of the log directories, retrying: %s", error)
            return False
        return True

    async def _notify_end(self) -> None:
        """Send the controller the reasons for the end of this broker, in bounded time."""
        failures = {name: str(why) for name, why in self._log_manager.offline_directories.items()}
        event = LogDirEvent(self._broker_id, failures, self._broker_epoch())
        try:
            async with asyncio.timeout(END_NOTICE_SECONDS_MAX):
                await self._store.announce_log_dir_failure(event)
        except (ZooKeeperError, TimeoutError) as error:
            logger.warning("Cannot notify the controller why this broker ends: %s", error_text(error))

    def _emit(self, kind: str, directory: str, reason: str | None) -> None:
        self._log_manager.resources.events.emit(
            kind, {"broker": self._broker_id}, {"directory": directory, "reason": reason}
        )

    def _on_failure(self, directory: str) -> None:
        # Called inside an append or a flush, which must not lose its log: the loop's next turn acts.
        self._queue.append(directory)
        self._is_due.set()

    def _on_full(self, directory: str) -> None:
        # As above.
        self._newly_full.add(directory)
        self._is_due.set()
