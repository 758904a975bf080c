"""Every duty of a controller over brokers of the other software: Kalda over Apache Kafka 3.9, and back.

Each test leaves the cluster with all brokers in sync, and looks at what ZooKeeper and the brokers hold.
"""

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError
from kalda import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    Admin,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    Consumer,
    ElectionType,
    KafkaPrincipal,
    NewPartitions,
    NewTopic,
    PatternType,
    PermissionType,
    Producer,
    QuotaAlteration,
    ResourcePattern,
    ResourceType,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    ScramMechanism,
    TopicPartitionReplica,
)
from kalda.clients.admin.quotas import quota_entity
from kalda.clients.errors import ClientError
from kalda.cluster import paths
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from tests.compat.mixed_cluster import (
    ADMINISTRATOR,
    CONTROLLER_ID,
    KAFKA,
    KALDA,
    OTHER_IDS,
    PASSWORD,
    WAIT_SECONDS,
    MixedCluster,
)

pytestmark = pytest.mark.timeout(300)

DIRECTIONS = {"kalda-over-kafka": (KALDA, KAFKA), "kafka-over-kalda": (KAFKA, KALDA)}
MECHANISM = ScramMechanism.SCRAM_SHA_256


@pytest.fixture(scope="module", params=DIRECTIONS)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedCluster]:
    controller, others = DIRECTIONS[request.param]
    try:
        made = MixedCluster(tmp_path_factory.mktemp(request.param), controller=controller, others=others)
    except NotAvailableError as error:
        pytest.skip(str(error))
    with made:
        with made.admin() as admin:
            admin.alter_user_scram_credentials([ScramCredentialUpsertion(ADMINISTRATOR, MECHANISM, PASSWORD)])
        yield made


@pytest.fixture
def cluster(running: MixedCluster) -> Iterator[MixedCluster]:
    """The cluster, whose controller is in office before and after each test."""
    assert CONTROLLER_ID == running.controller_id()
    yield running
    running.wait_settled()
    assert CONTROLLER_ID == running.controller_id()


