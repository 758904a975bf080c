"""Consumer groups apart from heartbeats: offsets, describing, deleting, settings, odd records."""

from typing import Any
from uuid import UUID

import pytest

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.classic.join import Requester
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.consumer_group_config import ConsumerGroupConfig, MigrationPolicy
from kalda.coordinator.group.consumer.consumer_group_coordinator import ConsumerGroupCoordinator
from kalda.coordinator.group.consumer.consumer_group_records import (
    current_record,
    group_epoch_record,
    group_removal,
    member_record,
    target_record,
)
from kalda.coordinator.group.consumer.current_assignment import reconcile
from kalda.coordinator.group.consumer.member import Member, MemberState, assignment_of
from kalda.coordinator.group.consumer.regular_expressions import (
    NAMES_PER_SLICE_MAX,
    RegexResolution,
    check_regex,
)
from kalda.coordinator.group.group import GroupType
from kalda.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tests.unit.coordinator.group.consumer.classic_clients import ClassicClient
from tests.unit.coordinator.group.consumer.consumer_simulation import GROUP, ConsumerSimulation

T = UUID(int=1)


@pytest.fixture
def simulation() -> ConsumerSimulation:
    made = ConsumerSimulation()
    made.topics.put("t", 2)
    return made


def code_of(call: Any, *args: Any, **kwargs: Any) -> ErrorCode:
    with pytest.raises(ApiError) as raised:
        call(*args, **kwargs)
    return raised.value.code


def commit_code(group: ConsumerGroup, member_id: str, epoch: int, version: int = 9) -> ErrorCode:
    try:
        group.validate_offset_commit(member_id, None, epoch, transactional=False, api_version=version)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def test_members_commit_in_their_epoch(simulation: ConsumerSimulation) -> None:
    simulation.beat(simulation.client("a", "t"))
    group = simulation.group

    assert ErrorCode.NONE is commit_code(group, "a", 1)
    assert ErrorCode.STALE_MEMBER_EPOCH is commit_code(group, "a", 0)
    assert ErrorCode.STALE_MEMBER_EPOCH is commit_code(group, "a", 2)
    assert ErrorCode.UNKNOWN_MEMBER_ID is commit_code(group, "b", 1)
    assert ErrorCode.UNKNOWN_MEMBER_ID is commit_code(group, "", -1)
    assert ErrorCode.UNSUPPORTED_VERSION is commit_code(group, "a", 1, version=8)


@pytest.mark.parametrize("instance_id", [None, "static"])
def test_a_member_that_gave_up_its_partitions_joins_again_with_epoch_0(
    simulation: ConsumerSimulation, instance_id: str | None
) -> None:
    """Fenced members do (KAFKA-19233): the coordinator knows the member with a later epoch."""
    first = simulation.client("a", "t", instance_id=instance_id)
    simulation.beat(first)
    second = simulation.client("b", "t")
    simulation.beat(second)
    simulation.beat(first)
    simulation.beat(first)
    assert simulation.group.member("a").previous_epoch > 0

    first.epoch, first.given = 0, None
    first.owned.clear()
    response = simulation.beat(first)

    assert (0, 2) == (response.error_code, response.member_epoch)
    assert 1 == len(simulation.names(first))
    assert MemberState.STABLE is simulation.group.member("a").state


def test_joining_again_acknowledges_what_the_member_had_to_revoke(simulation: ConsumerSimulation) -> None:
    first, second = simulation.client("a", "t"), simulation.client("b", "t")
    simulation.beat(first)
    simulation.beat(second)
    first.owned = set(first.given or ())
    simulation.send(member_id="a", member_epoch=1)
    assert MemberState.UNREVOKED_PARTITIONS is simulation.group.member("a").state

    first.epoch, first.given = 0, None
    first.owned.clear()
    simulation.beat(first)
    simulation.beat(second)

    assert MemberState.STABLE is simulation.group.member("a").state
    assert ["t-0", "t-1"] == sorted(simulation.names(first) + simulation.names(second))


def test_who_cannot_leave_because_the_log_refuses_it_is_fenced_in_time(
    simulation: ConsumerSimulation,
) -> None:
    """Without its timers the member would stay for ever, and the group wait for it."""
    simulation.beat(simulation.client("a", "t"))
    leaving = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=-1)
    refused = simulation.protocol.heartbeat(leaving, 1, "client", "/host")
    assert refused.records, "what it decided is never written"

    simulation.advance(simulation.config.group_consumer_session_timeout_ms)

    assert not simulation.group.members


