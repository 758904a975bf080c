import threading
from uuid import UUID

import pytest

from kalda.clients.metadata import ClusterMetadata, Metadata
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from tests.unit.clients.metadata_responses import partition, response, topic

TP = TopicPartition("t", 0)
ID, OTHER_ID = UUID(int=1), UUID(int=2)


def asked(metadata: Metadata, now: float = 0.0) -> list[str | None] | None:
    topics = metadata.next_request(now).topics
    return None if topics is None else [each.name for each in topics]


def knowing_t(epoch: int = 5, topic_id: UUID = ID) -> Metadata:
    metadata = Metadata()
    metadata.add_topic("t", 0.0)
    metadata.received(response(topic("t", partition(0, 0, epoch), topic_id=topic_id)))
    return metadata


def leader_of(metadata: Metadata) -> tuple[int, int]:
    found = metadata.snapshot.partition(TP)
    assert found is not None
    return found.leader_id, found.leader_epoch


def test_a_snapshot_answers_for_leaders_ids_and_names() -> None:
    snapshot = knowing_t().snapshot

    assert (1, "c", 0) == (snapshot.version, snapshot.cluster_id, snapshot.controller_id)
    assert BrokerEndpoint(0, "h", 9000) == snapshot.leader(TP)
    assert ID == snapshot.topic_id("t")
    assert {ID: "t"} == snapshot.topic_names
    assert snapshot.partition(TopicPartition("t", 1)) is None
    assert snapshot.leader(TopicPartition("u", 0)) is None
    assert UUID(int=0) == snapshot.topic_id("u")


@pytest.mark.parametrize(("epoch", "leader"), [(4, (0, 5)), (5, (1, 5)), (6, (1, 6))])
def test_a_leader_epoch_never_goes_back(epoch: int, leader: tuple[int, int]) -> None:
    """KIP-320: a broker that lags behind may answer with an older leader."""
    metadata = knowing_t(epoch=5)

    metadata.received(response(topic("t", partition(0, 1, epoch), topic_id=ID)))

    assert leader == leader_of(metadata)