def create(cluster: MixedCluster, name: str, *replicas: list[int], **config: str) -> list[TopicPartition]:
    """Create a topic with these replicas of each partition; return its partitions when they are in sync."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    with cluster.admin() as admin:
        admin.create_topics([NewTopic(name, replica_assignments=dict(enumerate(replicas)), config=settings)])
    partitions = [TopicPartition(name, number) for number in range(len(replicas))]
    for partition, ids in zip(partitions, replicas, strict=True):
        cluster.wait_isr(partition, ids)
    return partitions


def produce(cluster: MixedCluster, partition: TopicPartition, count: int = 100, size: int = 10) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for each in [
            producer.send(partition.topic, value=b"%d" % n + bytes(size), partition=partition.partition)
            for n in range(count)
        ]:
            each.result(WAIT_SECONDS)


def count_records(cluster: MixedCluster, partition: TopicPartition) -> int:
    with Consumer(bootstrap_servers=cluster.bootstrap) as consumer:
        return int(consumer.end_offsets([partition], timeout_s=WAIT_SECONDS)[partition])


def log_of(cluster: MixedCluster, broker_id: int, partition: TopicPartition) -> list[Path]:
    """Return the directories that a broker has for a partition, under whatever suffix."""
    name = f"{partition.topic}-{partition.partition}"
    return [
        each
        for directory in cluster.log_dirs(broker_id)
        for each in directory.iterdir()
        if each.name == name or each.name.startswith(f"{name}.")
    ]


def setting(cluster: MixedCluster, broker_id: int, resource: ConfigResource, name: str) -> str | None:
    """Return a setting as one broker knows it."""
    with Admin(bootstrap_servers=f"127.0.0.1:{cluster.port(broker_id)}") as admin:
        return admin.describe_configs([resource])[resource][name].value


def test_topics_are_created_grow_and_vanish(cluster: MixedCluster) -> None:
    first, second = create(cluster, "grows", [1, 2], [2, 1], retention_ms="3600000")
    assert {"retention.ms": "3600000"} == cluster.read_json(paths.config("topics", "grows"))["config"]
    produce(cluster, first)
    produce(cluster, second)
    with cluster.admin() as admin:
        admin.create_partitions({"grows": NewPartitions(4, [[1, 2], [2, 1]])})
        added = [TopicPartition("grows", 2), TopicPartition("grows", 3)]
        cluster.wait_isr(added[0], {1, 2})
        cluster.wait_isr(added[1], {1, 2})
        produce(cluster, added[0])
        produce(cluster, added[1])
        admin.create_topics([NewTopic("placed", partitions=6, replication_factor=3)])
        cluster.wait_settled()
        assert {3} == {len(each.replicas) for each in cluster.assignments()["placed"].partitions.values()}
        admin.create_partitions({"placed": 9})
        cluster.wait_settled()
        assert 9 == len(cluster.assignments()["placed"].partitions)
        refused = admin.create_topics([NewTopic("wide", partitions=1, replication_factor=4)], outcomes=True)
        assert ErrorCode.INVALID_REPLICATION_FACTOR == refused.errors["wide"].code
        admin.delete_topics(["grows", "placed"])
    cluster.wait(lambda: not {"grows", "placed"} & set(cluster.children(paths.TOPICS)))
    cluster.wait(lambda: not any(log_of(cluster, each, first) for each in OTHER_IDS))
    assert not {"grows", "placed"} & set(cluster.children(f"{paths.CONFIG}/topics"))
    # The name is free at once.
    create(cluster, "grows", [2, 1])
    produce(cluster, first)
    assert 100 == count_records(cluster, first)


def test_a_topic_is_created_by_its_first_use(cluster: MixedCluster) -> None:
    """The broker that a client asks for metadata sends the controller a plain CreateTopics."""
    for broker_id in OTHER_IDS:
        name = f"automatic-{broker_id}"
        with Producer(bootstrap_servers=f"127.0.0.1:{cluster.port(broker_id)}", acks="all") as producer:
            producer.send(name, value=b"v").result(WAIT_SECONDS)
        assert 1 == len(cluster.assignments()[name].partitions)


def test_a_deletion_waits_for_a_dead_broker(cluster: MixedCluster) -> None:
    (partition,) = create(cluster, "waits", [1, 2])
    cluster.brokers[2].stop()
    with cluster.admin() as admin:
        admin.delete_topics(["waits"])
    cluster.wait(lambda: not log_of(cluster, 1, partition))
    assert log_of(cluster, 2, partition)
    assert ["waits"] == cluster.children(paths.DELETE_TOPICS)
    cluster.brokers[2].start()
    cluster.wait(lambda: "waits" not in cluster.children(paths.TOPICS))
    cluster.wait(lambda: not log_of(cluster, 2, partition))


def test_settings_reach_every_broker(cluster: MixedCluster) -> None:
    create(cluster, "set", [1, 2])
    topic = ConfigResource(ConfigResourceType.TOPIC, "set")
    everywhere, second = ConfigResource(ConfigResourceType.BROKER, ""), ConfigResource.broker(2)
    with cluster.admin() as admin:
        admin.incremental_alter_configs({topic: [AlterConfigOp.set("max.message.bytes", "123456")]})
        admin.incremental_alter_configs({everywhere: [AlterConfigOp.set("log.retention.ms", "7200000")]})
        admin.incremental_alter_configs({second: [AlterConfigOp.set("log.retention.ms", "3600000")]})
        for broker_id, expected in ((1, "7200000"), (2, "3600000"), (3, "7200000")):
            own = ConfigResource.broker(broker_id)
            cluster.wait(lambda: expected == setting(cluster, broker_id, own, "log.retention.ms"))  # noqa: B023
            cluster.wait(lambda: setting(cluster, broker_id, topic, "max.message.bytes") == "123456")  # noqa: B023
        for resource, name in ((everywhere, "log.retention.ms"), (second, "log.retention.ms")):
            admin.incremental_alter_configs({resource: [AlterConfigOp.delete(name)]})


def test_acls_and_users_reach_every_broker(cluster: MixedCluster) -> None:
    create(cluster, "private", [1, 2])
    topic = ResourcePattern(ResourceType.TOPIC, "private", PatternType.LITERAL)
    entry = AccessControlEntry("User:alice", "*", AclOperation.DESCRIBE, PermissionType.ALLOW)
    alice = [cluster.login(each, "alice", "alice-secret") for each in cluster.brokers]

    def sees(login: dict[str, str]) -> bool:
        with Admin.from_config(login) as admin:
            return "private" in admin.list_topics()

    with cluster.admin() as admin:
        admin.alter_user_scram_credentials([ScramCredentialUpsertion("alice", MECHANISM, "alice-secret")])
        for login in alice:
            cluster.wait(lambda: cluster.is_accepted(login))  # noqa: B023
            assert not sees(login)
        admin.create_acls([AclBinding(topic, entry)])
        for login in alice:
            cluster.wait(lambda: sees(login))  # noqa: B023
        admin.delete_acls([AclFilter(principal="User:alice")])
        for login in alice:
            cluster.wait(lambda: not sees(login))  # noqa: B023
        admin.alter_user_scram_credentials([ScramCredentialDeletion("alice", MECHANISM)])
        for login in alice:
            cluster.wait(lambda: not cluster.is_accepted(login))  # noqa: B023


def test_quotas_reach_every_broker(cluster: MixedCluster) -> None:
    entity = quota_entity({"user": "alice", "client-id": None})
    with cluster.admin() as admin:
        admin.alter_client_quotas([QuotaAlteration(entity, {"producer_byte_rate": 1e6})])
        for broker_id in cluster.brokers:
            with Admin(bootstrap_servers=f"127.0.0.1:{cluster.port(broker_id)}") as one:
                cluster.wait(lambda: {entity: {"producer_byte_rate": 1e6}} == one.describe_client_quotas())
        admin.alter_client_quotas([QuotaAlteration(entity, {"producer_byte_rate": None})])
        assert {} == admin.describe_client_quotas()


def test_delegation_tokens_log_in_everywhere(cluster: MixedCluster) -> None:
    with Admin.from_config(cluster.login(1, ADMINISTRATOR, PASSWORD)) as admin:
        token = admin.create_delegation_token([KafkaPrincipal("User", "bob")])
        password = base64.b64encode(token.hmac).decode()
        logins = [cluster.login(each, token.token_id, password, is_token=True) for each in cluster.brokers]
        for login in logins:
            cluster.wait(lambda: cluster.is_accepted(login))  # noqa: B023
        assert admin.renew_delegation_token(token.hmac, renew_period_ms=60_000) < token.expires_at_ms
        admin.expire_delegation_token(token.hmac)
        for login in logins:
            cluster.wait(lambda: not cluster.is_accepted(login))  # noqa: B023


def test_a_throttled_reassignment_is_cancelled_and_completed(cluster: MixedCluster) -> None:
    (partition,) = create(cluster, "moves", [1])
    produce(cluster, partition, count=200, size=10_000)
    topic = ConfigResource(ConfigResourceType.TOPIC, "moves")
    rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    both = [ConfigResource.broker(each) for each in OTHER_IDS]
    with cluster.admin() as admin:
        admin.incremental_alter_configs(
            {each: [AlterConfigOp.set(rate, "1024") for rate in rates] for each in both}
        )
        throttled = {
            "leader.replication.throttled.replicas": "0:1",
            "follower.replication.throttled.replicas": "0:2",
        }
        admin.incremental_alter_configs({topic: [AlterConfigOp.set(*each) for each in throttled.items()]})
        for broker_id in OTHER_IDS:
            own = ConfigResource.broker(broker_id)
            cluster.wait(lambda: setting(cluster, broker_id, own, rates[0]) == "1024")  # noqa: B023
        for attempt in (1, 2):
            admin.alter_partition_reassignments({partition: [2]})
            found = admin.list_partition_reassignments()
            assert ((2,), (1,)) == (found[partition].adding_replicas, found[partition].removing_replicas)
            cluster.wait(lambda: log_of(cluster, 2, partition))
            if attempt == 1:
                admin.alter_partition_reassignments({partition: None})
                cluster.wait_isr(partition, {1})
                cluster.wait(lambda: not log_of(cluster, 2, partition))
        assert (1,) == cluster.wait_isr(partition, {1}).isr
        admin.incremental_alter_configs(
            {each: [AlterConfigOp.delete(rate) for rate in rates] for each in both}
        )
        cluster.wait_isr(partition, {2})
        cluster.wait_settled()
        assert {} == admin.list_partition_reassignments()
    cluster.wait(lambda: not log_of(cluster, 1, partition))
    assert 200 == count_records(cluster, partition)


def test_reassignments_move_order_and_number_of_replicas(cluster: MixedCluster) -> None:
    partitions = create(cluster, "reorders", [1, 2], [2, 1], [1, 2])
    for partition in partitions:
        produce(cluster, partition)
    wanted = dict(zip(partitions, ([2, 1], [2, 3], [3, 2, 1]), strict=True))
    with cluster.admin() as admin:
        admin.alter_partition_reassignments(wanted)
        cluster.wait_settled()
        found = cluster.assignments()["reorders"].partitions
        assert list(wanted.values()) == [list(found[each].replicas) for each in range(3)]
        refused = admin.alter_partition_reassignments({partitions[0]: [1, 9]}, outcomes=True)
        assert ErrorCode.INVALID_REPLICA_ASSIGNMENT == refused.errors[partitions[0]].code
    cluster.elect_preferred()
    for partition, replicas in wanted.items():
        cluster.wait_leader(partition, replicas[0])
        assert 100 == count_records(cluster, partition)


def test_znodes_of_older_tools_are_served(cluster: MixedCluster) -> None:
    (partition,) = create(cluster, "older", [1, 2])
    produce(cluster, partition)
    moved = {"version": 1, "partitions": [{"topic": "older", "partition": 0, "replicas": [2, 1]}]}
    cluster.zookeeper.create(paths.REASSIGN_PARTITIONS, json.dumps(moved).encode())
    cluster.wait(lambda: cluster.read(paths.REASSIGN_PARTITIONS) is None)
    assert (2, 1) == cluster.assignments()["older"].partitions[0].replicas
    preferred = {"version": 1, "partitions": [{"topic": "older", "partition": 0}]}
    cluster.zookeeper.create(paths.PREFERRED_REPLICA_ELECTION, json.dumps(preferred).encode())
    cluster.wait(lambda: cluster.read(paths.PREFERRED_REPLICA_ELECTION) is None)
    cluster.wait_leader(partition, 2)


def test_leaders_leave_a_broker_that_shuts_down(cluster: MixedCluster) -> None:
    partitions = create(cluster, "led", [1, 2], [2, 1])
    for broker_id, other in ((1, 2), (2, 1)):
        cluster.elect_preferred()
        cluster.wait_leader(partitions[broker_id - 1], broker_id)
        cluster.brokers[broker_id].stop()
        for partition in partitions:
            state = cluster.state(partition)
            assert state is not None
            assert (other, (other,)) == (state.leader, state.isr)
        if KAFKA in type(cluster.brokers[broker_id]).__module__:
            log = (cluster.directory / f"broker-{broker_id}" / "broker.log").read_text()
            assert "Controlled shutdown request returned successfully" in log
            assert "controlled shutdown did not succeed" not in log
        cluster.brokers[broker_id].start()
        cluster.wait_settled()
        for partition in partitions:
            produce(cluster, partition, count=10)


@pytest.mark.parametrize("way", ["request", "setting"])
def test_a_replica_out_of_sync_leads_where_that_is_allowed(cluster: MixedCluster, way: str) -> None:
    (partition,) = create(cluster, f"unclean-{way}", [1, 2])
    cluster.elect_preferred()
    cluster.wait_leader(partition, 1)
    cluster.kill(2)
    cluster.wait_isr(partition, {1})
    produce(cluster, partition, count=10)
    cluster.kill(1)
    cluster.brokers[2].start()
    cluster.wait_leader(partition, -1)
    with cluster.admin() as admin:
        if way == "request":
            admin.elect_leaders(ElectionType.UNCLEAN, [partition])
        else:
            topic = ConfigResource(ConfigResourceType.TOPIC, partition.topic)
            allowed = AlterConfigOp.set("unclean.leader.election.enable", "true")
            admin.incremental_alter_configs({topic: [allowed]})
    cluster.wait_leader(partition, 2)
    produce(cluster, partition, count=10)
    cluster.brokers[1].start()
    cluster.wait_isr(partition, {1, 2})
    state = cluster.state(partition)
    assert state is not None
    assert not state.leader_recovering


def test_replicas_move_between_log_directories(cluster: MixedCluster) -> None:
    (partition,) = create(cluster, "dirs", [1, 2])
    produce(cluster, partition, count=1000)
    for broker_id in OTHER_IDS:
        (log,) = log_of(cluster, broker_id, partition)
        (target,) = [each for each in cluster.log_dirs(broker_id) if each != log.parent]
        with cluster.admin() as admin:
            replica = TopicPartitionReplica("dirs", 0, broker_id)
            admin.alter_replica_log_dirs({replica: str(target)})
        moved = target / log.name
        cluster.wait(lambda: [moved] == log_of(cluster, broker_id, partition))  # noqa: B023
    produce(cluster, partition, count=10)
    assert 1010 == count_records(cluster, partition)


@pytest.mark.parametrize("broker_id", OTHER_IDS)
def test_leaders_leave_a_directory_that_fails(cluster: MixedCluster, broker_id: int) -> None:
    other = 3 - broker_id
    partitions = create(cluster, f"failing-{broker_id}", *[[broker_id, other]] * 4)
    by_dir: dict[Path, list[TopicPartition]] = {}
    for partition in partitions:
        produce(cluster, partition, count=10)
        (log,) = log_of(cluster, broker_id, partition)
        by_dir.setdefault(log.parent, []).append(partition)
    failing, kept = cluster.log_dirs(broker_id)
    away = failing.with_name("away")
    failing.rename(away)
    for partition in by_dir[failing]:
        cluster.wait_leader(partition, other)
        cluster.wait_isr(partition, {other})
        produce(cluster, partition, count=10)
    for partition in by_dir[kept]:
        cluster.wait_isr(partition, {1, 2})
    cluster.wait(lambda: not cluster.children(paths.LOG_DIR_EVENTS))
    cluster.kill(broker_id)
    shutil.move(away, failing)
    cluster.brokers[broker_id].start()
    cluster.wait_settled()
    for partition in partitions:
        produce(cluster, partition, count=10)


def test_the_next_controller_completes_what_was_begun(cluster: MixedCluster) -> None:
    """A reassignment and a deletion wait for a dead broker while the controller moves."""
    (moving,) = create(cluster, "begun", [1])
    (deleted,) = create(cluster, "condemned", [1, 2])
    produce(cluster, moving)
    cluster.brokers[2].stop()
    moved = {"version": 1, "partitions": [{"topic": "begun", "partition": 0, "replicas": [2]}]}
    cluster.zookeeper.create(paths.REASSIGN_PARTITIONS, json.dumps(moved).encode())
    cluster.wait(lambda: cluster.assignments()["begun"].partitions[0].is_being_reassigned)
    with cluster.admin() as admin:
        admin.delete_topics(["condemned"])
    cluster.wait(lambda: not log_of(cluster, 1, deleted))
    cluster.move_controller(1)
    cluster.brokers[2].start()
    cluster.wait(lambda: "condemned" not in cluster.children(paths.TOPICS))
    cluster.wait_isr(moving, {2})
    cluster.wait_settled()
    cluster.wait(lambda: cluster.read(paths.REASSIGN_PARTITIONS) is None)
    assert (2,) == cluster.assignments()["begun"].partitions[0].replicas
    assert 100 == count_records(cluster, moving)
    cluster.wait(lambda: not log_of(cluster, 1, moving))
    cluster.move_controller(CONTROLLER_ID)


def test_refused_requests_name_the_topic(cluster: MixedCluster) -> None:
    with cluster.admin() as admin:
        for call in (
            lambda: admin.delete_topics(["ghost"]),
            lambda: admin.create_partitions({"ghost": 3}),
            lambda: admin.alter_partition_reassignments({TopicPartition("ghost", 0): [1]}),
            lambda: admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("ghost", 0)]),
        ):
            with pytest.raises(ClientError) as raised:
                call()
            assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == raised.value.code
