"""What a namespace leaves behind when it is closed: nothing, however many there are."""

import os
import threading
import time

import confluent_kafka
import psutil
import pytest

from kalda import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    Admin,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    NewTopic,
    PermissionType,
    Producer,
    QuotaAlteration,
    ResourcePattern,
    ResourceType,
    ScramCredentialUpsertion,
    ScramMechanism,
    TopicPartition,
)
from kalda.testing import Cluster, Namespace, Security
from kalda.testing import namespace as namespace_module
from tests.leftovers import is_shared

SPACES = 300
SECONDS = 60.0


def use(space: Namespace, *, writes: bool = True) -> None:
    """Create a topic, write to it in a transaction, and commit for a group."""
    with Admin(bootstrap_servers=space.bootstrap) as admin:
        admin.create_topics([NewTopic("t", partitions=1)]).raise_for_errors()
        if not writes:
            return
        with Producer(bootstrap_servers=space.bootstrap, transactional_id="writer") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send("t", value=b"x")
        admin.alter_consumer_group_offsets({"g": {TopicPartition("t", 0): 1}})


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def own_threads() -> int:
    return sum(not is_shared(thread) for thread in threading.enumerate())


def test_three_hundred_namespaces_leave_nothing_behind() -> None:
    """A suite of thousands of tests runs on one cluster, which must not grow with them."""
    # Kafka keeps the files of deleted topics for a minute.
    with Cluster(brokers=1, settings={"log.segment.delete.delay.ms": "1"}) as cluster:
        server = cluster.server(0)
        services = server.services
        with cluster.namespace() as space:
            use(space)
        cluster.wait_namespaces_removed()
        process = psutil.Process()
        before, threads = descriptors(), own_threads()
        listeners = len(server.parts.server._by_name)
        memory = 0
        for number in range(SPACES):
            with cluster.namespace() as space:
                use(space, writes=number % 4 == 0)
            if number == SPACES // 3:
                cluster.wait_namespaces_removed()
                memory = process.memory_info().rss
        cluster.wait_namespaces_removed()
        grown = process.memory_info().rss - memory
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            assert {} == admin.list_topics()
            assert [] == admin.list_groups().all()
            assert [] == admin.list_transactions().all()
        assert [] == [each for each in services.log_manager.logs() if each.topic.startswith("ns-")]
        cluster.wait_until(
            lambda: not list(cluster.log_directories[0].glob("ns-*")), SECONDS, "deleted files"
        )
        assert 0 == len(server.namespaces.names)
        assert listeners == len(server.parts.server._by_name)
        assert not services.metadata_cache._added
        assert [] == list(services.group_coordinator.committed_offsets())
        cluster.wait_until(lambda: descriptors() <= before + 10, SECONDS, "closed descriptors")
        cluster.wait_until(lambda: own_threads() <= threads, SECONDS, "ended threads")
        # Two hundred namespaces later; a kilobyte or two each is the allocator's.
        assert grown < 24 * 2**20


def test_open_transactions_and_members_do_not_stay() -> None:
    """A test may end in the middle of everything, and its clients may never say good-bye."""
    with Cluster(brokers=3) as cluster:
        space = cluster.namespace()
        with Admin(bootstrap_servers=space.bootstrap) as admin:
            admin.create_topics([NewTopic("t", partitions=3)]).raise_for_errors()
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": space.bootstrap, "transactional.id": "writer", "log_level": 0}
        )
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        producer.produce("t", b"x", partition=0)
        producer.flush(SECONDS)
        consumers = [
            confluent_kafka.Consumer(
                {
                    "bootstrap.servers": space.bootstrap,
                    "group.id": protocol,
                    "group.protocol": protocol,
                    "log_level": 0,
                }
            )
            for protocol in ("classic", "consumer")
        ]
        for consumer in consumers:
            consumer.subscribe(["t"])
            deadline = time.monotonic() + SECONDS
            while not consumer.assignment() and time.monotonic() < deadline:
                consumer.poll(0.1)
        space.close()
        cluster.wait_namespaces_removed()
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            assert {} == admin.list_topics()
            assert [] == admin.list_groups().all()
            assert [] == admin.list_transactions().all()
        for consumer in consumers:
            consumer.close()
        del producer


def test_users_rights_quotas_and_settings_do_not_stay() -> None:
    """Nothing of them is left in ZooKeeper either."""
    with Cluster(brokers=1, security=Security(protocol="SASL_PLAINTEXT")) as cluster:
        store = cluster.server(0).services.config_store
        users = set(store.entity_names("users"))
        with cluster.namespace() as space, Admin.from_config(space.client_config()) as admin:
            admin.alter_user_scram_credentials(
                [ScramCredentialUpsertion("carol", ScramMechanism.SCRAM_SHA_256, "secret")]
            ).raise_for_errors()
            admin.alter_client_quotas(
                [
                    QuotaAlteration(entity, {"producer_byte_rate": 1e6})
                    for entity in (
                        (("user", "carol"),),
                        (("user", None),),
                        (("client-id", "app"), ("user", "carol")),
                        (("client-id", "app"),),
                    )
                ]
            ).raise_for_errors()
            admin.create_acls(
                [
                    AclBinding(
                        ResourcePattern(kind, name),
                        AccessControlEntry("User:carol", "*", AclOperation.ALL, PermissionType.ALLOW),
                    )
                    for kind, name in ((ResourceType.TOPIC, "t"), (ResourceType.CLUSTER, "kafka-cluster"))
                ]
            ).raise_for_errors()
            admin.incremental_alter_configs(
                {
                    ConfigResource(ConfigResourceType.GROUP, "g"): [
                        AlterConfigOp.set("consumer.session.timeout.ms", 46_000)
                    ]
                }
            )
        cluster.wait_namespaces_removed()
        with Admin.from_config(cluster.client_config()) as admin:
            assert [] == admin.describe_acls()
            assert {} == admin.describe_client_quotas()
        assert users == set(store.entity_names("users"))
        assert [] == store.entity_names("clients") == store.entity_names("groups")
        assert not any("ns-" in each for each in znodes(cluster, "/config"))


def znodes(cluster: Cluster, path: str) -> list[str]:
    """Return the paths of all nodes below one, but the notifications of changes."""
    thread = cluster._broker(0)

    async def walk(below: str) -> list[str]:
        client = thread.server.services.cluster_store.zookeeper
        found = []
        for name in await client.children(below):
            child = f"{below}/{name}"
            if child != "/config/changes":
                found += [child, *await walk(child)]
        return found

    return thread.submit(lambda _: walk(path)).result(SECONDS)


def test_few_closed_namespaces_wait_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """`close` returns at once, but it does not let the cluster fill up."""
    assert 64 == namespace_module._REMOVALS_MAX
    with Cluster(brokers=1) as cluster:
        spaces = [cluster.namespace() for _ in range(100)]
        for space in spaces:
            space.close()
            space.close()
            assert cluster._namespaces._removals.qsize() <= namespace_module._REMOVALS_MAX
        cluster.wait_namespaces_removed()
        assert 0 == cluster._namespaces._removals.unfinished_tasks


def test_the_end_of_a_cluster_does_not_wait_for_removals() -> None:
    """The data goes with the cluster."""
    with Cluster(brokers=1) as cluster:
        for _ in range(10):
            with (
                cluster.namespace() as space,
                Consumer("t", bootstrap_servers=space.bootstrap, group_id="g") as consumer,
            ):
                consumer.poll(timeout_s=0.0)
