"""Checks after a lost ZooKeeper session which partitions a broker still leads."""

import asyncio
import logging
from typing import Final

from kalda.broker.replicas.isr_changes import IsrChanges
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.common.backoff import jittered
from kalda.runtime.random import Random
from kalda.zookeeper.errors import ZooKeeperError
from kalda.zookeeper.port import SessionState

logger: Final = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0
"""The pause before leadership is checked again after an error of ZooKeeper."""


class LeadershipCheck:
    """Checks in ZooKeeper, after a lost session, which partitions this broker still leads.

    The session of a paused process expires and other leaders are elected. A process that resumes would serve
    as a leader until a request of the controller arrives, so it reads the partition states itself.
    """

    def __init__(self, replicas: ReplicaManager, isr_changes: IsrChanges, random: Random) -> None:
        self._replicas: Final = replicas
        self._isr_changes: Final = isr_changes
        self._random: Final = random
        self._is_due: Final = asyncio.Event()
        self._was_lost = False

    def on_session(self, state: SessionState) -> None:
        """Schedule a check when a session follows an expired one."""
        if state is SessionState.EXPIRED:
            self._was_lost = True
        elif state is SessionState.CONNECTED and self._was_lost:
            self._was_lost = False
            self._is_due.set()

    async def run(self) -> None:
        """Check whenever a check is due, until cancelled."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            if not await self.check():
                self._is_due.set()
                await asyncio.sleep(jittered(RETRY_SECONDS, self._random))

    async def check(self) -> bool:
        """Step down where another broker was elected; return False if a state could not be read."""
        led = [partition for partition in self._replicas.partitions.values() if partition.is_leader]
        try:
            await self._isr_changes.check_leadership(self._replicas, led)
        except ZooKeeperError as error:
            logger.warning("leadership of %d partitions not checked: %s", len(led), error)
            return False
        return True
