"""A Kalda controller over brokers of Apache Kafka: their ISRs and producer ids, and what its term leaves.

Leaders of Apache Kafka ask the controller for both; a controller that did not serve them left frozen ISRs and
brokers that gave no producer ids, even after it was gone.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError
from kalda import NewTopic, Producer
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.net.peer.dialer import TcpDialer
from kalda.net.peer.peer_connection import DialOptions
from kalda.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.compat.mixed_cluster import CONTROLLER_ID, KAFKA, KALDA, WAIT_SECONDS, MixedCluster

pytestmark = pytest.mark.timeout(600)

BY_1, BY_2 = TopicPartition("t", 0), TopicPartition("t", 1)
"""The partitions that brokers 1 and 2 lead."""
BLOCK = 1000
"""Producer ids that a broker gets at a time."""


RELEASES = ("3.9.1", "3.6.2")


@pytest.fixture(params=RELEASES)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MixedCluster]:
    """Two brokers of Apache Kafka under a Kalda controller, with a topic on both."""
    try:
        made = MixedCluster(tmp_path, controller=KALDA, others=KAFKA, release=request.param)
    except NotAvailableError as error:
        pytest.skip(str(error))
    with made:
        with made.admin() as admin:
            admin.create_topics([NewTopic("t", replica_assignments={0: [1, 2], 1: [2, 1]})])
        made.wait_settled()
        yield made


def test_isrs_and_producer_ids_under_every_controller(cluster: MixedCluster) -> None:
    ids: set[int] = set()
    check_isrs(cluster)
    check_producer_ids(cluster, ids)
    # The term ends: the brokers find the next controller, which is of Apache Kafka.
    cluster.brokers[CONTROLLER_ID].stop()
    cluster.wait(lambda: cluster.controller_id() in (1, 2))
    cluster.brokers[CONTROLLER_ID].start()
    cluster.wait_settled()
    check_isrs(cluster)
    check_producer_ids(cluster, ids)
    cluster.move_controller(CONTROLLER_ID)
    check_isrs(cluster)
    check_producer_ids(cluster, ids)


def check_isrs(cluster: MixedCluster) -> None:
    """A stalled follower leaves the ISR and comes back by its leader's request; so does one that restarts."""
    cluster.elect_preferred()
    cluster.wait_leader(BY_1, 1)
    cluster.wait_leader(BY_2, 2)
    before = cluster.wait_isr(BY_1, {1, 2})
    produce(cluster)
    follower = cluster.brokers[2]
    if cluster.controller_id() != 2:
        # Shorter than its session: only the leader notices.
        follower.pause()
        try:
            # A follower that has everything is in sync, however long it is silent.
            with Producer(bootstrap_servers=cluster.bootstrap, acks=1, enable_idempotence=False) as producer:
                producer.send("t", value=b"v", partition=0).result(WAIT_SECONDS)
            alone = cluster.wait_isr(BY_1, {1})
        finally:
            follower.resume()
        assert before.leader_epoch == alone.leader_epoch
        assert before.leader_epoch == cluster.wait_isr(BY_1, {1, 2}).leader_epoch
        cluster.wait_settled()
    for end in (follower.stop, lambda: cluster.kill(2)):
        end()
        cluster.wait_isr(BY_1, {1})
        cluster.wait_leader(BY_2, 1)
        follower.start()
        cluster.wait_settled()
    cluster.elect_preferred()
    cluster.wait_leader(BY_2, 2)
    produce(cluster)


def produce(cluster: MixedCluster) -> None:
    """Write to both partitions with acks=all by an idempotent producer."""
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for each in [producer.send("t", value=b"v", partition=n % 2) for n in range(100)]:
            each.result(WAIT_SECONDS)


def check_producer_ids(cluster: MixedCluster, ids: set[int]) -> None:
    """Each broker gives more producer ids than a block has, and none that was given before."""
    for broker_id in cluster.brokers:
        given = asyncio.run(producer_ids(cluster.port(broker_id), BLOCK + 100))
        assert BLOCK + 100 == len(set(given) - ids), f"broker {broker_id} gave ids twice"
        ids.update(given)


async def producer_ids(port: int, count: int) -> list[int]:
    """Get producer ids from one broker, which may have to wait for the next block."""
    options = DialOptions(client_id="test", timeout_seconds=WAIT_SECONDS)
    connection = await TcpDialer().dial("127.0.0.1", port, options)
    found: list[int] = []
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while len(found) < count:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
                answer = await connection.request(request, timeout_seconds=WAIT_SECONDS)
                assert isinstance(answer, InitProducerIdResponse)
                if answer.error_code:
                    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS == answer.error_code
                    await asyncio.sleep(0.05)
                else:
                    found.append(answer.producer_id)
    finally:
        connection.close()
    return found
