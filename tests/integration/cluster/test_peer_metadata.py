"""Every broker of a cluster tells clients the same, and topics come and go everywhere."""

import asyncio
from pathlib import Path

from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kalda.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kalda.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kalda.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kalda.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.integration.cluster.peer_cluster import peer_cluster

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4


async def test_a_topic_is_created_by_asking_any_broker_for_it(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path, default_replication_factor="3", num_partitions="2") as cluster:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True)
        other = cluster.others[0]
        answer = await cluster.ask(other, request, MetadataResponse)
        assert ErrorCode.LEADER_NOT_AVAILABLE == answer.topics[0].error_code

        for broker in cluster.brokers.values():
            cache, hosted = broker.services.metadata_cache, broker.services.replica_manager.partitions
            await cluster.wait_until(lambda cache=cache: cache.partition_count("auto") == 2)  # type: ignore[misc]
            await cluster.wait_until(lambda hosted=hosted: len(hosted) == 2)  # type: ignore[misc]


async def test_a_topics_settings_hold_on_every_replica(tmp_path: Path) -> None:
    """Brokers make logs on the controller's word, with the settings that another broker wrote."""
    async with peer_cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 1, 3, retention_ms="12345")
        for broker in cluster.brokers.values():
            log = broker.services.replica_manager.partition(TopicPartition("t", 0)).log
            assert 12345 == log.config.retention_ms


async def test_only_the_controller_creates_topics_when_asked_to(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path, count=2) as cluster:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic])
        answer = await cluster.ask(cluster.others[0], request, CreateTopicsResponse)
        assert ErrorCode.NOT_CONTROLLER == answer.topics[0].error_code
        topic.replication_factor = 3
        answer = await cluster.ask(cluster.controller, request, CreateTopicsResponse)
        assert ErrorCode.INVALID_REPLICATION_FACTOR == answer.topics[0].error_code


async def test_a_deleted_topic_is_gone_everywhere(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 3, 3)
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=20_000)
        answer = await cluster.ask(cluster.controller, request, DeleteTopicsResponse, version=5)
        assert 0 == answer.responses[0].error_code
        for broker in cluster.brokers.values():
            services = broker.services
            await cluster.wait_until(lambda services=services: "t" not in services.metadata_cache)  # type: ignore[misc]
            assert {} == dict(services.replica_manager.partitions)


async def test_a_broker_that_is_gone_leads_nothing_and_its_replicas_are_offline(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path) as cluster:
        await cluster.create_topic("t", 3, 3)
        gone = cluster.others[0].services.broker_id
        await cluster.stop(gone)
        other = cluster.others[0]
        cache = other.services.metadata_cache
        await cluster.wait_until(lambda: gone not in cache.brokers)
        answer = await cluster.ask(
            other, MetadataRequest(topics=[MetadataRequestTopic(name="t")]), MetadataResponse
        )
        assert gone not in {each.node_id for each in answer.brokers}
        for partition in answer.topics[0].partitions:
            assert 0 == partition.error_code
            assert gone != partition.leader_id
            assert [gone] == partition.offline_replicas
            assert gone in partition.replica_nodes


async def test_each_broker_tells_the_settings_of_topics_that_it_has_no_replica_of(tmp_path: Path) -> None:
    """The creation of a topic notifies nobody of its settings, and neither does that of its successor."""
    async with peer_cluster(tmp_path) as cluster:

        async def told() -> list[str | None]:
            resource = DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name="t", configuration_keys=["retention.ms"]
            )
            request = DescribeConfigsRequest(resources=[resource])
            return [
                (await cluster.ask(broker, request, DescribeConfigsResponse)).results[0].configs[0].value
                for broker in cluster.brokers.values()
            ]

        async def create(retention_ms: str) -> None:
            await cluster.create_topic("t", 1, 1, retention_ms=retention_ms)
            for broker in cluster.brokers.values():
                cache = broker.services.metadata_cache
                await cluster.wait_until(lambda cache=cache: "t" in cache)  # type: ignore[misc]

        await create("12345")
        assert ["12345"] * 3 == await told()

        deletion = DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000)
        await cluster.ask(cluster.controller, deletion, DeleteTopicsResponse, version=5)
        for broker in cluster.brokers.values():
            cache = broker.services.metadata_cache
            await cluster.wait_until(lambda cache=cache: "t" not in cache)  # type: ignore[misc]
        await create("54321")
        assert ["54321"] * 3 == await told()


async def test_settings_of_another_broker_are_that_brokers_to_tell(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path, count=2) as cluster:
        for asked, code in (("0", 0), ("1", ErrorCode.INVALID_REQUEST), ("", 0)):
            resource = DescribeConfigsResource(
                resource_type=BROKER_RESOURCE, resource_name=asked, configuration_keys=None
            )
            request = DescribeConfigsRequest(resources=[resource])
            answer = await cluster.ask(cluster.brokers[0], request, DescribeConfigsResponse)
            assert code == answer.results[0].error_code, asked


async def test_all_brokers_name_the_same_coordinator_and_the_same_cluster(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path) as cluster:
        coordinators, clusters = set(), set()
        for broker in cluster.brokers.values():
            while True:
                found = await cluster.ask(
                    broker, FindCoordinatorRequest(coordinator_keys=["g1", "g2"]), FindCoordinatorResponse
                )
                # The first to ask has the topic of the groups made, of which others hear a little later.
                if all(each.error_code != ErrorCode.COORDINATOR_NOT_AVAILABLE for each in found.coordinators):
                    break
                await asyncio.sleep(0.02)
            coordinators.add(tuple((each.key, each.node_id, each.port) for each in found.coordinators))
            described = await cluster.ask(broker, DescribeClusterRequest(), DescribeClusterResponse)
            clusters.add((described.cluster_id, described.controller_id, len(described.brokers)))
        assert 1 == len(coordinators)
        assert 1 == len(clusters)


async def test_clients_find_the_controller_from_any_broker(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path) as cluster:
        bootstrap = cluster.others[0].bootstrap

        def administer() -> tuple[int, list[str]]:
            from confluent_kafka.admin import NewTopic

            confluent = AdminClient({"bootstrap.servers": bootstrap})
            confluent.create_topics([NewTopic("c", 3, 3)])["c"].result(timeout=60)
            python = KafkaAdminClient(bootstrap_servers=bootstrap)
            try:
                python.delete_topics(["c"])
                return len(python.describe_cluster()["brokers"]), python.list_topics()
            finally:
                python.close()

        assert (3, []) == await asyncio.to_thread(administer)
