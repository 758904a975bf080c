"""Topics are created, grown and deleted by Kafka's rules, with Kafka's codes."""

import asyncio
from collections.abc import Mapping

import pytest

from kalda.broker.handlers import create_partitions, create_topics, delete_topics
from kalda.broker.topics.topic_admin import CreatedTopic, Outcome
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
from kalda.zk.client.schema import ReplicaAssignment
from kalda.zk.client.zookeeper_errors import ConnectionLossError
from tests.unit.broker.admin_fakes import AdminWorld, context


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
    world: AdminWorld, *topics: CreatableTopic, timeout_ms: int = 1000, validate_only: bool = False
) -> dict[str, ErrorCode]:
    outcomes = await world.admin.create_topics(topics, timeout_ms, validate_only=validate_only)
    return {name: code(outcome) for name, outcome in outcomes.items()}


async def test_a_topic_is_written_with_an_id_and_waited_for() -> None:
    world = AdminWorld(broker_count=3)

    outcomes = await world.admin.create_topics([topic("a", 4, 2, {"retention.ms": "5"})], 1000)

    created = outcomes["a"]
    assert isinstance(created, CreatedTopic)
    written = world.cluster.assignments["a"]
    assert created.topic_id == written.topic_id != ZERO_UUID
    assert {n: ReplicaAssignment(brokers) for n, brokers in created.assignment.items()} == written.partitions
    assert [0, 1, 2, 3] == list(written.partitions)
    assert all(2 == len(set(p.replicas)) for p in written.partitions.values())
    assert {"retention.ms": "5"} == world.cluster.stored["topics", "a"] == world.store.topic_overrides("a")
    assert 5 == world.store.log_config("a").retention_ms


async def test_counts_of_minus_one_are_the_brokers_defaults() -> None:
    world = AdminWorld(3, {"num.partitions": "5", "default.replication.factor": "2"})

    outcomes = await world.admin.create_topics([topic("a", -1, -1)], 1000)

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
    world = AdminWorld(broker_count=2)
    world.add_topic("taken")
    world.add_topic("with.dot")

    checked = await create(world, wanted, validate_only=True)
    assert {wanted.name: expected} == checked
    assert {"taken", "with.dot"} == world.cluster.assignments.keys()
    assert {wanted.name: expected} == await create(world, wanted)
    assert (expected is ErrorCode.NONE) == (
        wanted.name in world.cluster.assignments.keys() - {"taken", "with.dot"}
    )


async def test_topics_of_one_request_may_not_collide_with_each_other() -> None:
    world = AdminWorld()

    codes = await create(world, topic("a.b"), topic("a_b"), topic("a-b"))

    assert {
        "a.b": ErrorCode.NONE,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "a-b": ErrorCode.NONE,
    } == codes


async def test_a_topic_that_another_broker_created_meanwhile_keeps_its_settings() -> None:
    """Coordination knows it, this broker's metadata not yet."""
    world = AdminWorld()
    assignment = world.add_topic("a")
    world.store.set_topic("a", {"retention.ms": "7"})
    world.remove_from_metadata("a")
    world.store.set_topic("a", {"retention.ms": "7"})

    assert {"a": ErrorCode.TOPIC_ALREADY_EXISTS} == await create(
        world, topic("a", 1, 1, {"retention.ms": "8"})
    )

    assert assignment is world.cluster.assignments["a"]
    assert {"retention.ms": "7"} == world.store.topic_overrides("a")


async def test_a_topic_marked_for_deletion_cannot_be_created() -> None:
    world = AdminWorld()
    world.cluster.marked.append("a")

    assert {"a": ErrorCode.TOPIC_ALREADY_EXISTS} == await create(world, topic("a"))


async def test_a_name_is_free_again_once_only_dead_brokers_hold_the_deletion_up() -> None:
    """They may never come back; their copies have another topic id."""
    world = AdminWorld()
    world.cluster.marked.append("a")
    world.cluster.held_up_by_dead_brokers.add("a")

    assert {"a": ErrorCode.NONE} == await create(world, topic("a"))


async def test_a_broker_that_is_not_controller_cannot_free_a_name() -> None:
    """As when a topic is created automatically."""
    world = AdminWorld()
    world.cluster.marked.append("a")
    world.cluster.completion_error = ApiError(ErrorCode.NOT_CONTROLLER)

    assert {"a": ErrorCode.TOPIC_ALREADY_EXISTS} == await create(world, topic("a"))


