"""A classic group under whatever its members, the log and time do: laws that no order of events may break."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.common.errors import ErrorCode
from kalda.coordinator.group.classic.classic_group import ClassicGroup, GroupState
from kalda.coordinator.runtime.shard_context import RuntimeContext
from tests.unit.coordinator.group.group_simulation import GroupSimulation

NAMES = ("a", "b", "c", "d")
STATIC = ("s", "t")

names = st.sampled_from(NAMES + STATIC)
events = st.one_of(
    st.tuples(st.just("gather"), st.sampled_from([2, 3, len(NAMES + STATIC)])),
    st.tuples(st.just("join"), names),
    st.tuples(st.just("join"), names),
    st.tuples(st.just("sync"), names),
    st.tuples(st.just("sync"), names),
    st.tuples(st.just("heartbeat"), names),
    st.tuples(st.just("leave"), names),
    st.tuples(st.just("forget"), names),
    st.tuples(st.just("protocols"), names),
    st.tuples(st.just("commit"), names),
    st.tuples(st.just("advance"), st.sampled_from([50, 500, 3100, 6000, 11_000])),
    st.tuples(st.just("lag"), st.booleans()),
    st.tuples(st.just("refuse"), st.booleans()),
    st.tuples(st.just("fail_over"), st.none()),
)


@dataclass
class Witness:
    """What was seen of each generation, to compare what comes later with.

    A generation that was announced and not assigned is not in the log: the next coordinator counts it anew,
    as in Kafka, and its members' ids tell the two apart.
    """

    epoch: int = 0
    protocols: dict[int, str | None] = field(default_factory=dict)
    generation: int = 0

    def look(self, simulation: GroupSimulation) -> None:
        group = simulation.group
        if group is None:
            return
        check_numbers(group)
        check_timers(simulation, group)
        if simulation.epoch != self.epoch:
            self.epoch, self.generation = simulation.epoch, group.generation_id
            self.protocols.clear()
            for client in simulation.clients.values():
                client.joined = None
        assert group.generation_id >= self.generation, f"{group} went back"
        self.generation = group.generation_id
        for client in simulation.clients.values():
            joined = client.joined
            if joined is not None:
                assert joined.generation_id <= group.generation_id
                present = self.protocols.setdefault(joined.generation_id, joined.protocol_name)
                assert present == joined.protocol_name, f"two protocols in one generation of {group}"


def check_numbers(group: ClassicGroup) -> None:
    """The group's own numbers agree with its members."""
    waiting = [member for member in group.members.values() if member.awaiting_join is not None]
    assert len(waiting) == group.members_awaiting_join
    static = {m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None}
    assert static == group.static_members
    assert not group.pending_join & group.members.keys()
    assert group.pending_sync <= group.members.keys()
    assert (group.leader_id is None) == (not group.members)
    assert group.leader_id is None or group.leader_id in group.members
    if group.state is GroupState.EMPTY:
        assert not group.members
    if group.state in (GroupState.STABLE, GroupState.EMPTY):
        assert not any(member.awaiting_sync for member in group.members.values())
    if group.members:
        protocols = [set(member.protocols) for member in group.members.values()]
        assert set.intersection(*protocols), f"nothing that all members of {group} have"


def check_timers(simulation: GroupSimulation, group: ClassicGroup) -> None:
    """Nobody can be waited for without end."""
    context = simulation.shard.context
    assert isinstance(context, RuntimeContext)
    timers = context._timers
    for member in group.members.values():
        has_timer = f"heartbeat:{group.group_id}:{member.member_id}" in timers
        assert has_timer or member.has_satisfied_heartbeat or member.awaiting_join, f"{member} is forgotten"
    for member_id in group.pending_join:
        assert f"heartbeat:{group.group_id}:{member_id}" in timers
    if group.state is GroupState.PREPARING_REBALANCE:
        assert f"join:{group.group_id}" in timers, f"{group} may prepare for ever"


def play(simulation: GroupSimulation, event: tuple[str, object]) -> None:
    kind, what = event
    if kind == "advance":
        assert isinstance(what, int)
        simulation.advance(what)
    elif kind == "lag":
        simulation.log.lag = bool(what)
        if not what:
            simulation.replicate()
    elif kind == "refuse":
        simulation.log.append_error = ErrorCode.NOT_ENOUGH_REPLICAS if what else None
    elif kind == "fail_over":
        # Only what is replicated survives, and here everything that was appended is.
        simulation.replicate()
        simulation.fail_over()
    elif kind == "gather":
        # Several at once, up to the point where they wait for their leader's assignment.
        assert isinstance(what, int)
        for _ in range(2):
            for name in (STATIC + NAMES)[:what]:
                play(simulation, ("join", name))
        simulation.advance(6200)
        for name in (STATIC + NAMES)[1:what]:
            play(simulation, ("sync", name))
    else:
        name = str(what)
        client = simulation.client(name, instance_id=name if name in STATIC else None)
        if kind == "forget":
            client.member_id = ""
        elif kind == "protocols":
            client.protocols = ("sticky", "range") if client.protocols == ("range",) else ("range",)
        elif kind == "commit":
            simulation.commit(name, 1)
        else:
            getattr(simulation, kind)(name)


def simulate() -> GroupSimulation:
    """A commit may take longer than a session: members wait for it and are silent meanwhile."""
    return GroupSimulation(offsets_retention_check_interval_ms=10**9, offsets_commit_timeout_ms=30_000)


@settings(max_examples=150, deadline=None)
@given(st.lists(events, max_size=60))
def test_no_order_of_events_breaks_a_group(script: list[tuple[str, object]]) -> None:
    simulation = simulate()
    witness = Witness()
    for event in script:
        play(simulation, event)
        witness.look(simulation)
    # Everybody goes silent: whoever asked is answered, and in the end the group is empty.
    simulation.log.append_error = None
    simulation.log.lag = False
    simulation.replicate()
    simulation.advance(20 * 60_000)
    witness.look(simulation)
    assert [] == [(name, kind) for name, kind, answer in simulation.asked if not answer.is_done]
    group = simulation.group
    assert group is None or (group.state is GroupState.EMPTY and not group.pending_join)


@settings(max_examples=60, deadline=None)
@given(st.lists(events, max_size=40))
def test_what_is_loaded_is_what_was_committed(script: list[tuple[str, object]]) -> None:
    """A new coordinator knows of a stable or empty group what the old one told its members."""
    simulation = simulate()
    for event in script:
        play(simulation, event)
    simulation.log.append_error = None
    simulation.log.lag = False
    simulation.replicate()
    before = simulation.group
    offsets = dict(simulation.shard.offsets.of_group("g"))
    told = None
    if before is not None and before.state is GroupState.STABLE:
        told = (before.generation_id, {m.member_id: m.assignment for m in before.members.values()})
    simulation.fail_over()
    assert offsets == simulation.shard.offsets.of_group("g")
    if told is not None:
        after = simulation.group
        assert after is not None
        assert told == (after.generation_id, {m.member_id: m.assignment for m in after.members.values()})