def test_who_left_has_no_timers(simulation: ConsumerSimulation) -> None:
    client = simulation.client("a", "t")
    simulation.beat(client)
    simulation.leave(client)
    assert {"cleanup"} == simulation.context.timers.keys()


def test_members_of_groups_whose_names_run_together_have_timers_of_their_own(
    simulation: ConsumerSimulation,
) -> None:
    for group_id, member_id in (("g/a", "m"), ("g", "a/m")):
        joining = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        simulation.write(simulation.protocol.heartbeat(joining, 1, "client", "/host"))
    sessions = [key for key in simulation.context.timers if key.startswith("consumer-session")]
    assert 2 == len(sessions)


def test_anybody_commits_to_an_empty_group(simulation: ConsumerSimulation) -> None:
    client = simulation.client("a", "t")
    simulation.beat(client)
    simulation.leave(client)

    assert ErrorCode.NONE is commit_code(simulation.group, "", -1)
    assert ErrorCode.UNKNOWN_MEMBER_ID is commit_code(simulation.group, "a", 1)


def test_members_fetch_in_their_epoch_and_administrators_always(simulation: ConsumerSimulation) -> None:
    simulation.beat(simulation.client("a", "t"))
    group = simulation.group

    group.validate_offset_fetch(None, -1)
    group.validate_offset_fetch("a", 1)
    assert ErrorCode.STALE_MEMBER_EPOCH is code_of(group.validate_offset_fetch, "a", 3)
    assert ErrorCode.UNKNOWN_MEMBER_ID is code_of(group.validate_offset_fetch, "b", 1)


def test_only_an_empty_group_is_deleted(simulation: ConsumerSimulation) -> None:
    client = simulation.client("a", "t")
    simulation.beat(client)
    assert ErrorCode.NON_EMPTY_GROUP is code_of(simulation.group.validate_delete)
    simulation.leave(client)

    simulation.group.validate_delete()
    simulation.apply(simulation.group.tombstones())

    assert GROUP not in simulation.shard.groups
    assert {} == simulation.state(simulation.replayed(compacted=True))


def test_offsets_of_subscribed_topics_are_not_deleted(simulation: ConsumerSimulation) -> None:
    simulation.topics.put("orders", 1)
    simulation.beat(simulation.client("a", "t"))
    simulation.beat(simulation.client("b", regex="ord.*"))
    simulation.advance(10)

    assert simulation.group.is_subscribed("t")
    assert simulation.group.is_subscribed("orders")
    assert not simulation.group.is_subscribed("other")


def test_a_member_that_acknowledges_its_join_at_once_gets_the_topics_of_its_expression(
    simulation: ConsumerSimulation,
) -> None:
    """Clients do so within a millisecond; a later resolution would cost them a heartbeat interval."""
    topic_id = simulation.topics.put("orders", 1)
    client = simulation.client("b", regex="ord.*")
    simulation.beat(client)
    simulation.beat(client)

    assert {(topic_id, 0)} == client.given or {(topic_id, 0)} == client.owned


def test_an_expression_finds_a_new_topic_after_ten_seconds(simulation: ConsumerSimulation) -> None:
    """Not with each heartbeat: resolving costs time, and many topics may come one after the other."""
    first = simulation.topics.put("orders-a", 1)
    client = simulation.client("b", regex="ord.*")
    simulation.beat(client)
    simulation.beat(client)
    second = simulation.topics.put("orders-b", 1)
    for milliseconds, topics in ((9_000, {first}), (1_000, {first, second})):
        simulation.advance(milliseconds)
        for _ in range(3):
            simulation.beat(client)
        assert topics == {topic_id for topic_id, _ in client.owned}


def test_an_expression_over_many_topics_is_resolved_in_several_slices(simulation: ConsumerSimulation) -> None:
    """The event loop serves other requests between them."""
    for number in range(NAMES_PER_SLICE_MAX):
        simulation.topics.put(f"other-{number}", 1)
    topic_id = simulation.topics.put("orders", 1)
    client = simulation.client("b", regex="ord.*")
    simulation.beat(client)
    simulation.beat(client)
    assert not client.given
    assert not client.owned

    simulation.advance(10)
    simulation.beat(client)
    assert {(topic_id, 0)} == client.given or {(topic_id, 0)} == client.owned


