"""What holds after any sequence of failures, returns, creations, deletions, moves, elections, shutdowns and
changes of the controller, told late or soon."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kalda.cluster.schema import NO_LEADER, BrokerInfo
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller.context import Replica
from kalda.controller.effects import LeaderAndIsr, StopReplica
from kalda.controller.events import DeletionCompletionRequested, ElectionType
from kalda.controller.isr_requests import IsrRequest
from kalda.controller.partition_state_machine import PartitionStatus
from tests.unit.controller.simulated_cluster import Simulation, broker

BROKERS = (1, 2, 3, 4)
TOPICS = ("clean", "unclean")

replica_lists = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True).map(tuple)

partitions = st.tuples(st.sampled_from(TOPICS), st.integers(0, 1))

actions = st.one_of(
    st.tuples(st.just("live"), st.sets(st.sampled_from(BROKERS))),
    st.tuples(st.just("restart"), st.sampled_from(BROKERS)),
    st.tuples(st.just("tell brokers"), st.none()),
    st.tuples(st.just("create"), st.tuples(st.sampled_from(TOPICS), replica_lists)),
    st.tuples(st.just("grow"), st.tuples(st.sampled_from(TOPICS), replica_lists)),
    st.tuples(st.just("delete"), st.sampled_from(TOPICS)),
    st.tuples(st.just("want again"), st.sampled_from(TOPICS)),
    st.tuples(st.just("answer"), st.tuples(st.integers(0, 3), st.booleans())),
    st.tuples(st.just("shrink"), partitions),
    st.tuples(st.just("expand"), partitions),
    st.tuples(st.just("ask to shrink"), partitions),
    st.tuples(st.just("ask to expand"), partitions),
    st.tuples(st.just("catch up"), st.none()),
    st.tuples(st.just("catch up"), st.none()),
    st.tuples(st.just("tell states"), st.none()),
    st.tuples(st.just("reassign"), st.tuples(partitions, replica_lists)),
    st.tuples(st.just("reassign"), st.tuples(partitions, replica_lists)),
    st.tuples(st.just("reassign"), st.tuples(partitions, st.none())),
    st.tuples(st.just("leaders"), st.tuples(st.sampled_from(ElectionType), partitions)),
    st.tuples(st.just("balance"), st.none()),
    st.tuples(st.just("shut down"), st.sampled_from(BROKERS)),
    st.tuples(st.just("lose disk"), st.tuples(st.sampled_from(BROKERS), partitions)),
    st.tuples(st.just("fill disk"), st.tuples(st.sampled_from(BROKERS), partitions)),
    st.tuples(st.just("fill disk"), st.tuples(st.sampled_from(BROKERS), partitions)),
    st.tuples(st.just("empty disk"), st.sampled_from(BROKERS)),
    st.tuples(st.just("elect"), st.sampled_from(BROKERS)),
)


class ControllerRun:
    """The simulation, and what every broker last heard about its roles."""

    def __init__(self) -> None:
        self.simulation = Simulation()
        self.simulation.unclean.add("unclean")
        self.simulation.brokers = {b: broker(b) for b in BROKERS}
        self.roles: dict[int, dict[TopicPartition, tuple[int, int]]] = {b: {} for b in BROKERS}
        self.lives = 0
        self.leaders: dict[tuple[str, int, object, int], int] = {}
        self.given_up: set[TopicPartition] = set()
        """Partitions of which an operator allowed an unclean election."""
        self.simulation.assign("clean", {0: (1, 2, 3), 1: (2, 1)})
        self.simulation.assign("unclean", {0: (2, 3), 1: (3,)})
        self.simulation.elect()
        self.listen()

    def do(self, action: str, argument: object) -> None:
        simulation = self.simulation
        match action, argument:
            case "live", set(ids):
                before = simulation.brokers
                simulation.brokers = {b: before.get(b) or self.next_life(b) for b in ids}
            case "restart", int(broker_id) if broker_id in simulation.brokers:
                simulation.brokers[broker_id] = self.next_life(broker_id)
            case "tell brokers", _:
                simulation.tell_brokers()
            case "create", (str(topic), tuple(replicas)) if topic not in simulation.assignments:
                simulation.assign(topic, {0: replicas})
                simulation.tell_topics()
            case "grow", (str(topic), tuple(replicas)) if topic in simulation.assignments:
                simulation.assign(topic, {len(simulation.assignments[topic].partitions): replicas})
                simulation.tell_assignments()
            case "delete", str(topic):
                simulation.marked.add(topic)
                simulation.tell_deletions()
            case "want again", str(topic):
                simulation.feed(DeletionCompletionRequested((topic,)))
            case "answer", (int(index), bool(is_good)) if index < len(simulation.unanswered):
                simulation.answer(index, ErrorCode.NONE if is_good else ErrorCode.KAFKA_STORAGE_ERROR)
            case (
                ("shrink" | "expand" | "ask to shrink" | "ask to expand"),
                (str(topic), int(number)),
            ):
                self.change_isr(TopicPartition(topic, number), action)
            case "catch up", _:
                self.catch_up()
            case "tell states", _:
                simulation.tell_states()
            case "elect", int(broker_id):
                simulation.controller_id = broker_id
                simulation.elect()
            case _:
                self.operate(action, argument)
        self.listen()

    def operate(self, action: str, argument: object) -> None:
        """What operators and brokers ask of the controller."""
        simulation = self.simulation
        match action, argument:
            case "reassign", ((str(topic), int(number)), target):
                assert target is None or isinstance(target, tuple)
                simulation.reassign({TopicPartition(topic, number): target})
            case "leaders", (ElectionType() as election, (str(topic), int(number))):
                partition = TopicPartition(topic, number)
                if election is ElectionType.UNCLEAN:
                    self.given_up.add(partition)
                simulation.elect_leaders(election, [partition])
            case "balance", _:
                simulation.check_balance()
            case "shut down", int(broker_id) if broker_id in simulation.context.live_brokers:
                if is_same_life(simulation, broker_id):
                    simulation.shut_down(broker_id)
            case "lose disk", (int(broker_id), (str(topic), int(number))):
                if broker_id in simulation.context.live_brokers and is_same_life(simulation, broker_id):
                    simulation.fail_log_dirs(broker_id, [TopicPartition(topic, number)])
            case "fill disk", (int(broker_id), (str(topic), int(number))):
                if broker_id in simulation.context.live_brokers and is_same_life(simulation, broker_id):
                    simulation.fill_log_dirs(broker_id, [TopicPartition(topic, number)])
            case "empty disk", int(broker_id):
                simulation.empty_log_dirs(broker_id)

    def next_life(self, broker_id: int) -> BrokerInfo:
        """A broker starts: a new epoch, and no memory of its roles."""
        self.roles[broker_id] = {}
        self.simulation.failed_replicas.pop(broker_id, None)
        self.simulation.full_replicas.pop(broker_id, None)
        self.lives += 1
        return broker(broker_id, self.lives)

    def catch_up(self) -> None:
        """Every replica that follows gets in sync, and the notifications arrive."""
        for partition in list(self.simulation.states):
            self.change_isr(partition, "expand")
        self.simulation.tell_states()

    def change_isr(self, partition: TopicPartition, action: str) -> None:
        """The leader, if it lives and knows that it leads, changes the ISR behind the controller's back, or
        asks the controller for it as leaders of Apache Kafka do.
        """
        simulation = self.simulation
        state = simulation.states.get(partition)
        if state is None or state.leader not in simulation.brokers:
            return
        if self.roles[state.leader].get(partition) != (state.leader, state.leader_epoch):
            return
        role = (state.leader, state.leader_epoch)
        isr: tuple[int, ...] = (state.leader,)
        if action.endswith("expand"):
            replicas = simulation.assignments[partition.topic].partitions[partition.partition].replicas
            isr = tuple(
                r
                for r in replicas
                if r in simulation.brokers
                and self.roles[r].get(partition) == role
                # A follower that cannot write does not fetch.
                and (r in state.isr or partition not in simulation.full_replicas.get(r, ()))
            )
        if isr == state.isr:
            return
        if not action.startswith("ask"):
            simulation.write_state(partition, state.leader, state.leader_epoch, isr)
        elif is_same_life(simulation, state.leader):
            request = IsrRequest(
                state.leader_epoch,
                state.version,
                isr,
                broker_epochs={
                    each: simulation.brokers[each].epoch for each in isr if each in simulation.brokers
                },
            )
            simulation.alter_isr(state.leader, partition, request)

    def listen(self) -> None:
        for broker_id, request in self.simulation.heard:
            roles = self.roles[broker_id]
            if isinstance(request, LeaderAndIsr):
                if request.is_full:
                    roles.clear()
                failed = self.simulation.failed_replicas.get(broker_id, set())
                for told in request.partitions:
                    if told.topic_partition in failed:
                        roles.pop(told.topic_partition, None)
                        continue
                    roles[told.topic_partition] = (told.leader, told.leader_epoch)
                    if told.leader != NO_LEADER:
                        key = (told.topic, told.partition, told.topic_id, told.leader_epoch)
                        assert self.leaders.setdefault(key, told.leader) == told.leader, f"two leaders: {key}"
            elif isinstance(request, StopReplica):
                for partition in request.partitions:
                    roles.pop(partition, None)
        self.simulation.heard.clear()

    def check(self) -> None:
        simulation, context = self.simulation, self.simulation.context
        live = context.live_brokers.keys()
        for partition in context.all_partitions():
            replicas = context.replicas_of(partition)
            assert all(Replica(partition, r) in context.replica_status for r in replicas)
            state = context.states.get(partition)
            status = context.partition_status[partition]
            if partition.topic in context.topics_to_delete:
                continue
            if state is None:
                assert status is PartitionStatus.NEW
                assert not any(context.is_online(partition, r) for r in replicas), f"{partition} waits"
                continue
            leads = context.is_serving(partition, state.leader)
            assert state.leader == NO_LEADER or state.leader in state.isr
            assert state.leader == NO_LEADER or leads, f"{partition}: the leader is dead"
            assert state.isr
            assert set(state.isr) <= set(replicas)
            assert partition not in context.removed_replicas
            is_in_sync_online = any(context.is_online(partition, r) for r in state.isr)
            is_in_sync_kept = any(
                context.is_serving(partition, r) and r not in context.shutting_down for r in state.isr
            )
            is_eligible_alive = is_in_sync_kept or (
                partition.topic in context.unclean_topics
                and any(context.is_online(partition, r) for r in replicas)
            )
            assert (status is PartitionStatus.ONLINE) == leads
            assert leads or not is_eligible_alive, f"{partition} is offline without need"
            assert not (is_in_sync_online and state.leader in context.shutting_down)
            if is_in_sync_online:
                full = {r for r in state.isr if partition in context.full_dirs.get(r, ())}
                assert not full, f"{partition}: {full} of the ISR cannot write although others can"
            for broker_id in live:
                if not is_same_life(simulation, broker_id) or broker_id in context.shutting_down:
                    continue
                if broker_id not in replicas:
                    assert partition not in self.roles[broker_id], f"{broker_id} keeps {partition}"
                elif context.is_serving(partition, broker_id):
                    heard = self.roles[broker_id].get(partition)
                    assert heard == (state.leader, state.leader_epoch), f"{broker_id} on {partition}: {heard}"
        for partition, before, after in simulation.rewrites:
            assert after.leader_epoch == before.leader_epoch + 1
            if after.leader not in (NO_LEADER, before.leader) and not after.leader_recovering:
                assert after.leader in before.isr, f"{partition}: {after.leader} was not in sync"
            is_allowed = partition.topic == "unclean" or partition in self.given_up
            assert not after.leader_recovering or is_allowed
        simulation.rewrites.clear()
        self.check_assignments()

    def check_assignments(self) -> None:
        """What the controller believes of assignments is what ZooKeeper holds, and its index is right."""
        simulation, context = self.simulation, self.simulation.context
        for partition in context.all_partitions():
            assignment = context.assignment_of(partition)
            stored = simulation.assignments[partition.topic].partitions[partition.partition]
            assert assignment == stored
            assert assignment.is_being_reassigned == (partition in context.reassigning)
            assert len(set(assignment.replicas)) == len(assignment.replicas) > 0
            assert set(assignment.adding) | set(assignment.removing) <= set(assignment.replicas)
            assert assignment.target
        for broker_id in BROKERS:
            assert not context.pending_deletions.get(broker_id, {}).keys() & set(
                context.partitions_on(broker_id)
            )
            held = [p for p in context.all_partitions() if broker_id in context.replicas_of(p)]
            assert sorted(held) == sorted(context.partitions_on(broker_id))
        assert len(context.replica_status) == sum(
            len(context.replicas_of(partition)) for partition in context.all_partitions()
        )


def is_same_life(simulation: Simulation, broker_id: int) -> bool:
    """Whether the broker that the controller knows is the one that runs, not one that has restarted since."""
    info, known = simulation.brokers.get(broker_id), simulation.context.live_brokers.get(broker_id)
    return info is not None and known is not None and info.epoch == known.epoch


@settings(max_examples=200, deadline=None)
@given(st.lists(actions, min_size=10, max_size=40))
@example(
    # A move is cancelled while no broker is live: the replica that was being added leaves the ISR.
    [
        ("reassign", (("clean", 0), (1, 2, 4))),
        ("expand", ("clean", 0)),
        ("live", set()),
        ("tell brokers", None),
        ("reassign", (("clean", 0), None)),
    ]
)
def test_one_leader_per_epoch_in_sync_and_online_where_possible(script: list[tuple[str, object]]) -> None:
    """Checked after each step, and by what brokers were told, not by what the controller believes."""
    run = ControllerRun()
    for action, argument in script:
        run.do(action, argument)
        run.check()


@settings(max_examples=100, deadline=None)
@given(st.lists(actions, min_size=10, max_size=30))
def test_cluster_heals_when_all_brokers_return(script: list[tuple[str, object]]) -> None:
    """Whatever happened: with every broker back and answering all is online, what was marked is gone, and
    every move ends.
    """
    run = ControllerRun()
    for action, argument in script:
        run.do(action, argument)
    simulation = run.simulation
    simulation.brokers = {b: run.next_life(b) for b in BROKERS}
    simulation.tell_brokers()
    run.listen()
    for _ in range(20):
        while simulation.unanswered:
            simulation.answer()
    run.listen()
    run.catch_up()
    run.listen()
    run.check()
    assert not simulation.context.reassigning
    assert not simulation.marked & simulation.assignments.keys()
    assert not simulation.context.topics_to_delete
    assert set(simulation.context.partition_status.values()) <= {PartitionStatus.ONLINE}
