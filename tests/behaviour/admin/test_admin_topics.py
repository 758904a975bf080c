"""Our admin client's methods on topics and settings."""

import asyncio
import time
from collections.abc import Callable
from uuid import UUID

import confluent_kafka.admin
import pytest

from kalda import (
    AclOperation,
    Admin,
    AlterConfigOp,
    AsyncAdmin,
    ClientError,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
)
from kalda.common.errors import ErrorCode
from tests.behaviour.admin.conftest import CreateTopics
from tests.behaviour.conftest import wait_until

TopicName = Callable[[str], str]


def test_many_topics_are_created_and_each_has_its_own_outcome(
    admin: Admin, broker_id: int, topic_name: TopicName
) -> None:
    plain, assigned, taken = topic_name("plain"), topic_name("assigned"), topic_name("taken")
    assert (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        == admin.describe_topics([taken], outcomes=True).errors[taken].code
    )
    admin.create_topics([NewTopic(taken)])

    created = admin.create_topics(
        [
            NewTopic(plain, partitions=4, replication_factor=1, config={"retention.ms": 60_000}),
            NewTopic(assigned, replica_assignments={0: [broker_id], 1: [broker_id]}),
            NewTopic(taken),
            NewTopic("no/name"),
            NewTopic(topic_name("lonely"), replication_factor=99),
        ],
        outcomes=True,
    )

    assert [plain, assigned] == list(created.results)
    assert (4, 1) == (created[plain].partitions, created[plain].replication_factor)
    assert 2 == created[assigned].partitions
    config = created[plain].config
    assert config is not None
    assert "60000" == config["retention.ms"].value
    assert [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REPLICATION_FACTOR,
    ] == [error.code for error in created.errors.values()]
    with pytest.raises(ClientError, match="TOPIC_ALREADY_EXISTS"):
        created.raise_for_errors()


def test_validation_creates_nothing(admin: Admin, topic_name: TopicName) -> None:
    name = topic_name("dry-run")

    outcomes = admin.create_topics([NewTopic(name, partitions=2)], validate_only=True)

    assert 2 == outcomes[name].partitions
    assert name not in admin.list_topics()


def test_topics_are_described_by_name_and_by_id(
    admin: Admin, create: CreateTopics, topic_name: TopicName
) -> None:
    name = topic_name("described")
    create(NewTopic(name, partitions=3, replication_factor=1))

    by_name = admin.describe_topics([name], include_authorized_operations=True)[name]
    assert by_name.topic_id is not None
    by_id = admin.describe_topics([by_name.topic_id, UUID(int=7)], outcomes=True)

    assert [0, 1, 2] == [each.partition for each in by_name.partitions]
    assert all(each.has_leader and each.isr == each.replicas for each in by_name.partitions)
    assert by_name.authorized_operations is not None
    assert AclOperation.DELETE in by_name.authorized_operations
    assert by_name.name == by_id[by_name.topic_id].name
    assert [each.replicas for each in by_name.partitions] == [
        each.replicas for each in by_id[by_name.topic_id].partitions
    ]
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == by_id.errors[UUID(int=7)].code
    assert by_name.topic_id == admin.list_topics()[name].topic_id


@pytest.mark.parametrize("page", [1, 2, 3, 1000])
def test_pages_of_any_size_give_the_same_description(
    admin: Admin, create: CreateTopics, topic_name: TopicName, page: int
) -> None:
    names = [topic_name(stem) for stem in ("c", "a", "b")]
    partitions = dict(zip(names, (1, 5, 2), strict=True))
    create(*(NewTopic(name, partitions=count) for name, count in partitions.items()))

    described = admin.describe_topics(
        [*names, topic_name("missing")], partitions_per_page=page, outcomes=True
    )

    assert partitions == {name: len(each.partitions) for name, each in described.results.items()}
    assert all(
        [*range(partitions[str(name)])] == [each.partition for each in topic.partitions]
        for name, topic in described.results.items()
    )
    assert 1 == len(described.errors)


def test_topics_are_deleted_by_name_and_by_id(admin: Admin, topic_name: TopicName) -> None:
    by_name, by_id, missing = topic_name("name"), topic_name("id"), topic_name("missing")
    created = admin.create_topics([NewTopic(by_name), NewTopic(by_id)])
    topic_id = created[by_id].topic_id
    assert topic_id is not None

    deleted = admin.delete_topics([by_name, topic_id, missing, UUID(int=9)], outcomes=True)

    assert [by_name, topic_id] == list(deleted.results)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == deleted.errors[missing].code
    assert UUID(int=9) in deleted.errors
    wait_until("the topics are gone", lambda: not {by_name, by_id} & admin.list_topics().keys())