def test_a_description_tells_members_and_targets(simulation: ConsumerSimulation) -> None:
    simulation.beat(simulation.client("a", "t"))
    simulation.beat(simulation.client("b", "t", assignor="range"))

    described = simulation.protocol.describe(GROUP)

    assert ("Reconciling", 2, 2, "range") == (
        described.group_state,
        described.group_epoch,
        described.assignment_epoch,
        described.assignor_name,
    )
    a, b = described.members
    assert [0, 1] == a.assignment.topic_partitions[0].partitions
    assert ("t", [0]) == (
        a.target_assignment.topic_partitions[0].topic_name,
        a.target_assignment.topic_partitions[0].partitions,
    )
    assert [] == b.assignment.topic_partitions
    assert [1, 1] == [a.member_type, b.member_type]
    assert ErrorCode.GROUP_ID_NOT_FOUND is code_of(simulation.protocol.describe, "nobody")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"group_consumer_session_timeout_ms": 1}, "group.consumer.session.timeout.ms=1 is not between"),
        (
            {"group_consumer_assignment_interval_ms": 15_001},
            "group.consumer.assignment.interval.ms=15001 is not between",
        ),
        ({"group_consumer_heartbeat_interval_ms": 99_999}, "group.consumer.heartbeat.interval.ms=99999"),
        (
            {
                "group_consumer_heartbeat_interval_ms": 60_000,
                "group_consumer_max_heartbeat_interval_ms": 60_000,
            },
            "must be below group.consumer.session.timeout.ms=45000",
        ),
        ({"group_consumer_assignors": ("best",)}, "'best'; there are 'uniform' and 'range'"),
        ({"group_consumer_assignors": ()}, "group.consumer.assignors is empty"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text.replace(".", r"\.")):
        ConsumerGroupConfig(**settings)


def test_assignors_go_by_kafkas_class_names() -> None:
    package = "org.apache.kafka.coordinator.group.assignor"
    config = ConsumerGroupConfig(
        group_consumer_assignors=(f"{package}.RangeAssignor", f"{package}.UniformAssignor")
    )

    assert ["range", "uniform"] == list(config.assignors())


def test_expressions_are_matched_in_slices() -> None:
    """One turn of the event loop matches so much and no more."""
    names = [f"topic-{number}" for number in range(3 * NAMES_PER_SLICE_MAX)]
    resolution = RegexResolution(["topic-.*7", ".*-1"], names, 5)

    turns = 1
    while not resolution.step():
        turns += 1

    assert 3 == turns
    assert frozenset({"topic-1"}) == resolution.found[".*-1"]
    assert len([name for name in names if name.endswith("7")]) == len(resolution.found["topic-.*7"])


def test_an_expression_does_not_find_what_the_client_may_not_describe() -> None:
    resolution = RegexResolution([".*"], ["orders", "hidden"], 5, lambda name: name != "hidden")

    assert resolution.step()
    assert {".*": frozenset({"orders"})} == resolution.found


def test_a_slice_ends_when_its_time_is_up() -> None:
    resolution = RegexResolution(["a.*"], ["ab", "b", "ac"], 5)

    assert [False, False, True] == [resolution.step(lambda: True) for _ in range(3)]
    assert {"a.*": frozenset({"ab", "ac"})} == resolution.found


def test_a_topic_may_be_named_more_than_once() -> None:
    """Seen in leaders' assignments; taking the last one only would give partitions to two members."""
    topics = [TopicPartitions(topic_id=T, partitions=[number]) for number in (0, 2)]

    assert {T: frozenset({0, 2})} == assignment_of(topics)


@pytest.mark.parametrize("regex", ["(", "a(?=b)", "(?P<n", r"\1", "((a{100}){100}){9}"])
def test_what_re2_cannot_do_is_refused(regex: str) -> None:
    """No look-around, no back references, no programs of any size: linear time whatever clients send."""
    assert ErrorCode.INVALID_REGULAR_EXPRESSION is code_of(check_regex, regex)


