"""What the controller tells other brokers over the wire, and what clients see of it."""

from pathlib import Path

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from kalda.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kalda.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kalda.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kalda.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tests.integration.cluster.peer_cluster import peer_cluster


async def test_every_broker_learns_of_brokers_and_topics(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path) as cluster:
        await cluster.create_topic("t", partitions=6, replicas=3)
        answers = []
        for broker in cluster.brokers.values():
            request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
            answers.append(await cluster.ask(broker, request, MetadataResponse))
            hosted = broker.services.replica_manager.partitions
            assert {TopicPartition("t", number) for number in range(6)} == set(hosted)
            assert 2 == sum(partition.is_leader for partition in hosted.values())

        for answer in answers:
            assert {0: cluster.brokers[0].bootstrap, 1: cluster.brokers[1].bootstrap} == {
                each.node_id: f"{each.host}:{each.port}" for each in answer.brokers if each.node_id < 2
            }
            assert cluster.controller.services.broker_id == answer.controller_id
            (topic,) = answer.topics
            assert [0] * 6 == [partition.error_code for partition in topic.partitions]
            assert {0, 1, 2} == {partition.leader_id for partition in topic.partitions}


async def test_requests_of_a_replaced_controller_or_for_a_former_life_change_nothing(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path, count=2) as cluster:
        await cluster.create_topic("t", partitions=2, replicas=2)
        (other,) = cluster.others
        epoch = cluster.controller.services.controller.epoch
        known = dict(other.services.replica_manager.partitions)
        for stale, broker_epoch, code in (
            (epoch - 1, -1, ErrorCode.STALE_CONTROLLER_EPOCH),
            (epoch, 0, ErrorCode.STALE_BROKER_EPOCH),
        ):
            roles = LeaderAndIsrRequest(controller_epoch=stale, broker_epoch=broker_epoch)
            assert code == (await cluster.ask(other, roles, LeaderAndIsrResponse)).error_code
            stop = StopReplicaRequest(controller_epoch=stale, broker_epoch=broker_epoch)
            assert code == (await cluster.ask(other, stop, StopReplicaResponse)).error_code
            metadata = UpdateMetadataRequest(controller_epoch=stale, broker_epoch=broker_epoch)
            assert code == (await cluster.ask(other, metadata, UpdateMetadataResponse)).error_code
        assert known == dict(other.services.replica_manager.partitions)
        assert 2 == len(other.services.metadata_cache.brokers)


async def test_apis_of_the_controller_are_listed_as_kafka_lists_them(tmp_path: Path) -> None:
    """Kafka in ZooKeeper mode tells every client; tools print the table."""
    async with peer_cluster(tmp_path, count=1) as cluster:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = await cluster.ask(cluster.controller, request, ApiVersionsResponse)
        served = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert [(0, 7), (0, 4), (0, 8), (0, 3), (0, 3), (0, 0)] == [
            served[key]
            for key in (
                ApiKey.LEADER_AND_ISR,
                ApiKey.STOP_REPLICA,
                ApiKey.UPDATE_METADATA,
                ApiKey.CONTROLLED_SHUTDOWN,
                ApiKey.ALTER_PARTITION,
                ApiKey.ALLOCATE_PRODUCER_IDS,
            )
        ]


async def test_a_broker_of_apache_kafka_gets_producer_ids_of_its_own(tmp_path: Path) -> None:
    """Blocks of two brokers, and those that Kalda's take themselves, have no id in common (KIP-730)."""
    async with peer_cluster(tmp_path, count=2) as cluster:
        blocks = []
        for broker_id in (0, 1, 1):
            request = AllocateProducerIdsRequest(broker_id=broker_id)
            answer = await cluster.ask(cluster.controller, request, AllocateProducerIdsResponse)
            assert 0 == answer.error_code
            blocks.append(range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len))
        ids = {each for block in blocks for each in block}
        assert sum(map(len, blocks)) == len(ids)
        assert await cluster.controller.services.producer_ids.take() not in ids
        (other,) = cluster.others
        refused = await cluster.ask(other, AllocateProducerIdsRequest(), AllocateProducerIdsResponse)
        assert ErrorCode.NOT_CONTROLLER == refused.error_code
