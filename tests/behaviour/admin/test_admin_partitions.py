"""Our admin client's methods on partitions, the cluster and log directories."""

import time
from collections.abc import Callable

import confluent_kafka
import pytest

from kalda import (
    AclOperation,
    Admin,
    ClientError,
    ElectionType,
    FeatureUpdate,
    NewTopic,
    OffsetSpec,
    TopicPartition,
    TopicPartitionReplica,
    UpgradeType,
)
from kalda.clients.admin.configs import ConfigResource, ConfigResourceType
from kalda.clients.errors import ClientConfigError
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from tests.behaviour.admin.conftest import CreateTopics
from tests.behaviour.conftest import wait_until

TopicName = Callable[[str], str]


def produce(servers: str, topic: str, timestamps_ms: range, partition: int = 0) -> None:
    with confluent_kafka.Producer({"bootstrap.servers": servers}) as producer:
        for timestamp_ms in timestamps_ms:
            producer.produce(topic, b"value", partition=partition, timestamp=timestamp_ms)
        assert 0 == producer.flush(20)


def needs(admin: Admin, key: ApiKey, version: int) -> None:
    (versions, *_) = admin.describe_api_versions().values()
    if not versions.api_versions[key].includes(version):
        pytest.skip(f"version {version} of {key.name} needs a newer broker")


def test_offsets_are_looked_up_by_time_and_at_the_ends(
    admin: Admin, servers: str, create: CreateTopics, topic_name: TopicName
) -> None:
    name = topic_name("offsets")
    create(NewTopic(name, partitions=2))
    now = time.time_ns() // 1_000_000 - 100
    produce(servers, name, range(now, now + 10))
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)

    latest = admin.list_offsets({first: OffsetSpec.latest(), second: OffsetSpec.latest()}, outcomes=True)
    assert {first: 10, second: 0} == {partition: info.offset for partition, info in latest.items()}
    for spec, expected in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.earliest_local(), 0),
        (OffsetSpec.for_timestamp(now + 4), 4),
        (OffsetSpec.max_timestamp(), 9),
    ):
        assert expected == admin.list_offsets({first: spec})[first].offset, spec
    assert now + 4 == admin.list_offsets({first: OffsetSpec.for_timestamp(now + 4)})[first].timestamp_ms
    late = admin.list_offsets({first: OffsetSpec.for_timestamp(now + 1000)})[first]
    assert (-1, False) == (late.offset, late.is_found)
    with pytest.raises(ClientConfigError, match="isolation_level='committed' is not allowed"):
        admin.list_offsets({first: OffsetSpec.latest()}, isolation_level="committed")


def test_the_open_transaction_ends_what_is_committed(
    admin: Admin, servers: str, create: CreateTopics, topic_name: TopicName
) -> None:
    name = topic_name("stable")
    create(NewTopic(name))
    partition = TopicPartition(name, 0)
    produce(servers, name, range(1, 4))
    with confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": name}) as producer:
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(name, b"open", partition=0)
        assert 0 == producer.flush(20)

        specs = {partition: OffsetSpec.latest()}
        assert 4 == admin.list_offsets(specs)[partition].offset
        assert 3 == admin.list_offsets(specs, isolation_level="read_committed")[partition].offset
        producer.abort_transaction(20)


def test_records_are_deleted_up_to_an_offset(
    admin: Admin, servers: str, create: CreateTopics, topic_name: TopicName
) -> None:
    name = topic_name("deleted")
    create(NewTopic(name, partitions=2))
    some, everything, missing = TopicPartition(name, 0), TopicPartition(name, 1), TopicPartition(name, 7)
    for partition in (some, everything):
        produce(servers, name, range(1, 11), partition.partition)

    outcomes = admin.delete_records({some: 4, everything: -1, missing: 1}, outcomes=True)

    assert {some: 4, everything: 10} == {tp: each.low_watermark for tp, each in outcomes.results.items()}
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == outcomes.errors[missing].code
    assert 4 == admin.list_offsets({some: OffsetSpec.earliest()})[some].offset
    refused = admin.delete_records({some: 99}, outcomes=True)
    assert ErrorCode.OFFSET_OUT_OF_RANGE == refused.errors[some].code


