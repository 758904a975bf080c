"""Our admin client's methods on groups and their offsets, with librdkafka's consumers."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest

from kalda import Admin, GroupState, GroupType, MemberToRemove, NewTopic, Outcomes, TopicPartition
from kalda.clients.values import OffsetAndMetadata
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode

TopicName = Callable[[str], str]


def group_name(stem: str) -> str:
    return f"{stem}-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def topic(admin: Admin, servers: str, topic_name: TopicName) -> str:
    """A topic with 2 partitions of 5 records each."""
    name = topic_name("consumed")
    admin.create_topics([NewTopic(name, partitions=2, replication_factor=1)])
    with confluent_kafka.Producer({"bootstrap.servers": servers}) as producer:
        for n in range(10):
            producer.produce(name, b"value", partition=n % 2)
        assert 0 == producer.flush(20)
    return name


@contextmanager
def consuming(servers: str, group_id: str, topic: str, **options: str) -> Iterator[Any]:
    """Run a member that has consumed and committed all records of the topic."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )
    try:
        consumer.subscribe([topic])
        records = 0
        while records < 10:
            message = consumer.poll(20)
            assert message is not None, f"{records} records"
            assert message.error() is None, message.error()
            records += 1
        consumer.commit(asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def test_groups_of_both_protocols_are_listed_and_described(admin: Admin, servers: str, topic: str) -> None:
    (versions, *_) = admin.describe_api_versions().values()
    if not versions.api_versions[ApiKey.CONSUMER_GROUP_HEARTBEAT].includes(1):
        pytest.skip("librdkafka's consumer protocol needs a newer broker")
    classic, modern, missing = group_name("classic"), group_name("modern"), group_name("missing")
    both = frozenset({TopicPartition(topic, 0), TopicPartition(topic, 1)})
    with (
        consuming(servers, classic, topic, group_instance_id="static", client_id="one"),
        consuming(servers, modern, topic, group_protocol="consumer"),
    ):
        listed = {each.group_id: each for each in admin.list_consumer_groups().all()}
        assert (GroupType.CLASSIC, GroupState.STABLE) == (listed[classic].type, listed[classic].state)
        assert GroupType.CONSUMER is listed[modern].type
        assert modern not in [each.group_id for each in admin.list_groups(types=[GroupType.CLASSIC]).all()]
        assert classic not in [each.group_id for each in admin.list_groups(states=[GroupState.EMPTY]).all()]
        assert [] == admin.list_groups(protocol_types=["connect"]).all()

        described = admin.describe_consumer_groups(
            [classic, modern, missing], include_authorized_operations=True, outcomes=True
        )
        (member,) = described[classic].members
        assert ("static", "one", both) == (member.group_instance_id, member.client_id, member.assignment)
        assert (topic,) == member.subscribed_topics
        assert described[classic].authorized_operations
        (member,) = described[modern].members
        assert both == member.assignment == member.target_assignment
        assert described[modern].group_epoch == member.member_epoch
        assert ErrorCode.GROUP_ID_NOT_FOUND == described.errors[missing].code
        only_classic = admin.describe_classic_groups([classic, modern], outcomes=True)
        assert "consumer" == only_classic[classic].protocol_type
        assert ErrorCode.GROUP_ID_NOT_FOUND == only_classic.errors[modern].code

        brokers = {info.leader_id for info in admin.describe_topics([topic])[topic].partitions}
        assert isinstance(described[classic].coordinator_id, int)
        assert brokers


def test_offsets_are_listed_altered_and_deleted(admin: Admin, servers: str, topic: str) -> None:
    read, idle, missing = group_name("read"), group_name("idle"), group_name("missing")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with consuming(servers, read, topic):
        listed = admin.list_consumer_group_offsets([read, missing])
        assert {first: 5, second: 5} == {tp: each and each.offset for tp, each in listed[read].items()}
        assert {} == dict(listed[missing])

        altered = admin.alter_consumer_group_offsets(
            {read: {first: 1}, idle: {first: OffsetAndMetadata(3, "by hand"), second: 4}}, outcomes=True
        )
        assert ErrorCode.UNKNOWN_MEMBER_ID == altered[read].errors[first].code
        assert Outcomes({first: None, second: None}) == altered[idle]
        subscribed = admin.delete_consumer_group_offsets({read: [first]}, outcomes=True)
        assert ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC == subscribed[read].errors[first].code

    admin.alter_consumer_group_offsets({read: {first: 1}})
    deleted = admin.delete_consumer_group_offsets({idle: [second], missing: [first]}, outcomes=True)
    deleted[idle].raise_for_errors()
    assert ErrorCode.GROUP_ID_NOT_FOUND == deleted.errors[missing].code
    listed = admin.list_consumer_group_offsets({read: None, idle: [first, second]}, require_stable=True)
    assert {first: 1, second: 5} == {tp: each and each.offset for tp, each in listed[read].items()}
    assert {first: OffsetAndMetadata(3, "by hand"), second: None} == dict(listed[idle])


def test_only_groups_without_members_are_deleted(admin: Admin, servers: str, topic: str) -> None:
    running, done, missing = group_name("running"), group_name("done"), group_name("missing")
    admin.alter_consumer_group_offsets({done: {TopicPartition(topic, 0): 3}})
    with consuming(servers, running, topic):
        deleted = admin.delete_consumer_groups([running, done, missing], outcomes=True)

        assert [done] == list(deleted.results)
        codes = {group_id: error.code for group_id, error in deleted.errors.items()}
        assert {running: ErrorCode.NON_EMPTY_GROUP, missing: ErrorCode.GROUP_ID_NOT_FOUND} == codes


def test_static_members_are_removed(admin: Admin, servers: str, topic: str) -> None:
    """A static member that is gone for good blocks its partitions until its session ends."""
    group_id, other = group_name("static"), group_name("other")
    with consuming(servers, group_id, topic, group_instance_id="gone"):
        pass
    gone, unknown = MemberToRemove(group_instance_id="gone"), MemberToRemove(group_instance_id="unknown")

    outcomes = admin.remove_members_from_consumer_group(
        {group_id: [gone, unknown], other: None}, outcomes=True
    )

    assert [gone] == list(outcomes[group_id].results)
    assert ErrorCode.UNKNOWN_MEMBER_ID == outcomes[group_id].errors[unknown].code
    assert ErrorCode.GROUP_ID_NOT_FOUND == outcomes.errors[other].code
    assert () == admin.describe_consumer_groups([group_id])[group_id].members


def test_all_members_are_removed(admin: Admin, servers: str, topic: str) -> None:
    group_id = group_name("crowd")
    with consuming(servers, group_id, topic, group_instance_id="one"):
        outcomes = admin.remove_members_from_consumer_group({group_id: None}, reason="maintenance")

        assert 1 == len(outcomes[group_id].results)
        assert Outcomes({}) == admin.remove_members_from_consumer_group({group_id: None})[group_id]
