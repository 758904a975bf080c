"""Groups whose members speak either protocol, come, go and vanish, while the coordinator moves.

The group is what its members need, at every point nobody shares a partition, and in the end all is used.
"""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.coordinator.group.classic.classic_group import ClassicGroup, GroupState
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.member import ConsumerGroupState
from tests.unit.coordinator.group.consumer.classic_clients import ClassicClient
from tests.unit.coordinator.group.consumer.consumer_simulation import GROUP, Client, ConsumerSimulation

MEMBERS = 5
CLASSIC = 3
"""The first members speak the classic protocol."""
ACTIONS = ("step", "step", "step", "step", "all", "leave", "vanish", "time", "fail_over", "compact")

steps = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, MEMBERS - 1)), max_size=60)


class MigrationRun:
    """The simulation with its clients, by number."""

    def __init__(self) -> None:
        self.simulation = ConsumerSimulation()
        self.simulation.topics.put("t", 4)
        self.clients: dict[int, Client | ClassicClient] = {}
        self.incarnation = 0

    def do(self, action: str, number: int) -> None:
        present = self.clients.get(number)
        if action == "step":
            self.step(number)
        elif action == "all":
            self.step_all()
        elif action == "leave" and present is not None:
            if isinstance(present, ClassicClient):
                present.leave()
            else:
                self.simulation.leave(present)
            del self.clients[number]
        elif action == "vanish":
            self.clients.pop(number, None)
        elif action == "time":
            self.simulation.advance(4000)
        elif action in ("fail_over", "compact"):
            self.simulation.fail_over(compacted=action == "compact")

    def step(self, number: int) -> None:
        client = self.clients.get(number)
        if client is None:
            self.incarnation += 1
            if number < CLASSIC:
                client = ClassicClient(self.simulation)
            else:
                client = Client(f"m{number}-{self.incarnation}", ("t",))
            self.clients[number] = client
        if isinstance(client, ClassicClient):
            client.step()
        else:
            self.simulation.beat(client)

    def step_all(self) -> None:
        for number in sorted(self.clients):
            self.step(number)

    def forget_fenced(self) -> None:
        """Whose session ran out stops by itself: it could not reach the coordinator in time."""
        group = self.simulation.shard.groups.get(GROUP)
        members = group.members if isinstance(group, ClassicGroup | ConsumerGroup) else {}
        for client in self.clients.values():
            if client.member_id in members:
                continue
            if isinstance(client, ClassicClient):
                if client.is_stable:
                    client.lose_all()
                    client.member_id = ""
            else:
                client.owned.clear()
                client.epoch, client.given = 0, None

    def check(self) -> None:
        used = [partition for client in self.clients.values() for partition in client.owned]
        assert len(used) == len(set(used)), f"used twice: {used}"
        simulation = self.simulation
        state = simulation.state()
        assert state == simulation.state(simulation.replayed())
        assert state == simulation.state(simulation.replayed(compacted=True))


@settings(max_examples=120, deadline=None)
@given(actions=steps)
def test_a_group_is_what_its_members_need(actions: Sequence[tuple[str, int]]) -> None:
    run = MigrationRun()

    for action, number in actions:
        run.do(action, number)
        run.forget_fenced()
        run.check()
    for _ in range(40):
        run.step_all()
        run.step_all()
        run.simulation.advance(2000)
        run.forget_fenced()
        run.check()
    for _ in range(12):
        run.step_all()

    if not run.clients:
        return
    group = run.simulation.shard.groups[GROUP]
    used = {
        (run.simulation.topics.topic_name(topic_id), number)
        for client in run.clients.values()
        for topic_id, number in client.owned
    }
    assert used == run.simulation.topics.partitions(["t"])
    if any(isinstance(client, Client) for client in run.clients.values()):
        assert isinstance(group, ConsumerGroup)
        assert group.state is ConsumerGroupState.STABLE
    else:
        assert isinstance(group, ClassicGroup)
        assert group.state is GroupState.STABLE
