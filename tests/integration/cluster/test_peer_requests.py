"""What the controller tells other brokers over the wire, and what clients see of it."""

from pathlib import Path
from typing import Any

import pytest

from kalda.cluster import paths
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, TopicPartition
from kalda.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from kalda.protocol.messages.alter_partition import (
    AlteredPartition,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from kalda.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kalda.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kalda.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kalda.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tests.integration.cluster.peer_cluster import PeerCluster, peer_cluster


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
            request = AllocateProducerIdsRequest(
                broker_id=broker_id, broker_epoch=await broker_epoch(cluster, broker_id)
            )
            answer = await cluster.ask(cluster.controller, request, AllocateProducerIdsResponse)
            assert 0 == answer.error_code
            blocks.append(range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len))
        ids = {each for block in blocks for each in block}
        assert sum(map(len, blocks)) == len(ids)
        assert await cluster.controller.services.producer_ids.take() not in ids
        (other,) = cluster.others
        refused = await cluster.ask(other, AllocateProducerIdsRequest(), AllocateProducerIdsResponse)
        assert ErrorCode.NOT_CONTROLLER == refused.error_code


@pytest.mark.parametrize("version", range(4))
async def test_a_leader_of_apache_kafka_asks_for_its_isr(tmp_path: Path, version: int) -> None:
    """Topics have ids since version 2, replicas their broker epochs since version 3."""
    async with peer_cluster(tmp_path, count=2) as cluster:
        await cluster.create_topic("t", partitions=1, replicas=2)
        controller, (other,) = cluster.controller, cluster.others
        leadership = controller.services.metadata_cache.partition(TopicPartition("t", 0))
        assert leadership is not None
        leader, isr = leadership.leader, list(leadership.isr)
        topic_id = controller.services.metadata_cache.topic_id("t")
        epochs = {each: await broker_epoch(cluster, each) for each in cluster.brokers}

        def request(leader_epoch: int = 0, **of_topic: Any) -> AlterPartitionRequest:
            data = PartitionData(partition_index=0, leader_epoch=leader_epoch, partition_epoch=0)
            if version < 3:
                data.new_isr = isr
            else:
                data.new_isr_with_epochs = [
                    BrokerState(broker_id=each, broker_epoch=epochs[each]) for each in isr
                ]
            topic = TopicData(partitions=[data], **of_topic)
            return AlterPartitionRequest(broker_id=leader, broker_epoch=epochs[leader], topics=[topic])

        name: dict[str, Any] = {"topic_name": "t"} if version < 2 else {"topic_id": topic_id}
        answer = await cluster.ask(controller, request(**name), AlterPartitionResponse, version)
        expected = AlteredPartition(
            partition_index=0, leader_id=leader, leader_epoch=0, isr=isr, partition_epoch=0
        )
        assert [AlteredTopic(partitions=[expected], **name)] == answer.topics
        answer = await cluster.ask(controller, request(1, **name), AlterPartitionResponse, version)
        assert ErrorCode.NOT_CONTROLLER == answer.topics[0].partitions[0].error_code
        ghost: dict[str, Any] = {"topic_name": "ghost"} if version < 2 else {"topic_id": UUID(int=7)}
        answer = await cluster.ask(controller, request(**ghost), AlterPartitionResponse, version)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version < 2 else ErrorCode.UNKNOWN_TOPIC_ID
        assert unknown == answer.topics[0].partitions[0].error_code
        answer = await cluster.ask(other, request(**name), AlterPartitionResponse, version)
        assert ErrorCode.NOT_CONTROLLER == answer.error_code
        assert [] == answer.topics


async def broker_epoch(cluster: PeerCluster, broker_id: int) -> int:
    stat = await cluster.sessions[broker_id].exists(paths.broker(broker_id))
    assert stat is not None
    return stat.czxid