def test_a_compacted_topic_alone_refuses_to_delete_records(
    admin: Admin, servers: str, create: CreateTopics, topic_name: TopicName
) -> None:
    name = topic_name("compacted")
    create(NewTopic(name, config={"cleanup.policy": "compact"}))
    partition = TopicPartition(name, 0)
    refused = admin.delete_records({partition: 0}, outcomes=True)
    assert ErrorCode.POLICY_VIOLATION == refused.errors[partition].code


def test_leaders_that_are_the_right_ones_are_not_elected(
    admin: Admin, create: CreateTopics, topic_name: TopicName
) -> None:
    name = topic_name("led")
    create(NewTopic(name))
    known, missing = TopicPartition(name, 0), TopicPartition(topic_name("missing"), 0)

    outcomes = admin.elect_leaders(ElectionType.PREFERRED, [known, missing], outcomes=True)

    assert ErrorCode.ELECTION_NOT_NEEDED == outcomes.errors[known].code
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == outcomes.errors[missing].code
    assert known not in admin.elect_leaders(ElectionType.PREFERRED)
    assert (
        ErrorCode.ELECTION_NOT_NEEDED
        == admin.elect_leaders(ElectionType.UNCLEAN, [known], outcomes=True).errors[known].code
    )


def replicas_of(admin: Admin, partition: TopicPartition) -> tuple[int, ...]:
    return admin.describe_topics([partition.topic])[partition.topic].partitions[partition.partition].replicas


def test_partitions_are_moved(admin: Admin, create: CreateTopics, topic_name: TopicName) -> None:
    brokers = [node.id for node in admin.describe_cluster().nodes]
    name = topic_name("moved")
    create(NewTopic(name, replica_assignments={0: [brokers[0]], 1: [brokers[0]]}))
    moved, refused = TopicPartition(name, 0), TopicPartition(name, 1)

    outcomes = admin.alter_partition_reassignments({moved: [brokers[-1]], refused: [4711]}, outcomes=True)
    cancelled = admin.alter_partition_reassignments({refused: None}, outcomes=True)

    assert [moved] == list(outcomes.results)
    assert ErrorCode.INVALID_REPLICA_ASSIGNMENT == outcomes.errors[refused].code
    assert ErrorCode.NO_REASSIGNMENT_IN_PROGRESS == cancelled.errors[refused].code
    wait_until("the move is done", lambda: not admin.list_partition_reassignments([moved]))
    wait_until(
        "the replica has moved",
        lambda: (brokers[-1],) == admin.describe_topics([name])[name].partitions[0].replicas,
    )


def test_replication_factor_is_kept_on_request(
    admin: Admin, create: CreateTopics, topic_name: TopicName
) -> None:
    needs(admin, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1)
    brokers = [node.id for node in admin.describe_cluster().nodes]
    name = topic_name("kept")
    create(NewTopic(name, replica_assignments={0: [brokers[0]]}))
    partition = TopicPartition(name, 0)

    kept = admin.alter_partition_reassignments(
        {partition: [brokers[0]]}, allow_replication_factor_change=False, outcomes=True
    )

    assert [partition] == list(kept.results)


def test_resources_with_settings_are_listed(
    admin: Admin, create: CreateTopics, topic_name: TopicName
) -> None:
    needs(admin, ApiKey.LIST_CONFIG_RESOURCES, 1)
    name = topic_name("listed")
    create(NewTopic(name, partitions=1))
    brokers = [ConfigResource.broker(node.id) for node in admin.describe_cluster().nodes]

    assert brokers == admin.list_config_resources([ConfigResourceType.BROKER])
    assert {ConfigResource.topic(name), *brokers} <= set(admin.list_config_resources())
    assert [] == admin.list_config_resources([ConfigResourceType.CLIENT_METRICS])
    with pytest.raises(ClientError) as refused:
        admin.list_config_resources([ConfigResourceType.UNKNOWN])
    assert ErrorCode.UNSUPPORTED_VERSION == refused.value.code


