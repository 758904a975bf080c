"""Consumer groups under random members that join, leave, stall, vanish and lose answers.

Whatever happens: the log alone gives the state back, at every point and after compaction; no partition is
used by two members; and once things calm down, everything subscribed is used by somebody.
"""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.coordinator.group.consumer.member import ConsumerGroupState
from tests.unit.coordinator.group.consumer.consumer_simulation import Client, ConsumerSimulation

MEMBERS = 5
TOPICS = ("t", "u", "v")
ACTIONS = (
    "beat", "beat", "beat", "beat", "lose", "leave", "vanish", "static_leave", "subscribe", "restart",
    "time", "long_time", "fail_over", "compact", "grow", "create_or_delete",
)  # fmt: skip

Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, MEMBERS - 1), st.integers(0, 7)), max_size=60
)


class ConsumerGroupRun:
    """The simulation with numbered members, some of them static."""

    def __init__(self, assignor: str | None, interval_ms: int) -> None:
        self.simulation = ConsumerSimulation(group_consumer_assignment_interval_ms=interval_ms)
        self.assignor = assignor
        self.simulation.topics.put("t", 4)
        self.simulation.topics.put("u", 3)
        self.incarnation = 0
        self.clients: list[Client | None] = [None] * MEMBERS

    def client(self, number: int, choice: int) -> Client:
        found = self.clients[number]
        if found is not None:
            return found
        self.incarnation += 1
        client = Client(
            f"m{number}-{self.incarnation}",
            TOPICS[: 1 + choice % 3],
            regex="[uv]" if choice == 7 else None,
            instance_id=f"i{number}" if number >= 3 else None,
            assignor=self.assignor,
        )
        self.clients[number] = client
        return client

    def do(self, action: str, number: int, choice: int) -> None:
        simulation = self.simulation
        present = self.clients[number]
        if action in ("beat", "lose"):
            simulation.beat(self.client(number, choice), loses_response=action == "lose")
        elif action == "leave" and present is not None:
            simulation.leave(present)
            self.clients[number] = None
        elif action == "static_leave" and present is not None and present.instance_id is not None:
            simulation.leave(present, -2)
            self.clients[number] = None
        elif action == "vanish":
            self.clients[number] = None
        elif action == "subscribe" and present is not None:
            present.topics = TOPICS[: 1 + choice % 3]
            simulation.subscribe(present)
        elif action == "restart" and present is not None:
            present.epoch, present.given = 0, None
            present.owned.clear()
        elif action == "time":
            simulation.advance(5000)
        elif action == "long_time":
            self.beat_all()
            simulation.advance(40_000)
        elif action in ("fail_over", "compact"):
            simulation.fail_over(compacted=action == "compact")
        elif action == "grow":
            simulation.topics.put("t", len(simulation.topics.partitions(["t"])) + 1)
        elif action == "create_or_delete":
            if simulation.topics.topic("v") is None:
                simulation.topics.put("v", 2)
            else:
                simulation.topics.delete("v")

    def beat_all(self) -> None:
        for client in self.clients:
            if client is not None:
                self.simulation.beat(client)

    def forget_fenced(self) -> None:
        """A client whose session ran out stops by itself: it could not reach the coordinator in time."""
        group = self.simulation.shard.groups.get("g")
        members = getattr(group, "members", {})
        for client in self.clients:
            if client is not None and client.member_id not in members:
                client.owned.clear()
                client.epoch, client.given = 0, None

    def check(self) -> None:
        used = [partition for client in self.clients if client is not None for partition in client.owned]
        assert len(used) == len(set(used)), f"used twice: {used}"
        simulation = self.simulation
        state = simulation.state()
        assert state == simulation.state(simulation.replayed())
        assert state == simulation.state(simulation.replayed(compacted=True))


def settle(run: ConsumerGroupRun) -> None:
    """Everybody who is there beats until whoever is not is gone, and everything has found its place."""
    simulation = run.simulation
    for _ in range(30):
        for client in run.clients:
            if client is not None:
                simulation.beat(client)
        simulation.advance(5000)
        run.forget_fenced()
    for _ in range(6):
        run.beat_all()


@settings(max_examples=150, deadline=None)
@given(
    assignor=st.sampled_from([None, "uniform", "range"]),
    interval_ms=st.sampled_from([0, 8000]),
    actions=steps,
)
def test_partitions_have_one_user_and_the_log_is_the_state(
    assignor: str | None, interval_ms: int, actions: Sequence[Step]
) -> None:
    run = ConsumerGroupRun(assignor, interval_ms)

    for action, number, choice in actions:
        run.do(action, number, choice)
        run.forget_fenced()
        run.check()
    settle(run)
    run.check()

    present = [client for client in run.clients if client is not None]
    if present:
        simulation = run.simulation
        topics = {name for client in present for name in client.topics}
        if any(client.regex for client in present):
            topics |= {"u", "v"}
        used = {
            (simulation.topics.topic_name(topic_id), number)
            for client in present
            for topic_id, number in client.owned
        }
        assert used == simulation.topics.partitions(topics)
        assert simulation.group.state is ConsumerGroupState.STABLE
