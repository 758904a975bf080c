"""The registrations of all live brokers, as one broker knows them from its watches.

Other than the metadata of the controller, registrations show which brokers are Apache Kafka's, and which
brokers may become controller. While a broker of Apache Kafka is registered, Kalda finalizes no features,
serves no groups of the consumer protocol, and leaves elections to Apache Kafka unless a setting says
otherwise.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.schema import BrokerInfo
from kalda.common.backoff import jittered
from kalda.common.log_text import numbers_text
from kalda.zookeeper.errors import ZooKeeperError
from kalda.zookeeper.port import SessionState, WatchEvent

logger: Final = logging.getLogger(__name__)

RETRY_SECONDS: Final = 1.0


class RegisteredBrokers:
    """The live brokers; none before `start` has read them."""

    def __init__(self, cluster: ClusterStore) -> None:
        self._cluster: Final = cluster
        self._is_due: Final = asyncio.Event()
        self._listeners: Final[list[Callable[[], None]]] = []
        self._brokers: Mapping[int, BrokerInfo] = {}
        self.has_kafka = False
        """Whether a broker of Apache Kafka is registered; heartbeats and ends of transactions ask for it."""

    def may_be_controller(self, broker_id: int, setting: bool | None) -> bool:
        """Return whether a broker with this ``kalda.controller.eligible`` (None: not set) may be elected.

        Where no other broker is eligible, every broker is: a cluster always has a controller.
        """
        if self._is_eligible(setting):
            return True
        others = (each for each in self._brokers.values() if each.id != broker_id)
        return not any(not each.is_kalda or self._is_eligible(each.controller_eligible) for each in others)

    def _is_eligible(self, setting: bool | None) -> bool:
        return not self.has_kafka if setting is None else setting

    def is_kafka(self, broker_id: int) -> bool:
        """Return whether a broker of Apache Kafka has registered with this id."""
        found = self._brokers.get(broker_id)
        return found is not None and not found.is_kalda

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call the listener after each change of the registrations."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Read the registrations.

        Raises:
            ZooKeeperError: ZooKeeper did not answer.
        """
        self._cluster.zookeeper.add_state_listener(self._on_state)
        await self._read()

    async def run(self) -> None:
        """Read the registrations after each change, until cancelled."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            try:
                await self._read()
            except ZooKeeperError as error:
                logger.warning("cannot read the registered brokers, will retry: %s", error)
                self._is_due.set()
                await asyncio.sleep(jittered(RETRY_SECONDS, self._cluster.random))

    async def _read(self) -> None:
        before, self._brokers = self._brokers, await self._cluster.brokers(self._on_event, watch_each=True)
        if before == self._brokers:
            return
        kafka, known = (
            sorted(each.id for each in brokers.values() if not each.is_kalda)
            for brokers in (self._brokers, before)
        )
        if kafka != known:
            logger.info("registered brokers of Apache Kafka: %s", numbers_text(kafka) if kafka else "none")
        self.has_kafka = bool(kafka)
        for listener in self._listeners:
            listener()

    def _on_event(self, event: WatchEvent) -> None:
        self._is_due.set()

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            # The watches of an expired session are gone.
            self._is_due.set()