async def test_creation_times_out_as_an_error_but_goes_on() -> None:
    world = AdminWorld()
    world.cluster.is_paused = True
    creation = asyncio.create_task(create(world, topic("a"), topic("bad name")))
    await world.settle()
    assert not creation.done()

    world.expire(1.1)

    assert {"a": ErrorCode.REQUEST_TIMED_OUT, "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION} == await creation
    assert "a" in world.cluster.assignments
    assert 0 == len(world.wheel)


async def test_creation_ends_when_every_partition_has_a_leader() -> None:
    world = AdminWorld()
    world.cluster.is_paused = True
    creation = asyncio.create_task(create(world, topic("a", 2), topic("b")))
    await world.settle()

    world.publish(world.cluster.assignments["b"])
    await world.settle()
    assert not creation.done()
    world.publish(world.cluster.assignments["a"])

    assert {"a": ErrorCode.NONE, "b": ErrorCode.NONE} == await creation
    assert 0 == len(world.wheel)


async def test_without_a_time_out_nothing_is_waited_for() -> None:
    """Kafka tells REQUEST_TIMED_OUT even where the topic is there already."""
    world = AdminWorld()

    assert {"a": ErrorCode.REQUEST_TIMED_OUT} == await create(world, topic("a"), timeout_ms=0)
    assert "a" in world.cache


async def test_many_topics_in_one_request_cost_in_proportion() -> None:
    world = AdminWorld()
    wanted = [topic(f"many_{number}") for number in range(1000)]

    codes = await asyncio.wait_for(create(world, *wanted), 5)

    assert {ErrorCode.NONE} == set(codes.values())


async def test_auto_creation_makes_internal_topics_as_their_coordinators_need_them() -> None:
    world = AdminWorld(settings={"offsets.topic.replication.factor": "1"})

    codes = await world.admin.auto_create(
        ["__consumer_offsets", "__transaction_state", "__cluster_metadata", "x y"]
    )

    assert {
        "__consumer_offsets": ErrorCode.LEADER_NOT_AVAILABLE,
        "__transaction_state": ErrorCode.INVALID_REPLICATION_FACTOR,
        "__cluster_metadata": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "x y": ErrorCode.INVALID_TOPIC_EXCEPTION,
    } == codes
    assert 50 == world.cache.partition_count("__consumer_offsets")
    assert world.store.log_config("__consumer_offsets").is_compacted
    assert 104857600 == world.store.log_config("__consumer_offsets").segment_bytes


@pytest.mark.parametrize("name", ["__consumer_offsets", "orders"])
async def test_a_topic_that_this_broker_has_not_heard_of_yet_is_not_created_again(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """After a restart too few brokers are known for a new topic; one that exists does not need them."""
    caplog.set_level("INFO")
    world = AdminWorld(settings={"default.replication.factor": "3"})
    world.add_topic(name)
    world.remove_from_metadata(name)
    assert {name: ErrorCode.LEADER_NOT_AVAILABLE} == await world.admin.auto_create([name])
    assert {"new": ErrorCode.INVALID_REPLICATION_FACTOR} == await world.admin.auto_create(["new"])
    assert name not in caplog.text


async def test_auto_creation_of_one_topic_by_many_clients_at_once() -> None:
    world = AdminWorld()

    answers = await asyncio.gather(*(world.admin.auto_create(["a"]) for _ in range(20)))

    assert [{"a": ErrorCode.LEADER_NOT_AVAILABLE}] * 20 == answers
    assert {"a": ErrorCode.LEADER_NOT_AVAILABLE} == await world.admin.auto_create(["a"])


async def test_clients_ask_again_for_a_topic_while_coordination_is_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that they take for final would end a producer to a topic that exists."""
    world = AdminWorld()

    async def away(*_: object) -> None:
        raise ConnectionLossError("cannot be reached")

    with monkeypatch.context() as patched:
        patched.setattr(world.cluster, "create_topics", away)
        assert {"a": ErrorCode.LEADER_NOT_AVAILABLE} == await world.admin.auto_create(["a"])
    assert ["WARNING"] == [record.levelname for record in caplog.records]
    assert "a" not in world.cluster.assignments
    await world.admin.auto_create(["a"])
    assert "a" in world.cluster.assignments


async def test_deletion_waits_until_the_topic_can_be_created_again() -> None:
    world = AdminWorld()
    world.add_topic("a")
    world.store.set_topic("a", {"retention.ms": "7"})
    world.cluster.is_paused = True
    deletion = asyncio.create_task(world.admin.delete_topics(["a", "nowhere"], 1000))
    again = asyncio.create_task(world.admin.delete_topics(["a"], 1000))
    await world.settle()
    world.remove_from_metadata("a")
    await world.settle()
    assert not deletion.done()
    assert {} == world.store.topic_overrides("a")

    world.cluster.finish_deletion("a")

    assert {"a": ErrorCode.NONE, "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} == await deletion
    assert {"a": ErrorCode.NONE} == await again
    world.cluster.is_paused = False
    assert {"a": ErrorCode.NONE} == await create(world, topic("a"))


async def test_deletion_times_out_as_an_error_but_goes_on() -> None:
    world = AdminWorld()
    world.add_topic("a")
    world.cluster.is_paused = True
    deletion = asyncio.create_task(world.admin.delete_topics(["a"], 1000))
    await world.settle()

    world.expire(1.1)

    assert {"a": ErrorCode.REQUEST_TIMED_OUT} == await deletion
    assert ["a"] == world.cluster.marked


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
    world = AdminWorld(broker_count=2)
    world.add_topic("a", 2, (0, 1))
    world.add_topic("doomed", 2)
    world.cluster.marked.append("doomed")
    moving = world.add_topic("moving")
    world.cluster.assignments["moving"] = type(moving)(
        "moving", moving.topic_id, {0: ReplicaAssignment((0, 1), adding=(1,))}, 0
    )

    [checked] = (await world.admin.create_partitions([wanted], 1000, validate_only=True)).values()
    assert expected is (checked.code if checked is not None else ErrorCode.NONE)
    assert 2 == len(world.cluster.assignments["a"].partitions)
    [grown] = (await world.admin.create_partitions([wanted], 1000)).values()
    assert expected is (grown.code if grown is not None else ErrorCode.NONE)
    if expected is ErrorCode.NONE:
        written = world.cluster.assignments["a"].partitions
        assert wanted.count == len(written) == world.cache.partition_count("a")
        assert all(2 == len(set(p.replicas)) for p in written.values())


async def test_growing_tries_again_when_another_broker_was_faster() -> None:
    world = AdminWorld()
    world.add_topic("a")
    world.cluster.conflicts = 3

    assert {"a": None} == await world.admin.create_partitions([more("a", 2)], 1000)

    world.cluster.conflicts = 1000
    outcome = (await world.admin.create_partitions([more("a", 3)], 1000))["a"]
    assert outcome is not None
    assert ErrorCode.REQUEST_TIMED_OUT is outcome.code


async def test_growing_times_out_as_an_error() -> None:
    world = AdminWorld()
    world.add_topic("a")
    world.cluster.is_paused = True
    growth = asyncio.create_task(world.admin.create_partitions([more("a", 2)], 1000))
    await world.settle()

    world.expire(1.1)

    outcome = (await growth)["a"]
    assert outcome is not None
    assert ErrorCode.REQUEST_TIMED_OUT is outcome.code


# The handlers: what a request's shape adds to the operations.


async def create_by_request(
    world: AdminWorld, version: int, *topics: CreatableTopic, validate_only: bool = False
) -> CreateTopicsResponse:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=1000, validate_only=validate_only)
    answer = create_topics.handle(world.services, request, context(version))
    response = answer if isinstance(answer, CreateTopicsResponse) else await answer
    return codec.decode(CreateTopicsResponse, version, codec.encode(response, version))


async def test_a_topic_named_twice_in_a_request_is_refused() -> None:
    world = AdminWorld()

    response = await create_by_request(
        world, 7, topic("a"), topic("b"), topic("a", 2), topic("__cluster_metadata")
    )

    assert [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
        ("a", ErrorCode.INVALID_REQUEST),
        ("__cluster_metadata", ErrorCode.INVALID_REQUEST),
    ] == [(result.name, result.error_code) for result in response.topics]


@pytest.mark.parametrize("validate_only", [False, True])
async def test_the_answer_tells_what_was_created(validate_only: bool) -> None:
    world = AdminWorld()

    response = await create_by_request(
        world, 7, topic("a", 3, 1, {"retention.ms": "5"}), topic("bad name"), validate_only=validate_only
    )

    good, bad = response.topics
    assert (3, 1, None) == (good.num_partitions, good.replication_factor, good.error_message)
    assert (ZERO_UUID if validate_only else world.cache.topic_id("a")) == good.topic_id
    configs = {config.name: (config.value, config.config_source) for config in good.configs or []}
    assert ("5", 1) == configs["retention.ms"]
    assert ("delete", 5) == configs["cleanup.policy"]
    assert 36 == len(configs)
    assert (-1, -1, [], ZERO_UUID) == (bad.num_partitions, bad.replication_factor, bad.configs, bad.topic_id)
    assert "bad name" in (bad.error_message or "")


async def test_every_version_of_creation_can_be_answered() -> None:
    world = AdminWorld()

    for version in range(8):
        response = await create_by_request(world, version, topic(f"v{version}"), topic("bad name"))
        assert [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION] == [t.error_code for t in response.topics]


async def test_only_the_controller_serves() -> None:
    world = AdminWorld(broker_count=2)
    world.add_topic("a")
    world.apply([], controller_id=1)

    created = await create_by_request(world, 7, topic("b"), topic("b"))
    assert [ErrorCode.NOT_CONTROLLER] * 2 == [t.error_code for t in created.topics]
    deleted = delete_topics.handle(
        world.services, DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000), context(5)
    )
    assert isinstance(deleted, DeleteTopicsResponse)
    assert [ErrorCode.NOT_CONTROLLER] == [t.error_code for t in deleted.responses]
    grown = create_partitions.handle(
        world.services, CreatePartitionsRequest(topics=[more("a", 2)], timeout_ms=1000), context(3)
    )
    assert isinstance(grown, CreatePartitionsResponse)
    assert [ErrorCode.NOT_CONTROLLER] == [t.error_code for t in grown.results]


async def delete_by_request(
    world: AdminWorld, version: int, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    request.timeout_ms = 1000
    answer = delete_topics.handle(world.services, request, context(version))
    response = answer if isinstance(answer, DeleteTopicsResponse) else await answer
    return codec.decode(DeleteTopicsResponse, version, codec.encode(response, version))


@pytest.mark.parametrize("version", range(6))
async def test_deletion_by_name(version: int) -> None:
    world = AdminWorld()
    world.add_topic("a")

    response = await delete_by_request(world, version, DeleteTopicsRequest(topic_names=["a", "nowhere", "a"]))

    assert [
        ("a", ErrorCode.NONE),
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", ErrorCode.NONE),
    ] == [(result.name, result.error_code) for result in response.responses]
    assert {} == world.cluster.assignments


async def test_deletion_by_id() -> None:
    world = AdminWorld()
    by_id, by_name = world.add_topic("a"), world.add_topic("b")
    unknown = random_uuid()

    response = await delete_by_request(
        world,
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
    assert by_name.topic not in world.cache
    both = DeleteTopicsRequest(topics=[DeleteTopicState(name="a", topic_id=by_id.topic_id)])
    with pytest.raises(ApiError) as caught:
        await delete_by_request(world, 6, both)
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
    world = AdminWorld(settings={"delete.topic.enable": "false"})
    world.add_topic("a")
    names, states = (["a"], []) if version < 6 else ([], [DeleteTopicState(name="a")])

    response = await delete_by_request(world, version, DeleteTopicsRequest(topic_names=names, topics=states))

    assert [expected] == [result.error_code for result in response.responses]
    assert "a" in world.cache


async def test_growing_by_request() -> None:
    world = AdminWorld()
    world.add_topic("a")
    world.add_topic("b")
    request = CreatePartitionsRequest(
        topics=[more("a", 2), more("b", 2), more("b", 3), more("nowhere", 2)], timeout_ms=1000
    )

    for version in range(4):
        answer = create_partitions.handle(world.services, request, context(version))
        response = answer if isinstance(answer, CreatePartitionsResponse) else await answer
        codes = {r.name: r.error_code for r in response.results}
        codec.encode(response, version)
        assert {
            "a": ErrorCode.NONE if version == 0 else ErrorCode.INVALID_PARTITIONS,
            "b": ErrorCode.INVALID_REQUEST,
            "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        } == codes
