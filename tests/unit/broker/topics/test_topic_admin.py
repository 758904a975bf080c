"""Topics are created, grown and deleted by Kafka's rules, with Kafka's codes."""

import asyncio
from collections.abc import Mapping

import pytest

from kalda.broker.requests.handlers import create_partitions, create_topics, delete_topics
from kalda.broker.topics.topic_admin import CreatedTopic, Outcome
from kalda.cluster.schema import ReplicaAssignment
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import ZERO_UUID, random_uuid
from kalda.protocol import codec
from kalda.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kalda.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kalda.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kalda.zookeeper.errors import ConnectionLossError
from tests.runtimes import seeded
from tests.unit.broker.admin_fakes import AdminHarness, context


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    config: Mapping[str, str | None] | None = None,
    assignments: Mapping[int, list[int]] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()],
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=brokers)
            for number, brokers in (assignments or {}).items()
        ],
    )


def code(outcome: Outcome | None) -> ErrorCode:
    return outcome.code if isinstance(outcome, ApiError) else ErrorCode.NONE


async def create(
    harness: AdminHarness, *topics: CreatableTopic, timeout_ms: int = 1000, validate_only: bool = False
) -> dict[str, ErrorCode]:
    outcomes = await harness.admin.create_topics(topics, timeout_ms, validate_only=validate_only)
    return {name: code(outcome) for name, outcome in outcomes.items()}


async def test_a_topic_is_written_with_an_id_and_waited_for() -> None:
    harness = AdminHarness(broker_count=3)

    outcomes = await harness.admin.create_topics([topic("a", 4, 2, {"retention.ms": "5"})], 1000)

    created = outcomes["a"]
    assert isinstance(created, CreatedTopic)
    written = harness.cluster.assignments["a"]
    assert created.topic_id == written.topic_id != ZERO_UUID
    assert {n: ReplicaAssignment(brokers) for n, brokers in created.assignment.items()} == written.partitions
    assert [0, 1, 2, 3] == list(written.partitions)
    assert all(2 == len(set(p.replicas)) for p in written.partitions.values())
    assert (
        {"retention.ms": "5"} == harness.cluster.stored["topics", "a"] == harness.store.topic_overrides("a")
    )
    assert 5 == harness.store.log_config("a").retention_ms


