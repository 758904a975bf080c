"""Our admin client while brokers are killed, paused and gone: calls end in time, what can succeed does."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kalda import Admin, ClientError, ConfigResource, NewTopic, OffsetSpec, TopicPartition
from kalda.clients.errors import RequestTimedOutError
from kalda.testing import Cluster
from kalda.testing.ports import free_ports

TopicName = Callable[[str], str]
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    # A broker that is gone stays in the cluster for longer than a call lasts.
    "zookeeper.session.timeout.ms": "60000",
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(
        bootstrap_servers=cluster.bootstrap, request_timeout_ms=1_500, default_api_timeout_ms=40_000
    ) as client:
        yield client


def controller_id(admin: Admin) -> int:
    controller = admin.describe_cluster().controller
    assert controller is not None
    return controller.id


def test_a_killed_controller_is_replaced_within_the_call(cluster: Cluster, admin: Admin) -> None:
    admin.create_topics([NewTopic("before", replication_factor=3)])

    cluster.kill(controller_id(admin), expire_session=True)
    created = admin.create_topics([NewTopic("after", partitions=2, replication_factor=2)])

    created.raise_for_errors()
    assert {"before", "after"} <= admin.list_topics().keys()


def test_a_killed_leader_and_coordinator_is_replaced_within_the_call(cluster: Cluster, admin: Admin) -> None:
    """Partitions and groups of the other brokers do not wait for it."""
    admin.create_topics([NewTopic("flights", partitions=3, replication_factor=3)])
    partitions = [TopicPartition("flights", number) for number in range(3)]
    groups = {f"group-{number}": {partitions[0]: number} for number in range(6)}
    admin.alter_consumer_group_offsets(groups)

    cluster.kill(0, expire_session=True)
    latest = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()))
    listed = admin.list_consumer_group_offsets(groups)
    deleted = admin.delete_consumer_groups(groups)

    latest.raise_for_errors()
    assert dict.fromkeys(partitions, 0) == {partition: each.offset for partition, each in latest.items()}
    assert groups == {
        group_id: {partition: each and each.offset for partition, each in offsets.items()}
        for group_id, offsets in listed.items()
    }
    deleted.raise_for_errors()


def test_what_only_a_killed_broker_knows_fails_alone(cluster: Cluster, admin: Admin) -> None:
    assert [0, 1, 2] == list(admin.describe_log_dirs(outcomes=True))
    cluster.kill(2)

    outcomes = admin.describe_log_dirs([0, 1, 2], timeout_ms=8_000, outcomes=True)
    configs = admin.describe_configs(
        [ConfigResource.broker(1), ConfigResource.broker(2)], timeout_ms=8_000, outcomes=True
    )

    assert [0, 1] == list(outcomes.results)
    assert isinstance(outcomes.errors[2], RequestTimedOutError)
    assert isinstance(outcomes.errors[2].__cause__, ClientError)
    assert [ConfigResource.broker(1)] == list(configs.results)
    groups = admin.list_groups(timeout_ms=8_000)
    assert set(groups.errors) <= {2}


def test_a_paused_broker_does_not_stop_the_others(cluster: Cluster, admin: Admin) -> None:
    admin.list_topics()
    paused = next(node.id for node in admin.describe_cluster().nodes if node.id != controller_id(admin))
    cluster.pause(paused)
    try:
        begin = time.monotonic()
        outcomes = admin.describe_log_dirs([0, 1, 2], timeout_ms=8_000, outcomes=True)
        assert {0, 1, 2} - {paused} == set(outcomes.results)
        assert isinstance(outcomes.errors[paused], RequestTimedOutError)
        assert time.monotonic() - begin < 30
        admin.create_topics([NewTopic("alive")])
    finally:
        cluster.resume(paused)
    # Its session may have ended meanwhile.
    deadline = time.monotonic() + 30
    while [0, 1, 2] != list(admin.describe_log_dirs(outcomes=True).results):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_cluster_that_stops_answering_ends_the_call_in_time(cluster: Cluster, admin: Admin) -> None:
    admin.list_topics()
    for broker_id in range(3):
        cluster.pause(broker_id)
    begin = time.monotonic()

    with pytest.raises(RequestTimedOutError, match="list topics: gave up after 2000 ms"):
        admin.list_topics(timeout_ms=2_000)

    assert time.monotonic() - begin < 30
    for broker_id in range(3):
        cluster.resume(broker_id)
    assert {} == admin.list_topics()


def test_no_broker_at_all_is_named() -> None:
    (port,) = free_ports(1)
    with Admin(bootstrap_servers=f"127.0.0.1:{port}") as admin:
        begin = time.monotonic()

        with pytest.raises(
            ClientError, match=rf"list topics: gave up after 1000 ms; last: .*127\.0\.0\.1:{port}"
        ):
            admin.list_topics(timeout_ms=1_000)

        with pytest.raises(ClientError):
            admin.list_groups(timeout_ms=1_000)
        assert time.monotonic() - begin < 30


def test_closing_ends_a_call_under_way(cluster: Cluster) -> None:
    for broker_id in range(3):
        cluster.pause(broker_id)
    failures: list[ClientError] = []
    admin = Admin(bootstrap_servers=cluster.bootstrap)

    def call() -> None:
        try:
            admin.list_topics()
        except ClientError as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(0.5)
    begin = time.monotonic()
    admin.close(1.0)
    thread.join(30)

    assert not thread.is_alive()
    assert time.monotonic() - begin < 30
    assert 1 == len(failures)
    for broker_id in range(3):
        cluster.resume(broker_id)
