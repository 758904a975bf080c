"""A plan of faults in a cluster of processes: signals, and what the brokers do themselves."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

import kalda
from kalda.faults import FaultError
from kalda.testing import KaldaProcessError, ProcessCluster
from kalda.zookeeper.client.ensemble_client import EnsembleClient

SETTINGS = {
    "kalda.faults.api.enable": "true",
    # A follower that is cut off leaves the ISR soon.
    "replica.lag.time.max.ms": "1000",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    with ProcessCluster(tmp_path_factory.mktemp("faults"), brokers=2, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: ProcessCluster) -> Iterator[kalda.Admin]:
    with ExitStack() as stack:
        stack.callback(cluster.clear_faults)
        yield stack.enter_context(kalda.Admin(bootstrap_servers=cluster.bootstrap))


def test_requests_fail_and_a_broker_pauses(cluster: ProcessCluster, admin: kalda.Admin) -> None:
    admin.create_topics([kalda.NewTopic("orders", 1, 2)])
    cluster.apply_faults("produce:NOT_LEADER*1,topic=orders; broker:pause@1,for=300ms")
    send(cluster, "orders")
    assert [1] == cluster.faults_applied()
    cluster.clear_faults()
    assert [] == cluster.faults_applied()


def test_a_killed_broker_starts_again_and_has_the_plan(cluster: ProcessCluster, admin: kalda.Admin) -> None:
    cluster.apply_faults("fetch:delay=1ms; broker:kill@1,for=10ms")
    wait_until(lambda: cluster.broker(1).is_running and "fetch:delay=1ms" == admin.describe_faults()[1].plan)


def test_a_full_disk_refuses_records_until_there_is_room(cluster: ProcessCluster, admin: kalda.Admin) -> None:
    admin.create_topics([kalda.NewTopic("full", replica_assignments={0: [1]})])
    cluster.apply_faults("disk:full@leader/full/0")
    with pytest.raises(kalda.ClientError):
        send(cluster, "full", retries="0")
    cluster.clear_faults()
    wait_until(lambda: is_sent(cluster, "full"))


def test_a_cut_link_takes_the_follower_out_of_sync(cluster: ProcessCluster, admin: kalda.Admin) -> None:
    admin.create_topics([kalda.NewTopic("cut", replica_assignments={0: [0, 1]})])
    cluster.apply_faults("link:cut@0-1")
    send(cluster, "cut", acks="1")
    wait_until(lambda: in_sync(admin, "cut") == (0,))
    cluster.clear_faults()
    wait_until(lambda: in_sync(admin, "cut") == (0, 1))


def test_an_expired_session_is_followed_by_another(cluster: ProcessCluster, admin: kalda.Admin) -> None:
    before = owner(cluster, 1)
    cluster.apply_faults("session:expire@1")
    wait_until(lambda: owner(cluster, 1) not in (None, before))
    assert cluster.broker(1).is_running


def test_what_is_not_possible_is_refused(cluster: ProcessCluster, admin: kalda.Admin) -> None:
    with pytest.raises(FaultError, match="only `kalda simulate` has the fault broker:power"):
        cluster.apply_faults("broker:power@1")
    with pytest.raises(KaldaProcessError, match="disk:full@7: there is no broker 7, only 0 to 1"):
        cluster.apply_faults("disk:full@7")


def send(cluster: ProcessCluster, topic: str, **settings: str) -> None:
    config = {"bootstrap.servers": cluster.bootstrap, **settings}
    with kalda.Producer.from_config(config) as producer:
        producer.send(topic, value=b"x").result(60)


def is_sent(cluster: ProcessCluster, topic: str) -> bool:
    try:
        send(cluster, topic)
    except kalda.ClientError:
        return False
    return True


def in_sync(admin: kalda.Admin, topic: str) -> tuple[int, ...]:
    return tuple(sorted(admin.describe_topics([topic])[topic].partitions[0].isr))


def owner(cluster: ProcessCluster, broker_id: int) -> int | None:
    """Return the id of the session that a broker is registered with; None if it is not registered."""

    async def look() -> int | None:
        zookeeper = await EnsembleClient.connect(
            cluster.zookeeper, session_timeout_ms=10_000, connection_timeout_ms=30_000
        )
        stat = await zookeeper.exists(f"/brokers/ids/{broker_id}")
        await zookeeper.close()
        return None if stat is None else stat.ephemeral_owner

    return asyncio.run(look())


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        threading.Event().wait(0.05)
