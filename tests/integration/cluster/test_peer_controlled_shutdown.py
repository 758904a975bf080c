"""A broker that stops in order hands its leaderships over first."""

from pathlib import Path

from kalda.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from tests.integration.cluster.peer_cluster import PeerCluster, peer_cluster


def leaders(cluster: PeerCluster) -> set[int]:
    return {
        partition.leader
        for broker in cluster.brokers.values()
        for topic in broker.services.metadata_cache.all_topics()
        for partition in topic.partitions.values()
    }


async def test_a_follower_broker_hands_over_before_it_stops(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path) as cluster:
        await cluster.create_topic("t", partitions=6, replicas=3)
        assert {0, 1, 2} == leaders(cluster)
        stopping = cluster.others[0]
        broker_id = stopping.services.broker_id

        await cluster.stop(broker_id)

        # It stops only when told that it leads nothing.
        assert not any(each.is_leader for each in stopping.services.replica_manager.partitions.values())
        await cluster.wait_until(lambda: leaders(cluster) == {0, 1, 2} - {broker_id})


async def test_the_controller_hands_over_to_itself_last(tmp_path: Path) -> None:
    """It asks itself by a call, and resigns only afterwards."""
    async with peer_cluster(tmp_path) as cluster:
        await cluster.create_topic("t", partitions=6, replicas=3)
        broker_id = cluster.controller.services.broker_id

        await cluster.stop(broker_id)

        await cluster.wait_until(lambda: leaders(cluster) == {0, 1, 2} - {broker_id})
        await cluster.wait_until(
            lambda: any(b.services.controller.is_active for b in cluster.brokers.values())
        )


async def test_partitions_without_another_replica_do_not_keep_a_broker(tmp_path: Path) -> None:
    """The last attempt fails as the first did; then the broker stops all the same."""
    async with peer_cluster(tmp_path, count=2) as cluster:
        await cluster.create_topic("t", partitions=2, replicas=1)
        (other,) = cluster.others

        await cluster.stop(other.services.broker_id)


async def test_a_broker_of_kafka_0_8_may_ask_without_a_client_id(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path, count=2) as cluster:
        (other,) = cluster.others
        request = ControlledShutdownRequest(broker_id=other.services.broker_id)

        answer = await cluster.ask(cluster.controller, request, ControlledShutdownResponse, version=0)

        assert ControlledShutdownResponse() == answer
