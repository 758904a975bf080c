"""The memory that members take is bounded, of each group and of all groups of a broker.

Sixty members with metadata of 5 MB each held 447 MB, and nothing refused the next.
"""

from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.classic.classic_member import NAMES_READ_MAX, subscribed_topics
from kalda.coordinator.group.classic.classic_protocol import ASSIGNMENTS_BYTES_MAX
from kalda.coordinator.group.classic.join import Requester
from kalda.coordinator.group.consumer.heartbeats import REGEXES_MAX, SUBSCRIBED_NAMES_MAX
from kalda.coordinator.group.group_config import GroupConfig
from kalda.coordinator.group.member_memory import COUNT_INTERVAL_MS, ENTRY_BYTES, MEMBER_BYTES
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tests.unit.coordinator.group.consumer.consumer_simulation import ConsumerSimulation
from tests.unit.coordinator.group.group_simulation import GroupSimulation, subscription

_LATEST = 9


def _join(
    simulation: GroupSimulation,
    group_id: str,
    size: int,
    *,
    member_id: str = "",
    version: int = 3,
    instance_id: str | None = None,
) -> Pending[JoinGroupResponse]:
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="connect",
        protocols=[JoinGroupRequestProtocol(name="p", metadata=bytes(size))],
    )
    answer = simulation.coordinator.join_group(request, Requester("c", "/127.0.0.1", version))
    assert isinstance(answer, Pending)
    simulation.loop.settle()
    return answer


def _code(answer: Pending[JoinGroupResponse]) -> ErrorCode:
    assert answer.is_done, "the join waits"
    return ErrorCode(answer.value.error_code)


def test_a_group_takes_bounded_memory() -> None:
    simulation = GroupSimulation(kalda_group_members_max_bytes=100_000)
    waiting = [_join(simulation, "g", 40_000) for _ in range(2)]

    refused = _join(simulation, "g", 40_000)
    assert ErrorCode.GROUP_MAX_SIZE_REACHED is _code(refused)
    assert not any(each.is_done for each in waiting)
    assert not _join(simulation, "other", 40_000).is_done, "another group has a bound of its own"


def test_metadata_that_grows_counts_once() -> None:
    """A member that joins again replaces its metadata, so that only the growth needs a place."""
    simulation = GroupSimulation(kalda_group_members_max_bytes=100_000, group_initial_rebalance_delay_ms=0)
    answer = _join(simulation, "g", 60_000)
    simulation.advance(1)
    member_id = answer.value.member_id
    again = _join(simulation, "g", 90_000, member_id=member_id)
    simulation.advance(1)
    assert ErrorCode.NONE is _code(again)
    assert ErrorCode.GROUP_MAX_SIZE_REACHED is _code(_join(simulation, "g", 110_000, member_id=member_id))
    group = simulation.shard.groups["g"]
    assert 90_000 < group.held_bytes < 100_000


def test_a_static_member_that_returns_needs_no_second_place() -> None:
    simulation = GroupSimulation(kalda_group_members_max_bytes=100_000, group_initial_rebalance_delay_ms=0)
    _join(simulation, "g", 60_000, instance_id="i")
    simulation.advance(1)
    returned = _join(simulation, "g", 60_000, instance_id="i")
    simulation.advance(70_000)
    assert ErrorCode.GROUP_MAX_SIZE_REACHED is not _code(returned)


