"""Knows the brokers of a cluster and the leaders of topics, by asking the brokers of a list.

`Discovery` is the port that a producer uses; `zookeeper_discovery` implements it for `zk.connect`.
"""

from collections.abc import Collection
from typing import Final, Protocol

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.errors import BrokerConnectionError
from kalda.clients.metadata import ClusterMetadata, Metadata
from kalda.clients.network_client import NetworkClient
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.api_keys import ApiKey
from kalda.protocol.messages.metadata import MetadataResponse
from kalda.runtime.runtime import Runtime


class Discovery(Protocol):
    """Finds a cluster's brokers and leaders. `snapshot` may be read in any thread, the rest on the loop."""

    @property
    def snapshot(self) -> ClusterMetadata:
        """The brokers and the topics that were asked for, as last read."""
        ...

    @property
    def is_stale(self) -> bool:
        """Whether something is known to have changed since the last `refresh`."""
        ...

    def mark_stale(self) -> None:
        """Note that a broker could not be reached: leaders may have changed."""
        ...

    async def refresh(self, topics: Collection[str]) -> None:
        """Read brokers and leaders again, of these topics and those before; a new topic is created.

        Raises:
            ClientError: neither brokers nor ZooKeeper answered.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class BrokerListDiscovery:
    """Asks a broker of a list, or one that an answer named."""

    def __init__(self, connections: CommonClientConfig, runtime: Runtime) -> None:
        self._metadata: Final = Metadata(allow_auto_topic_creation=True)
        self._clock: Final = runtime.clock
        self._network: Final = NetworkClient(connections, self._metadata, runtime)
        self._is_stale = True

    @property
    def snapshot(self) -> ClusterMetadata:
        """The last answer."""
        return self._metadata.snapshot

    @property
    def is_stale(self) -> bool:
        """Whether a connection was lost since the last answer."""
        return self._is_stale

    def mark_stale(self) -> None:
        """Ask again before the next message."""
        self._is_stale = True

    async def refresh(self, topics: Collection[str]) -> None:
        """Ask a broker."""
        now = self._clock.monotonic()
        for topic in topics:
            self._metadata.add_topic(topic, now)
        request = self._metadata.next_request(now)
        response = await self._network.send_to_any(
            VersionedRequest(ApiKey.METADATA, lambda _: request), MetadataResponse
        )
        if not response.brokers:
            raise BrokerConnectionError("a broker answered with metadata that lists no broker")
        # Whatever the newest answer says: a producer of this kind fences nothing by epochs.
        self._metadata.received(response, has_reliable_epochs=False)
        self._is_stale = False

    async def close(self) -> None:
        """Close the connections."""
        await self._network.close()