def test_a_state_of_a_newer_broker_fences_the_member() -> None:
    member = Member("a", state=MemberState.read(9), epoch=3, assigned={T: frozenset({0})})

    assert MemberState.UNKNOWN is member.state
    owned = {T: frozenset({0})}
    assert ErrorCode.FENCED_MEMBER_EPOCH is code_of(reconcile, member, 4, owned, owned, lambda *_: None)
    again = reconcile(member, 4, {T: frozenset({0})}, {}, lambda *_: "a")
    assert (4, {T: frozenset({0})}) == (again.epoch, again.assigned)


def test_a_compacted_log_may_show_the_next_owner_first() -> None:
    """What is left of "a gives 0 back, b takes it, a leaves" may be read in another order."""
    simulation = ConsumerSimulation()
    shard = simulation.replayed()
    a = Member("a", epoch=1, assigned={T: frozenset({0})})
    b = Member("b", epoch=2, assigned={T: frozenset({0})})

    records = [
        group_epoch_record(GROUP, 2),
        member_record(GROUP, a),
        current_record(GROUP, a),
        current_record(GROUP, b),
        member_record(GROUP, b),
        current_record(GROUP, Member("a", epoch=2)),
    ]
    for offset, record in enumerate(records):
        shard.replay(offset, -1, -1, record)

    group = shard.group(GROUP)
    assert isinstance(group, ConsumerGroup)
    assert "b" == group.owner_of(T, 0)
    for record in group_removal(GROUP, ["a", "b"], []):
        shard.replay(99, -1, -1, record)
    assert GROUP not in shard.groups
    shard.replay(100, -1, -1, target_record(GROUP, "c", None))
    assert GROUP not in shard.groups, "a tombstone makes no group"


def test_a_failed_write_changes_nothing_and_is_made_up_for() -> None:
    """The group looks at its topics again if the epoch that it was about to have never came."""
    simulation = ConsumerSimulation()
    simulation.topics.put("t", 1)
    client = simulation.client("a", "t")
    simulation.beat(client)
    simulation.topics.put("t", 2)
    before = simulation.state()
    lost = simulation.protocol.heartbeat(
        ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=1, topic_partitions=[]),
        1,
        "client",
        "/host",
    )
    assert lost.records
    assert before == simulation.state()

    simulation.beat(client)

    assert ["t-0", "t-1"] == simulation.names(client)


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_groups_stay_what_they_are_if_the_policy_says_so(policy: MigrationPolicy) -> None:
    simulation = ConsumerSimulation(group_consumer_migration_policy=policy)
    simulation.topics.put("t", 2)
    classic = ClassicClient(simulation)
    for _ in range(6):
        classic.step()
        simulation.advance(10)

    response = simulation.beat(simulation.client("a", "t"))

    assert ErrorCode.GROUP_ID_NOT_FOUND == response.error_code
    assert 2 == len(classic.owned)


def test_a_static_member_goes_over_to_the_classic_protocol_and_back() -> None:
    """The last consumer member comes back speaking the classic protocol: the group follows."""
    simulation = ConsumerSimulation()
    simulation.topics.put("t", 2)
    modern = simulation.client("a", "t", instance_id="one")
    simulation.beat(modern)
    simulation.leave(modern, -2)
    classic = ClassicClient(simulation, instance_id="one")

    for _ in range(8):
        classic.step()
        simulation.advance(10)

    assert GroupType.CLASSIC is simulation.shard.groups[GROUP].kind
    assert 2 == len(classic.owned)
    back = simulation.client("b", "t", instance_id="one")
    simulation.beat(back)
    assert ["t-0", "t-1"] == simulation.names(back)
    classic.step()
    assert not classic.is_stable, "it is fenced"
    assert 1 == len(simulation.group.members)
    assert not simulation.group.is_all_classic


def test_heartbeats_are_refused_where_the_protocol_is_switched_off() -> None:
    def run(*_: Any) -> Pending[Any]:
        raise AssertionError("nothing runs")

    groups = ConsumerGroupCoordinator(run, is_enabled=lambda: False)

    response = groups.heartbeat(ConsumerGroupHeartbeatRequest(group_id=GROUP), 1, "c", "/h").value
    (described,) = groups.describe([GROUP]).value

    assert ErrorCode.UNSUPPORTED_VERSION == response.error_code == described.error_code