def test_member_ids_that_nobody_joins_with_count() -> None:
    """Each JoinGroup without an id leaves one behind, for as long as the session timeout that it names."""
    simulation = GroupSimulation(kalda_group_members_max_bytes=10 * MEMBER_BYTES)
    codes = [_code(_join(simulation, "g", 0, version=_LATEST)) for _ in range(20)]
    assert codes[0] is ErrorCode.MEMBER_ID_REQUIRED
    assert codes[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED
    simulation.advance(20_000)
    assert ErrorCode.MEMBER_ID_REQUIRED is _code(_join(simulation, "g", 0, version=_LATEST))


def test_many_groups_take_bounded_memory() -> None:
    """Clients try again on COORDINATOR_NOT_AVAILABLE: it is not their group that is too large."""
    simulation = GroupSimulation(kalda_groups_members_max_bytes=100_000)
    for group_id in ("a", "b"):
        assert not _join(simulation, group_id, 40_000).is_done
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is _code(_join(simulation, "c", 40_000))
    assert "c" not in simulation.shard.groups

    # The members of version 3 get their generation and never come back.
    simulation.advance(3_000 + 60_000 + COUNT_INTERVAL_MS)
    assert not _join(simulation, "c", 40_000).is_done


def test_what_was_loaded_counts() -> None:
    simulation = GroupSimulation(kalda_groups_members_max_bytes=5_000)
    simulation.join("a", version=3)
    simulation.advance(10_000)
    simulation.sync("a")
    held_bytes = simulation.shard.groups["g"].held_bytes
    simulation.fail_over()
    assert held_bytes == simulation.shard.groups["g"].held_bytes
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE is _code(_join(simulation, "c", 4_000))


def test_an_assignment_that_no_record_can_hold_is_refused_at_once() -> None:
    """As if the log had refused it, but without four copies of 90 MB."""
    simulation = GroupSimulation()
    for name in ("a", "b"):
        simulation.join(name, version=3)
    simulation.advance(10_000)
    simulation.sync("b")
    records = simulation.log.end_offset(0)
    simulation.sync("a", {simulation.clients["a"].member_id: bytes(ASSIGNMENTS_BYTES_MAX + 1)})
    simulation.loop.settle()
    assert ["a <- sync UNKNOWN_SERVER_ERROR", "b <- sync UNKNOWN_SERVER_ERROR"] == sorted(
        simulation.events[-2:]
    )
    assert records == simulation.log.end_offset(0)
    assert "PreparingRebalance" == simulation.shard.groups["g"].state_name


def test_members_of_the_consumer_protocol_count() -> None:
    """A heartbeat may name hundreds of thousands of topics, whether they exist or not."""
    simulation = ConsumerSimulation()
    names = tuple(f"t{number}" for number in range(200))
    simulation.beat(simulation.client("a", *names))
    held_bytes = simulation.group.held_bytes
    assert 200 * ENTRY_BYTES < held_bytes

    simulation.beat(simulation.client("b", *names))
    assert held_bytes + 2 * MEMBER_BYTES > simulation.group.held_bytes, "members share equal names"


def test_a_member_names_a_bounded_number_of_topics() -> None:
    """Each name costs some microseconds of its heartbeat: 30,000 held the loop for 0.2 s."""
    simulation = ConsumerSimulation()
    simulation.topics.put("t0", 2)
    client = simulation.client("a", *(f"t{number}" for number in range(SUBSCRIBED_NAMES_MAX + 1)))
    simulation.beat(client)
    assert [ErrorCode.INVALID_REQUEST] == client.errors
    client.topics = client.topics[:-1]
    simulation.beat(client)
    assert ["t0-0", "t0-1"] == simulation.names(client)


def test_a_group_has_a_bounded_number_of_expressions() -> None:
    simulation = ConsumerSimulation()
    members = [simulation.client(f"m{number}", regex=f"a{number}") for number in range(REGEXES_MAX + 1)]
    for client in members:
        simulation.beat(client)
    assert [[]] * REGEXES_MAX + [[ErrorCode.INVALID_REQUEST]] == [client.errors for client in members]

    same = simulation.client("same", regex="a0")
    simulation.beat(same)
    assert not same.errors
    # A member may replace the expression that only it has.
    members[1].regex, members[1].is_unsure = "b", True
    simulation.beat(members[1])
    assert not members[1].errors


def test_subscriptions_are_read_up_to_a_bound() -> None:
    """A group whose subscriptions are too large to read counts as subscribed to everything."""
    assert frozenset({"a", "b"}) == subscribed_topics([subscription("x", ("a",)), subscription("y", ("b",))])
    large = subscription("x", tuple(f"{number}" for number in range(NAMES_READ_MAX // 2)))
    assert NAMES_READ_MAX // 2 == len(subscribed_topics([large] * 1000) or ())
    assert subscribed_topics([large, subscription("y", ("b",)), large + b" "]) is None
    assert subscribed_topics([b"\0\0\x7f\xff\xff\xff"]) is None


def test_a_member_of_the_consumer_protocol_is_refused() -> None:
    simulation = ConsumerSimulation()
    config = GroupConfig(kalda_group_members_max_bytes=50_000)
    simulation.group_config = config
    simulation.fail_over()
    names = tuple(f"t{number}" for number in range(200))
    simulation.beat(simulation.client("a", *names))
    second = simulation.client("b", *names[1:])
    simulation.beat(second)
    assert [ErrorCode.GROUP_MAX_SIZE_REACHED] == second.errors
    assert ["a"] == list(simulation.group.members)