def test_partitions_are_added(
    admin: Admin, broker_id: int, create: CreateTopics, topic_name: TopicName
) -> None:
    grown, placed = topic_name("grown"), topic_name("placed")
    create(NewTopic(grown), NewTopic(placed, replica_assignments={0: [broker_id]}))

    outcomes = admin.create_partitions(
        {grown: 3, placed: NewPartitions(2, [[broker_id]]), topic_name("missing"): 2}, outcomes=True
    )
    refused = admin.create_partitions({grown: 3}, outcomes=True)

    assert [grown, placed] == list(outcomes.results)
    assert 1 == len(outcomes.errors)
    assert ErrorCode.INVALID_PARTITIONS == refused.errors[grown].code
    wait_until("the partition is there", lambda: 2 == len(admin.describe_topics([placed])[placed].partitions))
    described = admin.describe_topics([grown, placed])
    assert [3, 2] == [len(described[name].partitions) for name in (grown, placed)]


def test_settings_are_changed_one_by_one(
    admin: Admin, broker_id: int, create: CreateTopics, topic_name: TopicName
) -> None:
    name = topic_name("settings")
    topic, broker = ConfigResource.topic(name), ConfigResource.broker(broker_id)
    create(NewTopic(name, config={"cleanup.policy": "delete", "retention.ms": 1}))

    outcomes = admin.incremental_alter_configs(
        {
            topic: [
                AlterConfigOp.append("cleanup.policy", "compact"),
                AlterConfigOp.set("max.message.bytes", 1234),
                AlterConfigOp.delete("retention.ms"),
            ],
            ConfigResource.topic(topic_name("missing")): [AlterConfigOp.set("retention.ms", 1)],
            broker: [AlterConfigOp.set("no.such.setting", "x"), AlterConfigOp.set("node.id", 5)],
        },
        outcomes=True,
    )

    assert [topic] == list(outcomes.results)
    wait_until(
        "the setting has changed",
        lambda: "1234" == admin.describe_configs([topic])[topic]["max.message.bytes"].value,
    )
    described = admin.describe_configs([topic, broker], include_synonyms=True, include_documentation=True)
    values = described[topic]
    own = {entry.name: entry.value for entry in values.values() if not entry.is_default}
    own.pop("min.insync.replicas", None)  # KRaft clusters with eligible leader replicas have their own
    assert {"cleanup.policy": "delete,compact", "max.message.bytes": "1234"} == own
    assert ConfigSource.DYNAMIC_TOPIC_CONFIG is values["cleanup.policy"].source
    assert ConfigSource.DYNAMIC_TOPIC_CONFIG is values["cleanup.policy"].synonyms[0].source
    assert values["cleanup.policy"].documentation
    assert "log.dirs" in described[broker]
    named = admin.describe_configs({topic: ["retention.ms"]})[topic]
    assert ["retention.ms"] == list(named)


def test_a_broker_that_is_not_there_is_named(admin: Admin) -> None:
    resource = ConfigResource.broker(4711)

    outcomes = admin.describe_configs([resource], outcomes=True)

    with pytest.raises(ClientError, match=r"broker 4711 is not in the cluster \(brokers: \d"):
        outcomes[resource]


async def test_one_async_client_serves_many_tasks(async_admin: AsyncAdmin, topic_name: TopicName) -> None:
    names = [topic_name(f"task-{n}") for n in range(5)]
    async with async_admin:
        await asyncio.gather(*(async_admin.create_topics([NewTopic(name)]) for name in names))
        # KRaft's controller answers before the broker that is asked knows the topics.
        deadline = time.monotonic() + 30
        while not set(names) <= (listed := await async_admin.list_topics()).keys():
            assert time.monotonic() < deadline, set(names) - listed.keys()
            await asyncio.sleep(0.05)


def test_librdkafka_sees_what_we_see(
    admin: Admin, servers: str, create: CreateTopics, topic_name: TopicName
) -> None:
    """Another client's view of the same topics guards against errors that ours makes on both ways."""
    name = topic_name("compared")
    create(NewTopic(name, partitions=3, config={"retention.ms": 77}))
    with confluent_kafka.admin.AdminClient({"bootstrap.servers": servers}) as other:
        deadline = time.monotonic() + 60
        # Each broker hears of a topic by itself, and librdkafka asks any of them.
        while name not in (theirs := other.list_topics(timeout=20).topics):
            assert time.monotonic() < deadline, f"no broker lists {name}"
            time.sleep(0.05)
        resource = confluent_kafka.admin.ConfigResource("topic", name)
        (future,) = other.describe_configs([resource]).values()
        their_config = {key: entry.value for key, entry in future.result(20).items()}
        (described,) = other.describe_topics(confluent_kafka.TopicCollection([name])).values()
        their_partitions = [
            (each.id, each.leader.id, [node.id for node in each.replicas], [node.id for node in each.isr])
            for each in described.result(20).partitions
        ]

    ours = admin.describe_topics([name])[name]
    our_config = admin.describe_configs([ConfigResource.topic(name)])[ConfigResource.topic(name)]
    assert set(theirs) == set(admin.list_topics(include_internal=True))
    assert their_config == {key: entry.value for key, entry in our_config.items()}
    assert their_partitions == [
        (each.partition, each.leader_id, list(each.replicas), list(each.isr)) for each in ours.partitions
    ]