def test_the_cluster_is_described(admin: Admin, servers: str) -> None:
    cluster = admin.describe_cluster(include_authorized_operations=True)

    assert cluster.cluster_id
    assert cluster.controller in cluster.nodes
    assert sorted(cluster.nodes, key=lambda node: node.id) == list(cluster.nodes)
    assert {f"{node.host}:{node.port}" for node in cluster.nodes} >= {servers.split(",")[0]}
    assert cluster.authorized_operations is not None
    assert AclOperation.ALTER in cluster.authorized_operations


def test_versions_and_features_are_described(admin: Admin) -> None:
    brokers = [node.id for node in admin.describe_cluster().nodes]

    versions = admin.describe_api_versions()
    features = admin.describe_features()

    assert brokers == list(versions)
    assert versions[brokers[0]].api_versions[ApiKey.METADATA].includes(12)
    assert features.finalized_features == versions[brokers[0]].features.finalized_features
    assert features.finalized_features.keys() <= features.supported_features.keys()
    assert features.finalized_features_epoch is not None


def test_features_that_nobody_knows_are_refused(admin: Admin) -> None:
    update = FeatureUpdate(3, UpgradeType.UPGRADE)

    outcomes = admin.update_features({"no.such.feature": update}, validate_only=True, outcomes=True)

    with pytest.raises(ClientError, match=r"no\.such\.feature at broker .*: INVALID_UPDATE_VERSION"):
        outcomes.raise_for_errors()


def test_log_directories_are_described(
    admin: Admin, servers: str, create: CreateTopics, topic_name: TopicName
) -> None:
    name = topic_name("logs")
    create(NewTopic(name, partitions=2, replication_factor=1))
    produce(servers, name, range(1, 11))
    partitions = admin.describe_topics([name])[name].partitions
    replicas = {TopicPartition(name, each.partition): each.replicas[0] for each in partitions}
    brokers = [node.id for node in admin.describe_cluster().nodes]

    everything = admin.describe_log_dirs()
    narrowed = admin.describe_log_dirs(partitions=[TopicPartition(name, 0)])

    assert brokers == list(everything)
    found = {
        partition: (broker_id, path, info.size)
        for broker_id, directories in everything.items()
        for path, directory in directories.items()
        for partition, info in directory.replica_infos.items()
        if partition.topic == name
    }
    assert replicas == {partition: broker_id for partition, (broker_id, _, _) in found.items()}
    assert found[TopicPartition(name, 0)][2] > 0
    assert {TopicPartition(name, 0)} == {
        partition
        for directories in narrowed.values()
        for directory in directories.values()
        for partition in directory.replica_infos
    }
    assert all(
        directory.error is None and directory.total_bytes and directory.usable_bytes
        for directories in everything.values()
        for directory in directories.values()
    )
    here = TopicPartitionReplica(name, 0, replicas[TopicPartition(name, 0)])
    nowhere = TopicPartitionReplica(name, 77, brokers[0])
    located = admin.describe_replica_log_dirs([here, nowhere])
    assert found[TopicPartition(name, 0)][1] == located[here].current_replica_log_dir
    assert located[nowhere].current_replica_log_dir is None


def test_replicas_do_not_move_to_directories_that_do_not_exist(
    admin: Admin, broker_id: int, topic_name: TopicName
) -> None:
    replica = TopicPartitionReplica(topic_name("moved"), 0, broker_id)

    error = admin.alter_replica_log_dirs({replica: "/no/such/directory"}, outcomes=True).errors[replica]

    assert ErrorCode.LOG_DIR_NOT_FOUND == error.code


def test_a_replica_that_is_not_known_is_refused(admin: Admin, broker_id: int, topic_name: TopicName) -> None:
    replica = TopicPartitionReplica(topic_name("unknown"), 0, broker_id)
    directory = next(iter(admin.describe_log_dirs([broker_id])[broker_id]))

    error = admin.alter_replica_log_dirs({replica: directory}, outcomes=True).errors[replica]

    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == error.code
