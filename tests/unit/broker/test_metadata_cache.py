import uuid
from collections.abc import Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kalda.broker.groups.assembly import DeletedTopics
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.cluster.schema import LEADER_DURING_DELETE
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import ZERO_UUID, BrokerEndpoint, TopicPartition
from kalda.controller.effects import PartitionLeadership, UpdateMetadata
from tests.unit.broker.admin_fakes import broker

ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)


def partition(topic: str, number: int, topic_id: uuid.UUID = ONE, leader: int = 0) -> PartitionLeadership:
    return PartitionLeadership(
        topic=topic,
        topic_id=topic_id,
        partition=number,
        controller_epoch=1,
        leader=leader,
        leader_epoch=0,
        isr=(0,),
        partition_epoch=0,
        replicas=(0, 1),
    )


def update(*partitions: PartitionLeadership, epoch: int = 1, controller: int = 0) -> UpdateMetadata:
    return UpdateMetadata(controller, epoch, list(partitions), [broker(1, rack="r"), broker(0)])


def test_partitions_are_kept_in_order_and_found_by_name_and_id() -> None:
    cache = MetadataCache()
    cache.apply(update(partition("b", 1), partition("a", 0, TWO), partition("b", 0)))

    topic = cache.topic("b")
    assert topic is not None
    assert [0, 1] == list(topic.partitions)
    assert ("a", "b") == cache.topic_names
    assert "b" == cache.topic_name(ONE) == cache.topic_name_by_bytes(ONE.bytes)
    assert TWO == cache.topic_id("a")
    assert 2 == cache.partition_count("b")
    found = cache.partition(TopicPartition("b", 1))
    assert found is not None
    assert 1 == found.partition
    assert (None, None, ZERO_UUID, 0) == (
        cache.topic("c"),
        cache.partition(TopicPartition("b", 2)),
        cache.topic_id("c"),
        cache.partition_count("c"),
    )


def test_an_update_leaves_what_it_does_not_name() -> None:
    cache = MetadataCache()
    cache.apply(update(partition("a", 0), partition("a", 1)))
    before = cache.topic("a")

    cache.apply(update(partition("a", 1, leader=1)))

    after = cache.topic("a")
    assert before is not None
    assert after is not None
    assert [0, 1] == [p.leader for p in after.partitions.values()]
    # Whoever held the topic still sees it as it was.
    assert [0, 0] == [p.leader for p in before.partitions.values()]


def test_deletion_takes_a_topic_away() -> None:
    cache = MetadataCache()
    cache.apply(update(partition("a", 0), partition("a", 1)))

    cache.apply(update(replace(partition("a", 0), leader=LEADER_DURING_DELETE)))
    assert 1 == cache.partition_count("a")
    cache.apply(update(replace(partition("a", 1), leader=LEADER_DURING_DELETE)))

    assert "a" not in cache
    assert () == cache.topic_names
    assert cache.topic_name(ONE) is None


def test_a_topic_created_again_replaces_the_old_one() -> None:
    """A late deletion of the old one does not touch it."""
    cache = MetadataCache()
    cache.apply(update(partition("a", 0), partition("a", 1)))

    cache.apply(update(partition("a", 0, TWO)))
    cache.apply(update(replace(partition("a", 0, ONE), leader=LEADER_DURING_DELETE)))

    assert 1 == cache.partition_count("a")
    assert (TWO, None, "a") == (cache.topic_id("a"), cache.topic_name(ONE), cache.topic_name(TWO))


def test_an_update_without_an_id_is_of_the_same_topic() -> None:
    """A controller with an inter-broker protocol below 2.8 sends no ids, others of the cluster do.

    Clients get no id then: the leader, which may have started meanwhile, would not know it.
    """
    cache = MetadataCache()
    cache.apply(update(partition("a", 0, ZERO_UUID), partition("a", 1, ZERO_UUID)))
    cache.apply(update(partition("a", 0)))
    assert (2, ONE, "a") == (cache.partition_count("a"), cache.topic_id("a"), cache.topic_name(ONE))
    cache.apply(update(partition("a", 1, ZERO_UUID)))
    assert (2, ZERO_UUID, None) == (cache.partition_count("a"), cache.topic_id("a"), cache.topic_name(ONE))


def test_offsets_of_a_topic_that_gets_an_id_are_kept() -> None:
    """Committed offsets go with a topic that is deleted; one that gets its first id is not."""
    cache = MetadataCache()
    deleted: set[object] = set()
    coordinator = cast("Any", SimpleNamespace(on_topics_deleted=deleted.update))
    cache.on_change(DeletedTopics(cache, coordinator).on_change)
    for topic_id in (ZERO_UUID, ONE, ZERO_UUID, ONE):
        cache.apply(update(partition("a", 0, topic_id)))
    assert set() == deleted
    cache.apply(update(partition("a", 0, TWO)))
    assert {"a", ONE} == deleted, "groups know topics by name or by id"


def test_a_replaced_controller_is_not_believed() -> None:
    cache = MetadataCache()
    cache.apply(update(epoch=5))

    with pytest.raises(ApiError) as caught:
        cache.apply(update(partition("a", 0), epoch=4, controller=1))

    assert ErrorCode.STALE_CONTROLLER_EPOCH is caught.value.code
    assert "a" not in cache
    assert 0 == cache.controller_id


def test_listeners_hear_of_the_topics_that_changed() -> None:
    cache = MetadataCache()
    heard: list[Collection[str]] = []
    cache.on_change(heard.append)

    cache.apply(update(partition("b", 0, TWO), partition("a", 0)))
    cache.apply(update())

    assert [("b", "a"), ()] == heard, "in the order of the update, which no hash decides"


def test_brokers_are_told_by_listener_in_order() -> None:
    cache = MetadataCache()
    generation = cache.brokers_generation
    cache.apply(update())

    assert [
        BrokerEndpoint(0, "host0", 9092),
        BrokerEndpoint(1, "host1", 9092, "r"),
    ] == cache.endpoints("PLAINTEXT")
    assert [] == cache.endpoints("OTHER")
    assert cache.endpoint(7, "PLAINTEXT") is None
    assert generation + 1 == cache.brokers_generation
    cache.apply(update(partition("a", 0)))
    assert generation + 1 == cache.brokers_generation


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"leader": 7}, "leader 7 is not one of the replicas"),
        ({"leader_epoch": -1}, "leader epoch -1 after 0"),
    ],
)
def test_metadata_that_no_controller_sends_is_a_bug(change: dict[str, Any], message: str) -> None:
    """A leader without a replica, or an epoch that decreases, would mislead clients."""
    cache = MetadataCache()
    cache.apply(update(partition("a", 0)))
    with pytest.raises(AssertionError, match=message):
        cache.apply(update(replace(partition("a", 0), **change)))
