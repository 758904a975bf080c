"""What operators ask about transactions, with kafka-python's admin client and of brokers one by one."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import InvalidUpdateVersionError

from kalda.broker.metadata.features import GROUP_VERSION, SHARE_VERSION, TRANSACTION_VERSION
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kalda.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from kalda.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.integration.cluster.peer_cluster import PeerCluster, peer_cluster

UPGRADE, SAFE_DOWNGRADE = 1, 2


def update(level: int, kind: int, *, name: str = TRANSACTION_VERSION) -> UpdateFeaturesRequest:
    return UpdateFeaturesRequest(
        feature_updates=[FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)]
    )


async def finalised(cluster: PeerCluster) -> list[dict[str, int]]:
    """What each broker tells clients."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answers = [await cluster.ask(broker, request, ApiVersionsResponse) for broker in cluster.brokers.values()]
    return [{each.name: each.max_version_level for each in answer.finalized_features} for answer in answers]


async def test_features_change_at_run_time_for_every_broker(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path) as cluster:
        other = cluster.others[0]
        refused = await cluster.ask(other, update(1, SAFE_DOWNGRADE), UpdateFeaturesResponse)
        assert ErrorCode.NOT_CONTROLLER == refused.error_code
        refused = await cluster.ask(cluster.controller, update(1, UPGRADE), UpdateFeaturesResponse)
        assert ErrorCode.INVALID_UPDATE_VERSION == refused.error_code
        assert "downgrade" in str(refused.error_message)

        done = await cluster.ask(cluster.controller, update(1, SAFE_DOWNGRADE), UpdateFeaturesResponse, 1)
        assert [(TRANSACTION_VERSION, 0)] == [(each.feature, each.error_code) for each in done.results]
        brokers = [broker.services.features for broker in cluster.brokers.values()]
        await cluster.wait_until(lambda: {each.transaction_version for each in brokers} == {1})
        assert [{GROUP_VERSION: 1, SHARE_VERSION: 1, TRANSACTION_VERSION: 1}] * 3 == await finalised(cluster)

        # Who comes later goes by it, too.
        await cluster.stop(2)
        assert 1 == (await cluster.start(2)).services.features.transaction_version


async def test_kafka_pythons_admin_changes_features(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path) as cluster:

        def change() -> None:
            with contextlib.closing(
                KafkaAdminClient(bootstrap_servers=cluster.brokers[0].bootstrap)
            ) as admin:
                with pytest.raises(InvalidUpdateVersionError):
                    admin.update_features({TRANSACTION_VERSION: 9})
                admin.update_features({TRANSACTION_VERSION: ("SAFE_DOWNGRADE", 1)}, validate_only=True)
                told = admin.describe_features(send_request_to_controller=True)
                assert (2, 2) == told[TRANSACTION_VERSION]["finalized"]
                admin.update_features({TRANSACTION_VERSION: ("SAFE_DOWNGRADE", 0)})
                told = admin.describe_features(send_request_to_controller=True)
                assert {"supported": (0, 2)} == told[TRANSACTION_VERSION]
                admin.update_features({TRANSACTION_VERSION: 2})

        await asyncio.to_thread(change)


async def test_followers_tell_of_their_producers(tmp_path: Path) -> None:
    """A replica that lost a marker is found by asking each of them (KIP-664's ``--broker-id``)."""
    async with peer_cluster(tmp_path) as cluster:
        await cluster.create_topic("t", partitions=1, replicas=3)

        def send() -> None:
            bootstrap = cluster.brokers[0].bootstrap
            with contextlib.closing(
                KafkaProducer(bootstrap_servers=bootstrap, transactional_id="id")
            ) as producer:
                producer.init_transactions()
                producer.begin_transaction()
                producer.send("t", b"open").get(60)

        await asyncio.to_thread(send)
        logs = [
            broker.services.replica_manager.partition(TopicPartition("t", 0)).log
            for broker in cluster.brokers.values()
        ]
        await cluster.wait_until(lambda: all(log.log_end_offset == 1 for log in logs))
        request = DescribeProducersRequest(
            topics=[
                TopicRequest(name="t", partition_indexes=[0, 1]),
                TopicRequest(name="not a name", partition_indexes=[0]),
            ]
        )
        answers = [
            await cluster.ask(broker, request, DescribeProducersResponse)
            for broker in cluster.brokers.values()
        ]
        assert answers == [answers[0]] * 3
        known, unknown, nameless = [each for topic in answers[0].topics for each in topic.partitions]
        assert [0] == [each.current_txn_start_offset for each in known.active_producers]
        assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == unknown.error_code
        assert ErrorCode.INVALID_TOPIC_EXCEPTION == nameless.error_code