def test_members_leave_while_groups_of_the_consumer_protocol_are_not_served(
    simulation: ConsumerSimulation,
) -> None:
    """Clients end on UNSUPPORTED_VERSION without leaving; the classic protocol must not wait for them."""

    def run(group_id: str, operation: Any) -> Pending[Any]:
        outcome: Pending[Any] = Pending()
        try:
            outcome.complete(simulation.write(operation(simulation.protocol)))
        except ApiError as error:
            outcome.fail(error)
        return outcome

    is_served = True
    groups = ConsumerGroupCoordinator(run, is_served=lambda: is_served)
    member = simulation.client("a", "t")
    simulation.beat(member)
    is_served = False

    for epoch in (0, 1, 1):
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=epoch)
        response = groups.heartbeat(request, 1, "c", "/h").value
        assert ErrorCode.UNSUPPORTED_VERSION == response.error_code
        assert "group.protocol=classic" in (response.error_message or "")
        assert (epoch == 0) == bool(simulation.group.members)
    assert "Empty" == simulation.group.state_name


def test_a_member_leaves_by_itself_while_no_group_is_served(simulation: ConsumerSimulation) -> None:
    """No feature is in force then either."""

    def run(group_id: str, operation: Any) -> Pending[Any]:
        return Pending.of(simulation.write(operation(simulation.protocol)))

    groups = ConsumerGroupCoordinator(run, is_enabled=lambda: False, is_served=lambda: False)
    simulation.beat(simulation.client("a", "t"))
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=-1)
    assert ErrorCode.NONE == groups.heartbeat(request, 1, "c", "/h").value.error_code
    assert not simulation.group.members


def test_a_member_that_cannot_leave_yet_asks_again() -> None:
    """Otherwise it would stop, and the classic protocol would wait until its session ends."""

    def run(*_: Any) -> Pending[Any]:
        refused: Pending[Any] = Pending()
        refused.fail(ApiError(ErrorCode.NOT_COORDINATOR))
        return refused

    groups = ConsumerGroupCoordinator(run, is_served=lambda: False)
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=1)
    assert ErrorCode.NOT_COORDINATOR == groups.heartbeat(request, 1, "c", "/h").value.error_code


def test_failures_become_answers() -> None:
    """What the runtime refuses (loading, not coordinator) reaches the client in the response's own field."""

    def run(*_: Any) -> Pending[Any]:
        refused: Pending[Any] = Pending()
        refused.fail(ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        return refused

    groups = ConsumerGroupCoordinator(run, is_enabled=lambda: True)

    response = groups.heartbeat(ConsumerGroupHeartbeatRequest(group_id=GROUP), 1, "c", "/h").value
    described = groups.describe([GROUP, ""]).value

    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS == response.error_code
    assert [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.INVALID_GROUP_ID] == [
        each.error_code for each in described
    ]


def test_a_classic_member_needs_the_protocols_of_the_others() -> None:
    simulation = ConsumerSimulation()
    simulation.topics.put("t", 2)
    simulation.beat(simulation.client("a", "t"))
    classic = ClassicClient(simulation)
    for _ in range(4):
        classic.step()
    other = JoinGroupRequest(
        group_id=GROUP,
        member_id="x",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequestProtocol(name="mine", metadata=b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff")
        ],
    )

    assert ErrorCode.INCONSISTENT_GROUP_PROTOCOL == join_code(simulation, other)
    other.protocols[0].name = "range"
    other.protocol_type = "connect"
    assert ErrorCode.INCONSISTENT_GROUP_PROTOCOL == join_code(simulation, other)
    other.protocol_type = "consumer"
    other.protocols[0].metadata = b"\x00"
    assert ErrorCode.INCONSISTENT_GROUP_PROTOCOL == join_code(simulation, other)


def join_code(simulation: ConsumerSimulation, request: JoinGroupRequest) -> ErrorCode:
    answer = simulation.write(simulation.classic.join(request, Requester("c", "/h", 9)))
    return ErrorCode(answer.value.error_code)


def test_a_group_has_times_of_its_own(simulation: ConsumerSimulation) -> None:
    simulation.of_groups[GROUP] = {"session_timeout_ms": 50_000, "heartbeat_interval_ms": 7_000}
    joining = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="a",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    joined = simulation.protocol.heartbeat(joining, 1, "client", "/host")
    simulation.write(joined)
    assert isinstance(joined.response, ConsumerGroupHeartbeatResponse)
    assert 7_000 == joined.response.heartbeat_interval_ms

    simulation.advance(simulation.config.group_consumer_session_timeout_ms)
    assert simulation.group.members
    simulation.advance(5_000)
    assert not simulation.group.members
