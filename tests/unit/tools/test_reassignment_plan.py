"""What a reassignment moves, where to, and how its traffic is bounded."""

import random
from typing import Any

import pytest

from kalda.command.errors import ToolError, ToolUsageError
from kalda.common.types import TopicPartition
from kalda.tools.reassignment_plan import (
    Move,
    OngoingReassignment,
    Replica,
    check_current,
    check_replication_factors,
    moves,
    parse_reassignment,
    parse_topics_to_move,
    propose,
    reassignment_json,
    throttles,
    usable_racks,
)

FOO, BAR = TopicPartition("foo", 0), TopicPartition("bar", 0)


class Fixed(random.Random):
    """Always begins with the first broker."""

    def randrange(self, *_: Any) -> int:
        return 0


def test_a_file_round_trips_in_kafkas_form() -> None:
    document: dict[str, Any] = {
        "version": 1,
        "partitions": [
            {"topic": "bar", "partition": 0, "replicas": [3, 1], "log_dirs": ["any", "/data/a"]},
            {"topic": "foo", "partition": 0, "replicas": [0], "log_dirs": ["any"]},
        ],
    }
    file = parse_reassignment(document, "file")

    assert {BAR: (3, 1), FOO: (0,)} == file.assignment
    assert {Replica(BAR, 1): "/data/a"} == file.log_dirs
    assert ["bar", "foo"] == file.topics
    assert document == reassignment_json(file.assignment, file.log_dirs)


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ([], "nothing to reassign"),
        ("foo", '"partitions" must be a list of objects'),
        ([{"partition": 0, "replicas": [1]}], '"topic" must be a text'),
        ([{"topic": "foo", "partition": True, "replicas": [1]}], '"partition" must be a number'),
        ([{"topic": "foo", "partition": 0, "replicas": []}], "at least one and none twice"),
        ([{"topic": "foo", "partition": 0, "replicas": [1, 1]}], "at least one and none twice"),
        ([{"topic": "foo", "partition": 0, "replicas": ["1"]}], "must be a list of broker ids"),
        ([{"topic": "foo", "partition": 0, "replicas": [1]}] * 2, "partition foo-0 twice"),
        ([{"topic": "foo", "partition": 0, "replicas": [1], "log_dirs": []}], "1 replicas and 0 log_dirs"),
        ([{"topic": "foo", "partition": 0, "replicas": [1], "log_dirs": [1]}], "must be a list of texts"),
    ],
)
def test_a_file_of_another_form_is_refused_with_the_place(partitions: Any, expected: str) -> None:
    with pytest.raises(ToolUsageError, match=expected):
        parse_reassignment({"version": 1, "partitions": partitions}, "file")


def test_topics_to_move_are_read_and_named_once() -> None:
    assert ["foo", "bar"] == parse_topics_to_move({"topics": [{"topic": "foo"}, {"topic": "bar"}]}, "file")
    for topics in ([], [{"topic": "foo"}, {"topic": "foo"}]):
        with pytest.raises(ToolUsageError, match="file"):
            parse_topics_to_move({"topics": topics}, "file")
    with pytest.raises(ToolUsageError, match="reads version 1"):
        parse_topics_to_move({"version": 2, "topics": [{"topic": "foo"}]}, "file")


def partitions(topic: str, count: int, replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(topic, number): replicas for number in range(count)}


def test_a_proposal_follows_the_rule_for_new_topics() -> None:
    """The example in the documentation of Kafka's AdminUtils, from start 0."""
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    proposed = propose(partitions("foo", 7, (0, 1, 2)), racks, chance=Fixed())

    expected = [(0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3), (0, 4, 2)]
    assert expected == [proposed[TopicPartition("foo", number)] for number in range(7)]


def test_a_proposal_keeps_the_replication_factor_of_each_topic() -> None:
    current = {**partitions("foo", 2, (9, 8)), **partitions("bar", 1, (9,))}
    proposed = propose(current, {0: None, 1: None}, chance=Fixed())

    assert {TopicPartition("bar", 0): (0,), FOO: (0, 1), TopicPartition("foo", 1): (1, 0)} == proposed


def test_a_proposal_without_enough_brokers_or_with_some_racks_says_what_to_do() -> None:
    with pytest.raises(ToolError, match=r"topic foo: The replication factor 3 is larger"):
        propose(partitions("foo", 1, (0, 1, 2)), {0: None}, chance=Fixed())
    with pytest.raises(ToolError, match=r"brokers 1 have no rack.*--disable-rack-aware"):
        usable_racks({0: "a", 1: None}, True)
    assert {0: None, 1: None} == usable_racks({0: "a", 1: None}, False)


def test_moves_of_ongoing_reassignments_keep_their_sources() -> None:
    """A replica that is being added has no data to send yet."""
    ongoing = {FOO: OngoingReassignment((0, 1, 2), adding=(2,), removing=(0,))}

    assert {
        FOO: Move(frozenset({0, 1}), frozenset({3})),
        BAR: Move(frozenset({5}), frozenset({6})),
    } == moves(ongoing, {FOO: [1, 3], BAR: [5, 6]}, {FOO: [0, 1, 2], BAR: [5]})
    assert {FOO: Move(frozenset({0, 1}), frozenset({2}))} == moves(ongoing, {}, {})


def test_throttles_name_sources_as_leaders_and_destinations_as_followers() -> None:
    moving = {
        TopicPartition("foo", 2): Move(frozenset({1}), frozenset({3})),
        TopicPartition("foo", 10): Move(frozenset({0, 1}), frozenset({2})),
    }
    bounded = throttles(moving, [Replica(FOO, 3), Replica(FOO, 7)], rate=1000, log_dir_rate=20)

    assert {
        "foo": {
            "leader.replication.throttled.replicas": "10:0,10:1,2:1",
            "follower.replication.throttled.replicas": "10:2,2:3",
        }
    } == bounded.topics
    rates = {"leader.replication.throttled.rate": "1000", "follower.replication.throttled.rate": "1000"}
    directory = {"replica.alter.log.dirs.io.max.bytes.per.second": "20"}
    assert {0: rates, 1: rates, 2: rates, 3: rates | directory, 7: directory} == bounded.brokers


def test_without_rates_there_are_no_throttles() -> None:
    bounded = throttles({FOO: Move(frozenset({1}), frozenset({3}))}, [], rate=None, log_dir_rate=None)

    assert ({}, {}) == (bounded.topics, bounded.brokers)


def test_a_plan_for_what_the_cluster_does_not_have_is_refused() -> None:
    with pytest.raises(ToolError, match="no partition foo-0"):
        check_current({FOO: (1,)}, {}, [1])
    with pytest.raises(ToolError, match="no broker 2; its brokers are 0, 1"):
        check_current({FOO: (1, 2)}, {FOO: (0,)}, [0, 1])
    check_current({FOO: (1,)}, {FOO: (0,), BAR: (0,)}, [0, 1])


def test_a_change_of_the_replication_factor_can_be_refused() -> None:
    """KIP-860: a plan made before the factor was raised must not lower it again."""
    current: dict[TopicPartition, tuple[int, ...]] = {FOO: (0, 1), BAR: (1,)}

    check_replication_factors({FOO: (2, 3), BAR: (0,)}, current)
    with pytest.raises(ToolError, match="foo-0 has 2 replicas and would have 1, which --disallow-replic"):
        check_replication_factors({FOO: (2,), BAR: (0,)}, current)
