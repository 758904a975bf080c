"""A cluster whose brokers have listeners of NATS beside those of Kafka."""

import time
from collections.abc import Mapping

import nats
from nats.aio.client import Client

from kalda.settings import BrokerConfig
from kalda.testing import Cluster


class NatsCluster(Cluster):
    """Brokers with a listener `NATS` each; those whose ids are in `without` have none."""

    def __init__(
        self,
        brokers: int,
        *,
        settings: Mapping[str, str] | None = None,
        without: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(brokers, settings=settings)
        self._without = without

    def _config(self, broker_id: int, port: int) -> BrokerConfig:
        listeners = f"PLAINTEXT://127.0.0.1:{port}"
        if broker_id not in self._without:
            listeners += ",NATS://127.0.0.1:0"
        self._settings["listeners"] = listeners
        return super()._config(broker_id, port)

    def wait_for_topics(self, *names: str) -> None:
        """Wait until every broker knows a leader of each partition of topics that were created."""
        for broker_id in self.running:
            cache = self.server(broker_id).services.metadata_cache
            for _ in range(6_000):
                topics = [cache.topic(name) for name in names]
                if all(each and all(p.leader >= 0 for p in each.partitions.values()) for each in topics):
                    break
                time.sleep(0.01)
            else:
                raise AssertionError(f"broker {broker_id} does not know all of {names}")

    def nats_url(self, broker_id: int) -> str:
        """Return where NATS's clients reach a broker."""
        parts = self.server(broker_id).parts
        assert parts.nats is not None, f"broker {broker_id} has no listener of NATS"
        return f"nats://127.0.0.1:{parts.nats.ports['NATS']}"

    async def connect(self, broker_id: int, **options: object) -> Client:
        """Connect a client to a broker."""
        url = self.nats_url(broker_id)
        return await nats.connect(url, allow_reconnect=False, connect_timeout=30, **options)


async def subscribed_all(client: Client) -> None:
    """Wait until the broker has the client's subscriptions: the first PING of nats-py may overtake a SUB."""
    await client.flush(60)
    await client.flush(60)