async def test_counts_of_minus_one_are_the_brokers_defaults() -> None:
    harness = AdminHarness(3, {"num.partitions": "5", "default.replication.factor": "2"})

    outcomes = await harness.admin.create_topics([topic("a", -1, -1)], 1000)

    created = outcomes["a"]
    assert isinstance(created, CreatedTopic)
    assert (5, 2) == (len(created.assignment), created.replication_factor)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("ä"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 249), ErrorCode.NONE),
        (topic("Az09._-"), ErrorCode.NONE),
        (topic("taken"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("with_dot"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("with.dot"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("a", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("a", -2), ErrorCode.INVALID_PARTITIONS),
        (topic("a", 2_000_000_000), ErrorCode.POLICY_VIOLATION),
        (topic("a", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("a", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("a", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("a", 1, 1, {"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (topic("a", 1, 1, {"segment.bytes": "ten"}), ErrorCode.INVALID_CONFIG),
        (topic("a", 1, 1, {"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (topic("a", -1, -1, None, {0: [0], 1: [1]}), ErrorCode.NONE),
        (topic("a", -1, -1, None, {0: [7]}), ErrorCode.NONE),
        (topic("a", 2, -1, None, {0: [0]}), ErrorCode.INVALID_REQUEST),
        (topic("a", -1, 1, None, {0: [0]}), ErrorCode.INVALID_REQUEST),
        (topic("a", -1, -1, None, {0: [0], 1: [0, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", -1, -1, None, {0: [0, 0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", -1, -1, None, {0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", -1, -1, None, {1: [0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", -1, -1, None, {0: [0], 2: [0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("a", -1, -1, None, {-1: [0], 0: [0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_what_may_be_created(wanted: CreatableTopic, expected: ErrorCode) -> None:
    harness = AdminHarness(broker_count=2)
    harness.add_topic("taken")
    harness.add_topic("with.dot")

    checked = await create(harness, wanted, validate_only=True)
    assert {wanted.name: expected} == checked
    assert {"taken", "with.dot"} == harness.cluster.assignments.keys()
    assert {wanted.name: expected} == await create(harness, wanted)
    assert (expected is ErrorCode.NONE) == (
        wanted.name in harness.cluster.assignments.keys() - {"taken", "with.dot"}
    )


async def test_topics_of_one_request_may_not_collide_with_each_other() -> None:
    harness = AdminHarness()

    codes = await create(harness, topic("a.b"), topic("a_b"), topic("a-b"))

    assert {
        "a.b": ErrorCode.NONE,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "a-b": ErrorCode.NONE,
    } == codes


async def test_a_topic_that_another_broker_created_meanwhile_keeps_its_settings() -> None:
    """Coordination knows it, this broker's metadata and settings not yet: a broker that died created it."""
    harness = AdminHarness()
    assignment = harness.add_topic("a")
    harness.remove_from_metadata("a")
    harness.cluster.stored["topics", "a"] = {"retention.ms": "7"}

    assert {"a": ErrorCode.TOPIC_ALREADY_EXISTS} == await create(
        harness, topic("a", 1, 1, {"retention.ms": "8"})
    )

    assert assignment is harness.cluster.assignments["a"]
    assert {"retention.ms": "7"} == harness.store.topic_overrides("a")


async def test_a_topic_marked_for_deletion_cannot_be_created() -> None:
    harness = AdminHarness()
    harness.cluster.marked.append("a")

    assert {"a": ErrorCode.TOPIC_ALREADY_EXISTS} == await create(harness, topic("a"))


async def test_a_name_is_free_again_once_only_dead_brokers_hold_the_deletion_up() -> None:
    """They may never come back; their copies have another topic id."""
    harness = AdminHarness()
    harness.cluster.marked.append("a")
    harness.cluster.held_up_by_dead_brokers.add("a")

    assert {"a": ErrorCode.NONE} == await create(harness, topic("a"))


async def test_a_broker_that_is_not_controller_cannot_free_a_name() -> None:
    """As when a topic is created automatically."""
    harness = AdminHarness()
    harness.cluster.marked.append("a")
    harness.cluster.completion_error = ApiError(ErrorCode.NOT_CONTROLLER)

    assert {"a": ErrorCode.TOPIC_ALREADY_EXISTS} == await create(harness, topic("a"))


async def test_creation_times_out_as_an_error_but_goes_on() -> None:
    harness = AdminHarness()
    harness.cluster.is_paused = True
    creation = asyncio.create_task(create(harness, topic("a"), topic("bad name")))
    await harness.settle()
    assert not creation.done()

    harness.expire(1.1)

    assert {"a": ErrorCode.REQUEST_TIMED_OUT, "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION} == await creation
    assert "a" in harness.cluster.assignments
    assert 0 == len(harness.wheel)


async def test_creation_ends_when_every_partition_has_a_leader() -> None:
    harness = AdminHarness()
    harness.cluster.is_paused = True
    creation = asyncio.create_task(create(harness, topic("a", 2), topic("b")))
    await harness.settle()

    harness.publish(harness.cluster.assignments["b"])
    await harness.settle()
    assert not creation.done()
    harness.publish(harness.cluster.assignments["a"])

    assert {"a": ErrorCode.NONE, "b": ErrorCode.NONE} == await creation
    assert 0 == len(harness.wheel)


async def test_without_a_time_out_nothing_is_waited_for() -> None:
    """Kafka tells REQUEST_TIMED_OUT even where the topic is there already."""
    harness = AdminHarness()

    assert {"a": ErrorCode.REQUEST_TIMED_OUT} == await create(harness, topic("a"), timeout_ms=0)
    assert "a" in harness.cache


async def test_many_topics_in_one_request_cost_in_proportion() -> None:
    harness = AdminHarness()
    wanted = [topic(f"many_{number}") for number in range(1000)]

    codes = await asyncio.wait_for(create(harness, *wanted), 60)

    assert {ErrorCode.NONE} == set(codes.values())


async def test_auto_creation_makes_internal_topics_as_their_coordinators_need_them() -> None:
    harness = AdminHarness(settings={"offsets.topic.replication.factor": "1"})

    codes = await harness.admin.auto_create(
        ["__consumer_offsets", "__transaction_state", "__cluster_metadata", "x y"]
    )

    assert {
        "__consumer_offsets": ErrorCode.LEADER_NOT_AVAILABLE,
        "__transaction_state": ErrorCode.INVALID_REPLICATION_FACTOR,
        "__cluster_metadata": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "x y": ErrorCode.INVALID_TOPIC_EXCEPTION,
    } == codes
    assert 50 == harness.cache.partition_count("__consumer_offsets")
    assert harness.store.log_config("__consumer_offsets").is_compacted
    assert 104857600 == harness.store.log_config("__consumer_offsets").segment_bytes


@pytest.mark.parametrize("name", ["__consumer_offsets", "orders"])
async def test_a_topic_that_this_broker_has_not_heard_of_yet_is_not_created_again(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """After a restart too few brokers are known for a new topic; one that exists does not need them."""
    caplog.set_level("INFO")
    harness = AdminHarness(settings={"default.replication.factor": "3"})
    harness.add_topic(name)
    harness.remove_from_metadata(name)
    assert {name: ErrorCode.LEADER_NOT_AVAILABLE} == await harness.admin.auto_create([name])
    assert {"new": ErrorCode.INVALID_REPLICATION_FACTOR} == await harness.admin.auto_create(["new"])
    assert name not in caplog.text


async def test_auto_creation_of_one_topic_by_many_clients_at_once() -> None:
    harness = AdminHarness()

    answers = await asyncio.gather(*(harness.admin.auto_create(["a"]) for _ in range(20)))

    assert [{"a": ErrorCode.LEADER_NOT_AVAILABLE}] * 20 == answers
    assert {"a": ErrorCode.LEADER_NOT_AVAILABLE} == await harness.admin.auto_create(["a"])


async def test_clients_ask_again_for_a_topic_while_coordination_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that they take for final would end a producer to a topic that exists."""
    harness = AdminHarness()

    async def away(*_: object) -> None:
        raise ConnectionLossError("cannot be reached")

    with monkeypatch.context() as patched:
        patched.setattr(harness.cluster, "create_topics", away)
        assert {"a": ErrorCode.LEADER_NOT_AVAILABLE} == await harness.admin.auto_create(["a"])
    assert ["WARNING"] == [record.levelname for record in caplog.records]
    assert "a" not in harness.cluster.assignments
    await harness.admin.auto_create(["a"])
    assert "a" in harness.cluster.assignments


async def test_deletion_waits_until_the_topic_can_be_created_again() -> None:
    harness = AdminHarness()
    harness.add_topic("a")
    harness.store.set_topic("a", {"retention.ms": "7"})
    harness.cluster.is_paused = True
    deletion = asyncio.create_task(harness.admin.delete_topics(["a", "nowhere"], 1000))
    again = asyncio.create_task(harness.admin.delete_topics(["a"], 1000))
    await harness.settle()
    harness.remove_from_metadata("a")
    await harness.settle()
    assert not deletion.done()
    assert {} == harness.store.topic_overrides("a")

    harness.cluster.finish_deletion("a")

    assert {"a": ErrorCode.NONE, "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} == await deletion
    assert {"a": ErrorCode.NONE} == await again
    harness.cluster.is_paused = False
    assert {"a": ErrorCode.NONE} == await create(harness, topic("a"))


async def test_deletion_does_not_wait_for_dead_brokers() -> None:
    """The name is free all the same, and Kafka answers as soon as the metadata lacks the topic."""
    harness = AdminHarness()
    harness.add_topic("a", replicas=(0, 9))
    harness.add_topic("b")
    harness.cluster.is_paused = True
    deletion = asyncio.create_task(harness.admin.delete_topics(["a", "b"], 1000))
    await harness.settle()
    harness.remove_from_metadata("a")
    harness.remove_from_metadata("b")
    await harness.settle()
    assert not deletion.done()
    harness.cluster.finish_deletion("b")
    await harness.settle()
    assert deletion.done()
    assert {"a": ErrorCode.NONE, "b": ErrorCode.NONE} == await deletion


async def test_deletion_times_out_as_an_error_but_goes_on() -> None:
    harness = AdminHarness()
    harness.add_topic("a")
    harness.cluster.is_paused = True
    deletion = asyncio.create_task(harness.admin.delete_topics(["a"], 1000))
    await harness.settle()

    harness.expire(1.1)

    assert {"a": ErrorCode.REQUEST_TIMED_OUT} == await deletion
    assert ["a"] == harness.cluster.marked


def more(name: str, count: int, replicas: list[list[int]] | None = None) -> CreatePartitionsTopic:
    assignments = None
    if replicas is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in replicas]
    return CreatePartitionsTopic(name=name, count=count, assignments=assignments)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (more("a", 3), ErrorCode.NONE),
        (more("a", 4, [[1, 0], [0, 1]]), ErrorCode.NONE),
        (more("a", 2), ErrorCode.INVALID_PARTITIONS),
        (more("a", 1), ErrorCode.INVALID_PARTITIONS),
        (more("a", -1), ErrorCode.INVALID_PARTITIONS),
        (more("a", 2_000_000_000), ErrorCode.POLICY_VIOLATION),
        (more("nowhere", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (more("doomed", 3), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (more("moving", 3), ErrorCode.REASSIGNMENT_IN_PROGRESS),
        (more("a", 3, [[0, 7]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("a", 4, [[0, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("a", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("a", 3, [[0, 0]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("a", 3, [[0]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_how_a_topic_may_grow(wanted: CreatePartitionsTopic, expected: ErrorCode) -> None:
    harness = AdminHarness(broker_count=2)
    harness.add_topic("a", 2, (0, 1))
    harness.add_topic("doomed", 2)
    harness.cluster.marked.append("doomed")
    moving = harness.add_topic("moving")
    harness.cluster.assignments["moving"] = type(moving)(
        "moving", moving.topic_id, {0: ReplicaAssignment((0, 1), adding=(1,))}, 0
    )

    [checked] = (await harness.admin.create_partitions([wanted], 1000, validate_only=True)).values()
    assert expected is (checked.code if checked is not None else ErrorCode.NONE)
    assert 2 == len(harness.cluster.assignments["a"].partitions)
    [grown] = (await harness.admin.create_partitions([wanted], 1000)).values()
    assert expected is (grown.code if grown is not None else ErrorCode.NONE)
    if expected is ErrorCode.NONE:
        written = harness.cluster.assignments["a"].partitions
        assert wanted.count == len(written) == harness.cache.partition_count("a")
        assert all(2 == len(set(p.replicas)) for p in written.values())


async def test_cordoned_brokers_get_no_new_replicas() -> None:
    """KIP-1066: brokers whose log directories are all cordoned."""
    harness = AdminHarness(broker_count=4)
    harness.add_topic("grows", 2, (1, 0))
    harness.cluster.cordoned |= {1, 3}
    placed = [topic("a", 8, 2), topic("b", assignments={0: [0, 2]}, partitions=-1, replicas=-1)]
    refused = [topic("c", 1, 3), topic("d", assignments={0: [0, 1]}, partitions=-1, replicas=-1)]
    outcomes = await harness.admin.create_topics([*placed, *refused], 1000)
    assert {0, 2} == {
        broker for each in harness.cluster.assignments["a"].partitions.values() for broker in each.replicas
    }
    expected = ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert (ErrorCode.NONE, *expected) == tuple(code(outcomes[name]) for name in "bcd")
    assert "brokers [1, 3] are cordoned" in str(outcomes["c"])

    wanted = [more("grows", 6)]
    assert [None] == list((await harness.admin.create_partitions(wanted, 1000)).values())
    grown = harness.cluster.assignments["grows"].partitions
    assert [(1, 0), (1, 0)] == [grown[number].replicas for number in (0, 1)]
    assert {0, 2} == {broker for number in range(2, 6) for broker in grown[number].replicas}
    [error] = (await harness.admin.create_partitions([more("grows", 7, [[0, 3]])], 1000)).values()
    assert error is not None
    assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


async def test_growing_tries_again_when_another_broker_was_faster() -> None:
    harness = AdminHarness()
    harness.add_topic("a")
    harness.cluster.conflicts = 3

    assert {"a": None} == await harness.admin.create_partitions([more("a", 2)], 1000)

    harness.cluster.conflicts = 1000
    outcome = (await harness.admin.create_partitions([more("a", 3)], 1000))["a"]
    assert outcome is not None
    assert ErrorCode.REQUEST_TIMED_OUT is outcome.code


async def test_growing_times_out_as_an_error() -> None:
    harness = AdminHarness()
    harness.add_topic("a")
    harness.cluster.is_paused = True
    growth = asyncio.create_task(harness.admin.create_partitions([more("a", 2)], 1000))
    await harness.settle()

    harness.expire(1.1)

    outcome = (await growth)["a"]
    assert outcome is not None
    assert ErrorCode.REQUEST_TIMED_OUT is outcome.code


# The handlers: what a request's shape adds to the operations.


async def create_by_request(
    harness: AdminHarness, version: int, *topics: CreatableTopic, validate_only: bool = False
) -> CreateTopicsResponse:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    answer = create_topics.handle(harness.admin, harness.config, harness.throttle, request, context(version))
    response = answer if isinstance(answer, CreateTopicsResponse) else await answer
    return codec.decode(CreateTopicsResponse, version, codec.encode(response, version))


async def test_a_topic_named_twice_in_a_request_is_refused() -> None:
    harness = AdminHarness()

    response = await create_by_request(
        harness, 7, topic("a"), topic("b"), topic("a", 2), topic("__cluster_metadata")
    )

    assert [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
        ("a", ErrorCode.INVALID_REQUEST),
        ("__cluster_metadata", ErrorCode.INVALID_REQUEST),
    ] == [(result.name, result.error_code) for result in response.topics]


@pytest.mark.parametrize("validate_only", [False, True])
async def test_the_answer_tells_what_was_created(validate_only: bool) -> None:
    harness = AdminHarness()

    response = await create_by_request(
        harness, 7, topic("a", 3, 1, {"retention.ms": "5"}), topic("bad name"), validate_only=validate_only
    )

    good, bad = response.topics
    assert (3, 1, None) == (good.num_partitions, good.replication_factor, good.error_message)
    assert (ZERO_UUID if validate_only else harness.cache.topic_id("a")) == good.topic_id
    configs = {config.name: (config.value, config.config_source) for config in good.configs or []}
    assert ("5", 1) == configs["retention.ms"]
    assert ("delete", 5) == configs["cleanup.policy"]
    assert 41 == len(configs)
    assert (-1, -1, [], ZERO_UUID) == (bad.num_partitions, bad.replication_factor, bad.configs, bad.topic_id)
    assert "bad name" in (bad.error_message or "")


async def test_every_version_of_creation_can_be_answered() -> None:
    harness = AdminHarness()

    for version in range(8):
        response = await create_by_request(harness, version, topic(f"v{version}"), topic("bad name"))
        assert [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION] == [t.error_code for t in response.topics]


async def test_only_the_controller_serves() -> None:
    harness = AdminHarness(broker_count=2)
    harness.add_topic("a")
    harness.apply([], controller_id=1)

    created = await create_by_request(harness, 7, topic("b"), topic("b"))
    assert [ErrorCode.NOT_CONTROLLER] * 2 == [t.error_code for t in created.topics]
    deleted = delete_topics.handle(
        harness.admin,
        harness.config,
        harness.cache,
        harness.throttle,
        DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000),
        context(5),
    )
    assert isinstance(deleted, DeleteTopicsResponse)
    assert [ErrorCode.NOT_CONTROLLER] == [t.error_code for t in deleted.responses]
    grown = create_partitions.handle(
        harness.admin,
        harness.throttle,
        CreatePartitionsRequest(topics=[more("a", 2)], timeout_ms=1000),
        context(3),
    )
    assert isinstance(grown, CreatePartitionsResponse)
    assert [ErrorCode.NOT_CONTROLLER] == [t.error_code for t in grown.results]


async def delete_by_request(
    harness: AdminHarness, version: int, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    request.timeout_ms = 1000
    answer = delete_topics.handle(
        harness.admin, harness.config, harness.cache, harness.throttle, request, context(version)
    )
    response = answer if isinstance(answer, DeleteTopicsResponse) else await answer
    return codec.decode(DeleteTopicsResponse, version, codec.encode(response, version))


@pytest.mark.parametrize("version", range(6))
async def test_deletion_by_name(version: int) -> None:
    harness = AdminHarness()
    harness.add_topic("a")

    response = await delete_by_request(
        harness, version, DeleteTopicsRequest(topic_names=["a", "nowhere", "a"])
    )

    assert [
        ("a", ErrorCode.NONE),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", ErrorCode.NONE),
    ] == [(result.name, result.error_code) for result in response.responses]
    assert {} == harness.cluster.assignments


async def test_deletion_by_id() -> None:
    harness = AdminHarness()
    by_id, by_name = harness.add_topic("a"), harness.add_topic("b")
    unknown = random_uuid(seeded(9))

    response = await delete_by_request(
        harness,
        6,
        DeleteTopicsRequest(
            topics=[
                DeleteTopicState(name=None, topic_id=by_id.topic_id),
                DeleteTopicState(name="b"),
                DeleteTopicState(name=None, topic_id=unknown),
            ]
        ),
    )

    assert [
        ("a", by_id.topic_id, ErrorCode.NONE),
        ("b", ZERO_UUID, ErrorCode.NONE),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID),
    ] == [(r.name, r.topic_id, r.error_code) for r in response.responses]
    assert by_name.topic not in harness.cache
    both = DeleteTopicsRequest(topics=[DeleteTopicState(name="a", topic_id=by_id.topic_id)])
    with pytest.raises(ApiError) as caught:
        await delete_by_request(harness, 6, both)
    assert ErrorCode.INVALID_REQUEST is caught.value.code


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (2, ErrorCode.INVALID_REQUEST),
        (3, ErrorCode.TOPIC_DELETION_DISABLED),
        (6, ErrorCode.TOPIC_DELETION_DISABLED),
    ],
)
async def test_deletion_can_be_disabled(version: int, expected: ErrorCode) -> None:
    harness = AdminHarness(settings={"delete.topic.enable": "false"})
    harness.add_topic("a")
    names, states = (["a"], []) if version < 6 else ([], [DeleteTopicState(name="a")])

    response = await delete_by_request(
        harness, version, DeleteTopicsRequest(topic_names=names, topics=states)
    )

    assert [expected] == [result.error_code for result in response.responses]
    assert "a" in harness.cache


async def test_growing_by_request() -> None:
    harness = AdminHarness()
    harness.add_topic("a")
    harness.add_topic("b")
    request = CreatePartitionsRequest(
        topics=[more("a", 2), more("b", 2), more("b", 3), more("nowhere", 2)], timeout_ms=1000
    )

    for version in range(4):
        answer = create_partitions.handle(harness.admin, harness.throttle, request, context(version))
        response = answer if isinstance(answer, CreatePartitionsResponse) else await answer
        codes = {r.name: r.error_code for r in response.results}
        codec.encode(response, version)
        assert {
            "a": ErrorCode.NONE if version == 0 else ErrorCode.INVALID_PARTITIONS,
            "b": ErrorCode.INVALID_REQUEST,
            "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        } == codes
