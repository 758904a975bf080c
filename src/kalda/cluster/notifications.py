"""Follows notifications: sequential znodes by which brokers note for each other that something changed.

A broker that changes something creates a sequential znode that names it. Every broker watches the parent,
reads new notifications and reloads what they name. Every broker also purges old notifications; one that may
have missed some after an expired session reloads everything. The last sequence number seen must only grow, so
that a notification is handled once however often the children are listed.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from kalda.cluster import paths
from kalda.common.backoff import jittered
from kalda.runtime.random import Random
from kalda.zookeeper.errors import (
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    ZooKeeperError,
)
from kalda.zookeeper.port import SessionState, WatchEvent, ZooKeeperClient

_RETENTION_MS: Final = 15 * 60 * 1000
"""Kafka's retention: long enough for a disconnected broker to read what it missed. Age is counted from the
newest notification, which is kept; the ZooKeeper server dates both."""

_NOTIFICATIONS_MAX: Final = 1000
"""Kept at most, however new: each change costs a listing of all, so that a client that changes something all
the time would make every change slower than the last. A broker reads them as they come."""

_NONE_LEFT: Final = 2**31
"""Stands for the lowest sequence number if there is no notification: above all numbers."""

_RETRY_SECONDS: Final = 1.0
"""Pause after an error of ZooKeeper, before the children are listed again."""

logger: Final = logging.getLogger(__name__)


class Notifications:
    """One follower of the notifications below one parent; a subclass says what they mean."""

    def __init__(
        self, zookeeper: ZooKeeperClient, random: Random, parent: str, prefix: str, name: str
    ) -> None:
        """`name` is what the notifications are about, for the log and the task."""
        self._zookeeper: Final = zookeeper
        self._random: Final = random
        self._parent: Final = parent
        self._prefix: Final = prefix
        self._name: Final = name
        self._changed = asyncio.Event()
        self._last_seen = -1
        self._was_away = False
        """Whether the session has expired since the last listing, so that there was no watch."""
        self._task: asyncio.Task[None] | None = None

    # For subclasses.

    async def _handle(self, name: str) -> None:
        """Read the notification of that name and put in force what it names.

        Raises:
            ZooKeeperError: something could not be read; the notification is handled again.
        """
        raise NotImplementedError

    async def _read_all(self) -> None:
        """Reload everything, in place of notifications that may be gone.

        Raises:
            ZooKeeperError: something could not be read.
        """
        raise NotImplementedError

    # Following.

    async def start(self) -> None:
        """Set the watch; existing notifications count as seen."""
        names = await self._zookeeper.children(self._parent, self._on_event)
        self._last_seen = max(self._sequences(names), default=-1)
        self._zookeeper.add_state_listener(self._on_state)
        self._task = asyncio.create_task(self._follow(), name=f"{self._name} changes")

    async def close(self) -> None:
        """Stop following."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def _on_event(self, event: WatchEvent) -> None:
        self._changed.set()

    def _on_state(self, state: SessionState) -> None:
        # A new session has no watches; listing again sets one.
        if state is SessionState.EXPIRED:
            self._was_away = True
        elif state is SessionState.CONNECTED:
            self._changed.set()

    async def _follow(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._read_new()
            except SessionExpiredError:
                continue
            except ZooKeeperError as error:
                logger.warning("reading changes of %s failed, will retry: %s", self._name, error)
                await self._try_again()
            except Exception:
                # A broker that stopped following would look healthy with an outdated configuration.
                logger.exception("following changes of %s failed, will retry", self._name)
                await self._try_again()

    async def _try_again(self) -> None:
        await asyncio.sleep(jittered(_RETRY_SECONDS, self._random))
        self._changed.set()

    async def _read_new(self) -> None:
        names = await self._zookeeper.children(self._parent, self._on_event)
        sequences = self._sequences(names)
        # During a session the watch reports every change. After an expiry some may have been purged; clocks
        # of brokers differ and jump, but the oldest is purged first, so a gap follows the last number seen.
        if self._was_away and min(sequences, default=_NONE_LEFT) > self._last_seen + 1:
            logger.info(
                "the session expired and notifications after number %d may be gone: reading all %s",
                self._last_seen,
                self._name,
            )
            await self._read_all()
            self._last_seen = max(sequences, default=self._last_seen)
        self._was_away = False
        for sequence in sorted(sequences):
            if sequence > self._last_seen:
                await self._handle(sequences[sequence])
                self._last_seen = sequence
        await self._purge(sequences)

    async def _purge(self, sequences: Mapping[int, str]) -> None:
        """Delete notifications that are too many, or older than the newest by more than the retention.

        Both times are the ZooKeeper server's: a broker whose clock is ahead would delete notifications that
        others have yet to read.
        """
        if not sequences:
            return
        *older, last = sorted(sequences)
        newest = await self._zookeeper.exists(f"{self._parent}/{sequences[last]}")
        if newest is None:
            return
        excess = len(sequences) - _NOTIFICATIONS_MAX
        for index, sequence in enumerate(older):
            path = f"{self._parent}/{sequences[sequence]}"
            stat = await self._zookeeper.exists(path)
            if stat is None:
                continue
            if index >= excess and stat.ctime >= newest.ctime - _RETENTION_MS:
                # Later numbers were created later.
                break
            try:
                await self._zookeeper.delete(path)
            except (NoNodeError, NotEmptyError):
                # Another broker was faster; or it is no notification, because notifications have no children.
                continue

    def _sequences(self, names: list[str]) -> dict[int, str]:
        sequences = {}
        for name in names:
            if name.startswith(self._prefix):
                try:
                    sequences[paths.sequence_number(name)] = name
                except ValueError:
                    # No broker created it; it must not prevent others from being read.
                    continue
        return sequences