def test_an_error_in_between_does_not_let_the_epoch_go_back() -> None:
    metadata = knowing_t(epoch=5)
    metadata.received(response(topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
    assert metadata.snapshot.partition(TP) is None

    metadata.received(response(topic("t", partition(0, 1, 4), topic_id=ID)))

    assert (0, 5) == leader_of(metadata)


def test_a_topic_that_was_created_again_starts_with_a_low_epoch() -> None:
    metadata = knowing_t(epoch=5)

    metadata.received(response(topic("t", partition(0, 1, 0), topic_id=OTHER_ID)))

    assert (1, 0) == leader_of(metadata)


def test_an_older_broker_without_ids_does_not_pass_for_a_new_topic() -> None:
    """During an upgrade, brokers with and without topic ids answer in turn."""
    metadata = knowing_t(epoch=5)

    metadata.received(response(topic("t", partition(0, 1, 4))))

    assert (0, 5) == leader_of(metadata)


def test_a_partition_without_an_epoch_replaces_the_known_one() -> None:
    """Nothing shows which of the two is newer; keeping the old one could keep a dead leader for ever."""
    metadata = knowing_t(epoch=5)

    metadata.received(response(topic("t", partition(0, 1, -1), topic_id=ID)))

    assert (1, -1) == leader_of(metadata)


def test_epochs_of_brokers_before_2_4_are_not_used() -> None:
    metadata = knowing_t(epoch=5)

    metadata.received(response(topic("t", partition(0, 1, 9), topic_id=ID)), has_reliable_epochs=False)

    assert (1, -1) == leader_of(metadata)


def test_new_leaders_of_a_response_count_when_they_are_newer() -> None:
    """KIP-951: Produce and Fetch responses carry the new leader."""
    metadata = knowing_t(epoch=5)
    seen: list[ClusterMetadata] = []
    metadata.on_update.append(seen.append)

    metadata.update_leaders({TP: (1, 5)})
    metadata.update_leaders({TP: (7, 6)})
    metadata.update_leaders({TopicPartition("u", 0): (1, 6)})
    assert [] == seen
    assert (0, 5) == leader_of(metadata)

    metadata.update_leaders({TP: (7, 6)}, [BrokerEndpoint(7, "new", 1)])

    assert (7, 6) == leader_of(metadata)
    assert [2] == [each.version for each in seen]
    assert BrokerEndpoint(7, "new", 1) == metadata.snapshot.leader(TP)


def test_only_topics_that_are_wanted_are_asked_for_and_kept() -> None:
    metadata = Metadata()
    assert metadata.add_topic("b", 0.0)
    assert metadata.add_topic("a", 0.0)
    assert not metadata.add_topic("a", 1.0)
    assert ["a", "b"] == asked(metadata)

    metadata.set_topics(["a"], 2.0)
    metadata.received(response(topic("a", partition(0, 0, 0)), topic("b", partition(0, 0, 0))))

    assert {"a"} == metadata.snapshot.topics.keys()
    metadata.set_topics(None, 3.0)
    assert asked(metadata) is None
    assert not metadata.add_topic("c", 4.0)
    assert metadata.wanted_topics is None


def wish(metadata: Metadata) -> tuple[bool, bool]:
    """Whether an update is requested, and whether it is urgent."""
    return metadata.is_update_requested, metadata.is_update_urgent


def test_an_update_is_urgent_only_when_a_topic_is_new() -> None:
    metadata = Metadata()
    wakes: list[int] = []
    metadata.on_update_requested = lambda: wakes.append(1)
    metadata.add_topic("a", 0.0)
    assert (True, True) == wish(metadata)
    metadata.next_request(0.0)
    assert (False, False) == wish(metadata)

    metadata.add_topic("a", 1.0)
    metadata.set_topics(["a"], 1.0)
    assert (False, False) == wish(metadata)
    metadata.request_update()
    assert (True, False) == wish(metadata)
    metadata.set_topics(["a", "b"], 2.0)
    assert (True, True) == wish(metadata)
    assert 3 == len(wakes)


def test_going_from_all_topics_to_known_ones_needs_no_update() -> None:
    metadata = Metadata()
    metadata.set_topics(None, 0.0)
    metadata.next_request(0.0)
    metadata.received(response(topic("a", partition(0, 0, 0)), topic("b", partition(0, 0, 0))))

    metadata.set_topics(["a"], 1.0)
    assert not metadata.is_update_requested
    metadata.set_topics(None, 2.0)
    metadata.next_request(2.0)
    metadata.set_topics(["new"], 3.0)
    assert metadata.is_update_urgent


def test_a_topic_that_is_not_used_is_forgotten() -> None:
    """A producer that writes to a new topic each day must not ask for all of them for ever."""
    metadata = Metadata(topic_idle_seconds=300.0)
    metadata.add_topic("old", 0.0)
    metadata.add_topic("used", 0.0)
    metadata.add_topic("used", 200.0)

    assert ["old", "used"] == asked(metadata, 300.0)
    assert ["used"] == asked(metadata, 301.0)
    metadata.received(response(topic("old", partition(0, 0, 0)), topic("used", partition(0, 0, 0))))
    assert {"used"} == metadata.snapshot.topics.keys()
    assert metadata.add_topic("old", 302.0)


@pytest.mark.parametrize(
    ("described", "is_retriable"),
    [
        (topic("t", partition(0, 0, 1)), False),
        (topic("t", partition(0, -1, 1)), True),
        (topic("t", partition(0, 9, 1)), True),
        (topic("t", partition(0, 0, 1, ErrorCode.LEADER_NOT_AVAILABLE)), True),
        (topic("t", partition(0, 0, 1, ErrorCode.REPLICA_NOT_AVAILABLE)), True),
        (topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), True),
        (topic("t", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED), False),
        (topic("t", error=ErrorCode.INVALID_TOPIC_EXCEPTION), False),
    ],
)
def test_what_may_appear_soon_is_worth_asking_again(described: object, is_retriable: bool) -> None:
    metadata = Metadata()
    metadata.add_topic("t", 0.0)
    metadata.received(response(described))  # type: ignore[arg-type]  # one of the topics above

    assert is_retriable == metadata.has_retriable_errors()


def test_topics_may_be_added_in_any_thread_while_idle_ones_are_dropped() -> None:
    metadata = Metadata(topic_idle_seconds=0.5)
    failures: list[BaseException] = []

    def add() -> None:
        try:
            for number in range(3000):
                metadata.add_topic(f"t{number % 700}", float(number))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for now in range(2000):
        metadata.next_request(float(now))
    for thread in threads:
        thread.join()

    assert [] == failures
