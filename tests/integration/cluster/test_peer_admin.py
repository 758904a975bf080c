"""What administrators ask a cluster of, and which broker answers."""

import asyncio
from pathlib import Path

from confluent_kafka import ElectionType as ConfluentElection
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPartition

from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from kalda.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from kalda.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from tests.integration.cluster.peer_cluster import PeerCluster, peer_cluster


def moved(topic: str, partition: int, replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
    states = [ReassignablePartition(partition_index=partition, replicas=replicas)]
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=states)])


async def test_a_partition_moves_to_other_brokers(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path) as cluster:
        await cluster.create_topic("t", partitions=1, replicas=1)
        controller = cluster.controller
        place = controller.services.metadata_cache.partition
        (old,) = place(TopicPartition("t", 0)).replicas  # type: ignore[union-attr]  # it was just created
        new = (old + 1) % 3

        answer = await cluster.ask(controller, moved("t", 0, [new]), AlterPartitionReassignmentsResponse)
        assert (0, None) == (answer.error_code, answer.error_message)
        (partition,) = answer.responses[0].partitions
        assert (0, 0, None) == (partition.partition_index, partition.error_code, partition.error_message)

        def is_moved() -> bool:
            known = place(TopicPartition("t", 0))
            return known is not None and known.replicas == (new,) and known.leader == new

        await cluster.wait_until(is_moved)
        hosted = cluster.brokers[old].services.replica_manager.partitions
        await cluster.wait_until(lambda: TopicPartition("t", 0) not in hosted)
        listing = await cluster.ask(
            controller, ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse
        )
        assert ListPartitionReassignmentsResponse(error_message=None) == listing


async def test_a_move_that_cannot_be_is_an_error_of_its_partition(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path, count=2) as cluster:
        await cluster.create_topic("t", partitions=1, replicas=1)
        for request, code in (
            (moved("t", 0, [7]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (moved("t", 0, []), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (moved("t", 0, None), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
            (moved("t", 5, [0]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ):
            answer = await cluster.ask(cluster.controller, request, AlterPartitionReassignmentsResponse)
            assert 0 == answer.error_code
            assert code == answer.responses[0].partitions[0].error_code, request


class Refusing:
    """A dialer of a broker that reaches nobody, so that it never gets in sync."""

    async def dial(self, host: str, port: int, options: DialOptions) -> PeerConnection:
        raise ConnectionError(f"cut off from {host}:{port}")


async def test_kafka_python_lists_a_move_and_calls_it_off(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path, count=2) as cluster:
        await cluster.create_topic("t", partitions=1, replicas=1)
        place = cluster.controller.services.metadata_cache.partition(TopicPartition("t", 0))
        assert place is not None
        cluster.dialer = Refusing()
        await cluster.start(2)
        await cluster.wait_until(lambda: 2 in cluster.controller.services.metadata_cache.brokers)

        def administer() -> tuple[list[object], list[object], list[object]]:
            client = KafkaAdminClient(bootstrap_servers=cluster.others[0].bootstrap)
            partition = KafkaPartition("t", 0)
            try:
                begun = client.alter_partition_reassignments({partition: [2]})
                listed = client.list_partition_reassignments()
                cancelled = client.alter_partition_reassignments({partition: None})
                left = client.list_partition_reassignments()
            finally:
                client.close()
            return list(begun.values()), [listed[partition], cancelled[partition]], list(left)

        begun, (listed, cancelled), left = await asyncio.to_thread(administer)
        assert {
            "replicas": [2, *place.replicas],
            "adding_replicas": [2],
            "removing_replicas": list(place.replicas),
        } == listed
        assert [None] == begun == [cancelled]
        assert [] == left
        other = cluster.brokers[2].services.replica_manager.partitions
        await cluster.wait_until(lambda: TopicPartition("t", 0) not in other)


async def test_only_the_controller_moves_and_elects(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path, count=2) as cluster:
        (other,) = cluster.others
        altered = await cluster.ask(other, moved("t", 0, [0]), AlterPartitionReassignmentsResponse)
        topics = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])]
        listing = ListPartitionReassignmentsRequest(topics=topics)
        listed = await cluster.ask(other, listing, ListPartitionReassignmentsResponse)
        partitions = [TopicPartitions(topic="t", partitions=[0])]
        elected = await cluster.ask(
            other, ElectLeadersRequest(topic_partitions=partitions), ElectLeadersResponse
        )
        older = await cluster.ask(
            other, ElectLeadersRequest(topic_partitions=partitions), ElectLeadersResponse, version=0
        )
        assert {ErrorCode.NOT_CONTROLLER} == {altered.error_code, listed.error_code, elected.error_code}
        assert ErrorCode.NOT_CONTROLLER == older.replica_election_results[0].partition_result[0].error_code


async def led_by_others(cluster: PeerCluster) -> int:
    """Restart a broker that is not the controller; return its id once it is in sync, and leads nothing."""
    broker_id = cluster.others[0].services.broker_id
    await cluster.stop(broker_id)
    await cluster.start(broker_id)

    def is_back() -> bool:
        # The leaders know it seconds before the metadata does.
        hosted = [
            each
            for one in cluster.brokers.values()
            for each in one.services.replica_manager.partitions.values()
        ]
        return all(broker_id in each.isr for each in hosted if each.is_leader)

    await cluster.wait_until(is_back)
    return broker_id


async def test_preferred_leaders_are_elected_by_hand(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path, auto_leader_rebalance_enable="false") as cluster:
        await cluster.create_topic("t", partitions=3, replicas=3)
        broker_id = await led_by_others(cluster)
        topic = cluster.controller.services.metadata_cache.topic("t")
        assert topic is not None
        (wanted,) = [number for number, each in topic.partitions.items() if each.replicas[0] == broker_id]

        request = ElectLeadersRequest(topic_partitions=None)
        answer = await cluster.ask(cluster.controller, request, ElectLeadersResponse)

        assert 0 == answer.error_code
        (result,) = answer.replica_election_results
        assert [(wanted, 0)] == [(each.partition_id, each.error_code) for each in result.partition_result]
        again = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[wanted, 9])])
        answer = await cluster.ask(cluster.controller, again, ElectLeadersResponse)
        codes = {
            each.partition_id: each.error_code for each in answer.replica_election_results[0].partition_result
        }
        assert {wanted: ErrorCode.ELECTION_NOT_NEEDED, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} == codes


async def test_confluents_client_elects_leaders(tmp_path: Path) -> None:
    """It is told only of one broker and finds the controller by itself."""
    async with peer_cluster(tmp_path, auto_leader_rebalance_enable="false") as cluster:
        await cluster.create_topic("t", partitions=3, replicas=3)
        await led_by_others(cluster)

        def elect() -> list[int]:
            client = AdminClient({"bootstrap.servers": cluster.others[0].bootstrap})
            partitions = [ConfluentPartition("t", number) for number in range(3)]
            results = client.elect_leaders(ConfluentElection.PREFERRED, partitions).result(timeout=60)
            return sorted(0 if error is None else error.code() for error in results.values())

        codes = await asyncio.to_thread(elect)
        assert [0, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED] == codes
