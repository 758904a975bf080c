"""Members of groups, as our consumer decides, with our own coordinator: random orders, losses and failovers.

Whatever happens: no partition is used by two members, and once things calm down every partition is used.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.clients.consumer.assignors.assignor_names import common_protocol, find_assignors
from kalda.clients.consumer.assignors.partition_assignor import GroupTopics, RebalanceProtocol, Subscription
from kalda.clients.consumer.group.classic_leader import read_members, read_own_assignment, run_assignor
from kalda.clients.consumer.group.classic_member import ClassicMember, Generation, MemberState, Next
from kalda.clients.consumer.group.classic_subscription import write_assignment, write_subscription
from kalda.clients.consumer.group.consumer_member import (
    ConsumerMember,
    HeartbeatResult,
    MemberOptions,
    Reconciliation,
    SubscribedTopics,
)
from kalda.clients.consumer.group.consumer_member import MemberState as ConsumerState
from kalda.common.pending import Pending
from kalda.common.types import TopicPartition
from kalda.coordinator.group.classic.join import Requester
from kalda.protocol.messages.join_group import JoinGroupResponse
from tests.unit.coordinator.group.consumer.consumer_simulation import ConsumerSimulation
from tests.unit.coordinator.group.group_simulation import GROUP, GroupSimulation

MEMBERS = 4
TOPICS: GroupTopics = {"t": [frozenset()] * 5, "u": [frozenset()] * 2}
PARTITIONS = {TopicPartition(topic, n) for topic, racks in TOPICS.items() for n in range(len(racks))}

Step = tuple[str, int]


def steps(*actions: str) -> st.SearchStrategy[list[Step]]:
    return st.lists(
        st.tuples(st.sampled_from(actions), st.integers(0, MEMBERS - 1)), min_size=20, max_size=80
    )


class ClassicConsumer:
    """A consumer of a classic group; `used` are the partitions that it consumes."""

    def __init__(self, simulation: GroupSimulation, strategy: str) -> None:
        self.simulation = simulation
        self.assignors = find_assignors([strategy])
        self.protocol = common_protocol(self.assignors)
        self.machine = ClassicMember(GROUP, None, 10_000, 60_000)
        self.used: set[TopicPartition] = set()
        self.answers: deque[tuple[str, Any, Generation]] = deque()
        self.is_waiting = False

    def poll(self) -> None:
        """Join if that is due and nothing is under way."""
        machine = self.machine
        if not machine.needs_rejoin or self.is_waiting:
            return
        if machine.needs_prepare and (
            machine.has_lost_partitions or self.protocol is RebalanceProtocol.EAGER
        ):
            self.used.clear()
        machine.needs_prepare = False
        (assignor,) = self.assignors
        sent = machine.generation
        data = assignor.subscription_user_data(TOPICS)
        subscription = Subscription(tuple(TOPICS), data, tuple(self.used), sent.generation_id)
        request = machine.join_request([(assignor.name, write_subscription(subscription))])
        requester = Requester("client", "/127.0.0.1", 9)
        self._await("join", self.simulation.coordinator.join_group(request, requester), sent)

    def heartbeat(self) -> None:
        """Send a heartbeat if one is due."""
        if self.machine.is_part_of_group:
            sent = self.machine.generation
            code = self.simulation.coordinator.heartbeat(self.machine.heartbeat_request())
            self.machine.on_heartbeat_response(code, sent)

    def receive(self, *, is_lost: bool = False) -> None:
        """Process the first answer that has come; a lost one shows as a lost connection."""
        if not self.answers:
            return
        kind, answer, sent = self.answers.popleft()
        self.is_waiting = False
        if is_lost or answer is None:
            self.machine.request_rejoin("the connection was lost")
        elif kind == "join":
            if self.machine.on_join_response(answer, sent) is Next.PROCEED:
                self._sync(answer)
        elif self.machine.on_sync_response(answer, sent) is Next.PROCEED:
            assignment = read_own_assignment(answer.assignment, GROUP)
            revoked = self.used.difference(assignment.partitions)
            self.used = set(assignment.partitions)
            self.assignors[0].on_assignment(assignment, self.machine.generation.generation_id)
            if revoked:
                self.machine.request_rejoin("need to revoke partitions and re-join")

    def _sync(self, joined: JoinGroupResponse) -> None:
        assignments = {}
        if joined.leader == joined.member_id:
            assigned = run_assignor(self.assignors[0], TOPICS, read_members(joined), self.protocol)
            assignments = {member_id: write_assignment(each) for member_id, each in assigned.items()}
        request = self.machine.sync_request(assignments)
        self._await("sync", self.simulation.coordinator.sync_group(request), self.machine.generation)

    def _await(self, kind: str, result: Any, sent: Generation) -> None:
        self.is_waiting = True
        if isinstance(result, Pending):
            result.add_done(
                lambda done: self.answers.append((kind, None if done.error else done.value, sent))
            )
        else:
            self.answers.append((kind, result, sent))

    def leave(self) -> None:
        """Leave the group and begin again."""
        if self.machine.can_leave:
            self.simulation.coordinator.leave_group(self.machine.leave_request(5, "bye"))
        self.machine.left("bye")
        self.used.clear()


class ClassicRun:
    """A classic group of our consumers."""

    def __init__(self, strategy: str) -> None:
        self.simulation = GroupSimulation(group_initial_rebalance_delay_ms=0)
        self.members = [ClassicConsumer(self.simulation, strategy) for _ in range(MEMBERS)]

    def do(self, action: str, number: int) -> None:
        member = self.members[number]
        if action == "poll":
            member.poll()
        elif action == "receive":
            member.receive()
        elif action == "lose":
            member.receive(is_lost=True)
        elif action == "heartbeat":
            member.heartbeat()
        elif action == "all poll":
            for each in self.members:
                each.heartbeat()
                each.poll()
        elif action == "rejoin":
            member.machine.request_rejoin("a test asked for it")
        elif action == "leave":
            member.leave()
        elif action == "fail over":
            self.simulation.fail_over()
        elif action == "time":
            self.simulation.advance(11_000)
        self.simulation.replicate()
        self.forget_removed()

    def forget_removed(self) -> None:
        """A member whose session has ended stops by itself: it cannot reach the coordinator."""
        group = self.simulation.group
        members = {} if group is None else group.members
        for each in self.members:
            if each.used and each.machine.generation.member_id not in members:
                each.used.clear()

    def settle(self, count: int = MEMBERS) -> None:
        """Let the first members do what they should until everything has found its place."""
        for _ in range(60):
            for member in self.members[:count]:
                member.receive()
                member.heartbeat()
                member.poll()
                self.simulation.replicate()
            self.simulation.advance(1_500)
            self.forget_removed()

    def check(self) -> None:
        used = [partition for member in self.members for partition in member.used]
        assert len(used) == len(set(used)), f"used twice: {sorted(used)}"


@settings(max_examples=120, deadline=None)
@given(
    strategy=st.sampled_from(["range", "roundrobin", "sticky", "cooperative-sticky"]),
    order=st.lists(st.integers(0, MEMBERS - 1), min_size=4, max_size=20),
    actions=steps(
        *["all poll", "receive", "receive", "receive", "receive", "poll", "heartbeat", "lose", "rejoin"],
        *["leave", "fail over", "time"],
    ),
)
def test_partitions_of_a_classic_group_have_one_user(
    strategy: str, order: Sequence[int], actions: Sequence[Step]
) -> None:
    """In the end all members are in one generation that assigns everything."""
    run = ClassicRun(strategy)
    run.settle(2)
    # A third member joins; the members see the new generation in any order.
    for action in ("poll", "receive", "poll", "all poll"):
        run.do(action, 2)
    for number in order:
        run.do("receive", number)
        run.check()
    for action, number in actions:
        run.do(action, number)
        run.check()
    run.settle()
    run.check()
    assert {MemberState.STABLE} == {member.machine.state for member in run.members}
    assert sorted(PARTITIONS) == sorted(partition for member in run.members for partition in member.used)
    assert 1 == len({member.machine.generation.generation_id for member in run.members})


class NewConsumer:
    """A consumer of a group of the consumer protocol; `used` are the partitions that it consumes."""

    def __init__(self, simulation: ConsumerSimulation, number: int) -> None:
        self.simulation = simulation
        self.machine = ConsumerMember(MemberOptions(GROUP, None, None, 60_000, None), f"m{number}")
        self.topics = SubscribedTopics(frozenset(TOPICS))
        self.used: set[tuple[UUID, int]] = set()
        self.step: Reconciliation | None = None

    def beat(self, *, is_lost: bool = False) -> None:
        """Send a heartbeat; join if this member is not in the group."""
        machine = self.machine
        if not machine.is_in_group:
            machine.join()
        request = machine.heartbeat_request(1, self.topics)
        fields = {name: getattr(request, name) for name in FIELDS}
        response = self.simulation.send(**fields)
        if is_lost:
            machine.heartbeat_failed()
        elif machine.on_heartbeat_response(response) is HeartbeatResult.FENCED:
            self.used.clear()

    def revoke(self) -> None:
        """Begin to reconcile: give up what the target does not have."""
        if self.machine.state is ConsumerState.RECONCILING and self.step is None:
            names = {info.topic_id: info.name for info in map(self.simulation.topics.topic, TOPICS) if info}
            self.step = self.machine.reconcile(names)
            self.used &= partitions_of(self.step)

    def assign(self) -> None:
        """End the reconciliation, unless the member was fenced meanwhile."""
        step, self.step = self.step, None
        if step is not None and self.machine.take(step):
            self.used = partitions_of(step)
            self.machine.taken(step)

    def leave(self) -> None:
        """Leave the group."""
        self.machine.prepare_leaving()
        self.used.clear()
        request = self.machine.leave_request()
        if request is not None:
            self.simulation.send(**{name: getattr(request, name) for name in FIELDS})


FIELDS = (
    "member_id",
    "member_epoch",
    "rebalance_timeout_ms",
    "subscribed_topic_names",
    "subscribed_topic_regex",
    "server_assignor",
    "topic_partitions",
)


def partitions_of(step: Reconciliation) -> set[tuple[UUID, int]]:
    partitions = step.resolved.partitions
    return {(topic_id, number) for topic_id, numbers in partitions.items() for number in numbers}


@settings(max_examples=150, deadline=None)
@given(
    actions=steps(
        *[
            "beat",
            "beat",
            "beat",
            "revoke",
            "assign",
            "revoke",
            "assign",
            "lose",
            "leave",
            "fail over",
            "time",
        ]
    )
)
def test_partitions_of_a_consumer_protocol_group_have_one_user(actions: Sequence[Step]) -> None:
    """In the end all members are stable, and the assignment has everything."""
    simulation = ConsumerSimulation()
    for topic, racks in TOPICS.items():
        simulation.topics.put(topic, len(racks))
    members = [NewConsumer(simulation, number) for number in range(MEMBERS)]

    def check() -> None:
        group = simulation.shard.groups.get(GROUP)
        known = getattr(group, "members", {})
        for each in members:
            if each.machine.member_id not in known:
                # Its session or its time to revoke is over, and it stops by itself.
                each.used.clear()
        used = [partition for each in members for partition in each.used]
        assert len(used) == len(set(used)), f"used twice: {used}"

    settle(simulation, members[:2], check)
    for action, number in actions:
        member = members[number]
        if action in ("beat", "lose"):
            member.beat(is_lost=action == "lose")
        elif action == "revoke":
            member.revoke()
        elif action == "assign":
            member.assign()
        elif action == "leave":
            member.leave()
        elif action == "fail over":
            simulation.fail_over()
        else:
            simulation.advance(20_000)
        check()
    settle(simulation, members, check)
    assert {ConsumerState.STABLE} == {member.machine.state for member in members}
    assert len(PARTITIONS) == sum(len(member.used) for member in members)


def settle(simulation: ConsumerSimulation, members: Sequence[NewConsumer], check: Callable[[], None]) -> None:
    """Let the members do what they should until everything has found its place.

    That may take a session: a member of which two answers in a row are lost is shut out for so long.
    """
    for _ in range(60):
        for member in members:
            member.beat()
            member.assign()
            member.revoke()
            member.assign()
        simulation.advance(1_000)
        check()
