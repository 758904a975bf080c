"""Brokers that follow each other, over sockets: what is acknowledged to acks=all is on every disk."""

import asyncio
import random
from pathlib import Path

from kalda.broker.replicas.follower.fetch_state import FetchStatus
from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.replication_quota import FOLLOWER_REPLICAS, UNLIMITED
from kalda.broker.server import BrokerServer
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.faults import FaultPlan
from kalda.faults.state import FaultState
from kalda.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kalda.storage.log_types import FetchIsolation
from tests.integration.cluster.peer_cluster import PeerCluster, peer_cluster
from tests.unit.storage.log_fixtures import batch

TOPIC = "orders"
NAME = TopicPartition(TOPIC, 0)
CUTS = 5
RETRIED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def replica(broker: BrokerServer, name: TopicPartition = NAME) -> Partition:
    return broker.services.replica_manager.partition(name)


def leader_of(cluster: PeerCluster, name: TopicPartition = NAME) -> BrokerServer:
    """The broker that leads by its own account, whoever's account is newest."""
    hosting = [each for each in cluster.brokers.values() if name in each.services.replica_manager.partitions]
    return max(hosting, key=lambda each: (replica(each, name).leader_epoch, replica(each, name).is_leader))


def bytes_of(partition: Partition) -> bytes:
    return partition.log.read(partition.log.log_start_offset, 1 << 30, FetchIsolation.LOG_END).records.read()


async def produce(cluster: PeerCluster, *values: bytes, name: TopicPartition = NAME, acks: int = -1) -> None:
    """Append a batch and return once it is acknowledged, whoever leads."""
    async with asyncio.timeout(60):
        while True:
            partition = PartitionProduceData(index=name.partition, records=bytes(batch(*values)))
            topic = TopicProduceData(name=name.topic, partition_data=[partition])
            request = ProduceRequest(acks=acks, timeout_ms=15_000, topic_data=[topic])
            answer = await cluster.ask(leader_of(cluster, name), request, ProduceResponse, 9)
            code = answer.responses[0].partition_responses[0].error_code
            if code not in RETRIED:
                assert 0 == code
                return
            await asyncio.sleep(0.02)


def are_equal(cluster: PeerCluster, end: int, name: TopicPartition = NAME) -> bool:
    """Whether every replica has all records up to `end` and takes them for committed."""
    logs = [replica(each, name).log for each in cluster.brokers.values()]
    return all(log.log_end_offset == log.high_watermark == end for log in logs)


async def test_an_acknowledged_record_is_on_every_replica(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path, 3) as cluster:
        await cluster.create_topic(TOPIC, 1, 3)
        for number in range(20):
            await produce(cluster, b"%d" % number)
            ends = [replica(each).log.log_end_offset for each in cluster.brokers.values()]
            assert [number + 1] * 3 == ends
        await cluster.wait_until(lambda: are_equal(cluster, 20))
        first, *others = [bytes_of(replica(each)) for each in cluster.brokers.values()]
        assert [first, first] == others


async def test_a_broker_that_was_away_catches_up_with_the_leader_after_it(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path, 3) as cluster:
        await cluster.create_topic(TOPIC, 1, 3)
        await produce(cluster, b"a")
        away = leader_of(cluster).services.broker_id
        await cluster.stop(away)
        for number in range(10):
            await produce(cluster, b"%d" % number)
        await cluster.start(away)
        await cluster.wait_until(lambda: NAME in cluster.brokers[away].services.replica_manager.partitions)
        await produce(cluster, b"z")
        await cluster.wait_until(lambda: are_equal(cluster, 12))
        first, *others = [bytes_of(replica(each)) for each in cluster.brokers.values()]
        assert [first, first] == others


async def test_a_new_partition_does_not_wait_for_the_end_of_a_long_poll(tmp_path: Path) -> None:
    """With long polls of 25 s the second topic's producers would time out, if they had to."""
    async with peer_cluster(tmp_path, 2, replica_fetch_wait_max_ms="25000") as cluster:
        await cluster.create_topic("first", 2, 2)
        await produce(cluster, b"a", name=TopicPartition("first", 0))
        await produce(cluster, b"a", name=TopicPartition("first", 1))
        await cluster.create_topic("second", 2, 2)
        await produce(cluster, b"b", name=TopicPartition("second", 0))
        await produce(cluster, b"b", name=TopicPartition("second", 1))


async def test_the_number_of_fetchers_changes_while_they_fetch(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path, 2) as cluster:
        await cluster.create_topic(TOPIC, 6, 2)
        for count in (3, 1):
            for broker in cluster.brokers.values():
                broker.services.config_store.set_broker_default({"num.replica.fetchers": str(count)})
            for index in range(6):
                await produce(cluster, b"a", name=TopicPartition(TOPIC, index))
            busy = {
                client_id
                for broker in cluster.brokers.values()
                for client_id, _ in broker.parts.replication.fetchers.states()
                if client_id.startswith("broker-0")
            }
            assert count >= len(busy) >= min(2, count)


async def test_a_throttled_replica_that_is_behind_waits_until_the_rate_is_lifted(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path, 2, replica_fetch_max_bytes="2000") as cluster:
        await cluster.create_topic(TOPIC, 1, 2)
        await produce(cluster, b"a")
        away = next(each for each in cluster.brokers.values() if each is not leader_of(cluster))
        broker_id = away.services.broker_id
        await cluster.stop(broker_id)
        for _ in range(30):
            await produce(cluster, b"x" * 1500, acks=1)
        away = await cluster.start(broker_id, follower_replication_throttled_rate="1000")
        away.services.config_store.set_topic(TOPIC, {FOLLOWER_REPLICAS: "*"})
        fetchers = away.parts.replication.fetchers

        def is_throttled() -> bool:
            state = fetchers.state(NAME)
            return state is not None and state.status is FetchStatus.THROTTLED

        await cluster.wait_until(is_throttled)
        assert replica(away).log.log_end_offset < 31
        away.services.config_store.set_broker({"follower.replication.throttled.rate": str(UNLIMITED)})
        await cluster.wait_until(lambda: replica(away).log.log_end_offset == 31)


async def test_connections_that_break_cost_no_record(tmp_path: Path) -> None:
    async with peer_cluster(tmp_path, 2) as cluster:
        await cluster.create_topic(TOPIC, 1, 2)
        state = FaultState(FaultPlan.parse(f"fetch:lose*{CUTS},from=brokers"), random.Random(7))
        leader_of(cluster).set_faults(state)
        number = 0
        while state.applied != [CUTS]:
            await produce(cluster, b"%d" % number)
            number += 1
        await cluster.wait_until(lambda: are_equal(cluster, number))
        first, second = [bytes_of(replica(each)) for each in cluster.brokers.values()]
        assert first == second
