"""Clients take their clock, randomness and network from the runtime that they are given."""

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.metadata import Metadata
from kalda.clients.network_client import CANDIDATES_MAX, NetworkClient
from kalda.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from tests.runtimes import runtime_with, seeded

SERVERS = ",".join(f"b{number}:1" for number in range(20))


def client(seed: int) -> NetworkClient:
    config = CommonClientConfig.from_options({"bootstrap_servers": SERVERS})
    return NetworkClient(config, Metadata(), runtime_with(random=seeded(seed)))


async def test_the_same_seed_asks_brokers_in_the_same_order() -> None:
    """Without a seed the order is random, so that not all clients ask the same broker."""
    one, same, other = client(1), client(1), client(2)
    orders = [[each.candidates() for _ in range(3)] for each in (one, same, other)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0][0]) == sorted(orders[2][0])


async def test_connections_have_the_runtime_of_their_client() -> None:
    made = client(1)
    node = made._new_node(7, "b0", 1)
    assert made.runtime is node._runtime
    assert made.clock is made.runtime.clock


async def test_of_very_many_brokers_some_are_asked() -> None:
    """A faulty response lists 100,000; to sort them held the client's thread for seconds."""
    made = client(1)
    brokers = [MetadataResponseBroker(node_id=number, host=f"b{number}", port=1) for number in range(5_000)]
    made.metadata.received(MetadataResponse(brokers=brokers))
    connected = made._node(4_321)

    found = made.candidates()

    known = [node_id for node_id in found if node_id >= 0]
    assert CANDIDATES_MAX == len(known) == len(set(known))
    assert 4_321 in known
    assert 20 == len(found) - len(known)
    connected.close()
