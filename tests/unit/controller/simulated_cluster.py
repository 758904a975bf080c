"""A cluster for the controller's core: ZooKeeper's part as plain dictionaries, brokers that note they hear.

Writes are conditional as in ZooKeeper; `Simulation.feed` does what the driver does: performs a step's effects
in order and feeds outcomes of writes back before anything else.
"""

import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import assert_never

from kalda.cluster.schema import (
    BrokerInfo,
    ListenerEndpoint,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import TopicPartition
from kalda.controller import elections, isr_requests, reassignment
from kalda.controller.brokers import led_partitions
from kalda.controller.context import ControllerContext
from kalda.controller.core import step
from kalda.controller.effects import (
    BrokerRequest,
    CreatePartitionStates,
    DeleteTopicZnodes,
    Effect,
    LeaderAndIsr,
    RejectTopicDeletion,
    RevisitBrokers,
    Send,
    StopReplica,
    UpdatePartitionStates,
    WriteAssignments,
)
from kalda.controller.event_queue import EventQueue
from kalda.controller.events import (
    AssignmentsChanged,
    AssignmentsWritten,
    BrokersChanged,
    ControlledShutdownRequested,
    ControllerElected,
    ElectionType,
    Event,
    LeaderAndIsrResponseReceived,
    LeaderElectionRequested,
    LeaderImbalanceCheckDue,
    LogDirFailuresNotified,
    PartitionStatesCreated,
    PartitionStatesRead,
    PartitionStatesUpdated,
    ReassignmentsRequested,
    StopReplicaResponseReceived,
    TopicDeletionsRequested,
    TopicsChanged,
    TopicsDeleted,
    UncleanElectionChanged,
)


def broker(broker_id: int, epoch: int = 0) -> BrokerInfo:
    endpoint = ListenerEndpoint("PLAINTEXT", f"host{broker_id}", 9092)
    return BrokerInfo(broker_id, (endpoint,), epoch=epoch)


class Simulation:
    """ZooKeeper's dictionaries, one controller, and the requests that brokers have not answered."""

    def __init__(self, controller_id: int = 1) -> None:
        self.controller_id = controller_id
        self.context = ControllerContext(controller_id)
        self.brokers: dict[int, BrokerInfo] = {}
        self.assignments: dict[str, TopicAssignment] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        self.marked: set[str] = set()
        self.unclean: set[str] = set()
        self.epoch = 0
        self._next_topic_id = 1
        self.trace: list[Effect] = []
        """Every effect performed since it was last taken."""
        self.unanswered: list[tuple[int, StopReplica]] = []
        self.heard: list[tuple[int, BrokerRequest]] = []
        self.failed_replicas: dict[int, set[TopicPartition]] = {}
        self.full_replicas: dict[int, set[TopicPartition]] = {}
        self.refusals: list[LeaderAndIsrResponseReceived] = []
        self.rewrites: list[tuple[TopicPartition, PartitionState, PartitionState]] = []
        """Every state that the controller replaced, with what it wrote in its place."""

    # What operators and brokers do; none of it reaches the controller by itself.

    def assign(self, topic: str, partitions: dict[int, tuple[int, ...]]) -> None:
        known = self.assignments.get(topic)
        self._next_topic_id += 1
        topic_id = known.topic_id if known else uuid.UUID(int=self._next_topic_id)
        merged = {**(known.partitions if known else {})}
        merged.update({number: ReplicaAssignment(replicas) for number, replicas in partitions.items()})
        self.assignments[topic] = TopicAssignment(topic, topic_id, merged, version=0)

    def write_state(self, partition: TopicPartition, leader: int, epoch: int, isr: tuple[int, ...]) -> None:
        """A leader changes its ISR behind the controller's back."""
        before = self.states[partition]
        self.states[partition] = replace(
            before, leader=leader, leader_epoch=epoch, isr=isr, version=before.version + 1
        )

    # What the driver does.

    def elect(self) -> None:
        self.epoch += 1
        self.context = ControllerContext(self.controller_id)
        self.unanswered.clear()
        self.feed(
            ControllerElected(
                self.epoch,
                dict(self.brokers),
                dict(self.assignments),
                dict(self.states),
                frozenset(self.marked),
                frozenset(self.unclean),
            )
        )

    def tell_brokers(self) -> None:
        self.feed(BrokersChanged(dict(self.brokers)))

    def tell_topics(self) -> None:
        known = self.context.assignments
        added = {topic: found for topic, found in self.assignments.items() if topic not in known}
        self.feed(TopicsChanged(frozenset(self.assignments), added, frozenset(self.unclean & added.keys())))

    def tell_assignments(self) -> None:
        self.feed(AssignmentsChanged(dict(self.assignments)))

    def tell_deletions(self) -> None:
        self.feed(TopicDeletionsRequested(frozenset(self.marked)))

    def answer(self, index: int = 0, code: ErrorCode = ErrorCode.NONE) -> None:
        """A broker answers the StopReplica that stands at `index` among those it has not answered."""
        broker_id, request = self.unanswered.pop(index)
        errors = dict.fromkeys(request.partitions, code)
        self.feed(StopReplicaResponseReceived(broker_id, request, errors))

    def tell_states(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """The notification of changed ISRs arrives."""
        wanted = self.states if partitions is None else partitions
        self.feed(PartitionStatesRead({p: self.states[p] for p in wanted if p in self.states}))

    def reassign(
        self, targets: Mapping[TopicPartition, tuple[int, ...] | None], *, must_live: bool = True
    ) -> dict[TopicPartition, ApiError | None]:
        self.tell_states(targets)
        errors, changes = reassignment.validate_reassignments(self.context, targets, must_live=must_live)
        self.feed(ReassignmentsRequested(changes))
        return {partition: errors.get(partition) for partition in targets}

    def elect_leaders(
        self, election: ElectionType, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        wanted = list(partitions)
        self.tell_states(wanted)
        refused, electable = elections.validate_elections(self.context, election, wanted)
        self.feed(LeaderElectionRequested(election, tuple(electable)))
        return {**refused, **{p: elections.outcome(self.context, election, p) for p in electable}}

    def alter_isr(
        self, broker_id: int, partition: TopicPartition, request: isr_requests.IsrRequest
    ) -> PartitionState | ErrorCode:
        """A leader of Apache Kafka asks for another ISR."""
        self.tell_states([partition])
        outcome = isr_requests.decide(self.context, broker_id, partition, request)
        if isinstance(outcome, PartitionState) and outcome != self.states[partition]:
            outcome = self.states[partition] = replace(outcome, version=outcome.version + 1)
            self.tell_states([partition])
        return outcome

    def check_balance(self) -> None:
        self.feed(LeaderImbalanceCheckDue())

    def shut_down(self, broker_id: int) -> list[TopicPartition]:
        """A broker asks to be relieved; what it still leads."""
        self.tell_states()
        self.feed(ControlledShutdownRequested(broker_id))
        return led_partitions(self.context, broker_id)

    def allow_unclean(self, topics: Mapping[str, bool]) -> None:
        for topic, is_allowed in topics.items():
            (self.unclean.add if is_allowed else self.unclean.discard)(topic)
        self.feed(UncleanElectionChanged(topics))

    def fail_log_dirs(self, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
        """A broker loses a directory: from now on it refuses its role in these partitions."""
        self.failed_replicas.setdefault(broker_id, set()).update(partitions)
        self.feed(LogDirFailuresNotified(frozenset({broker_id})))

    def fill_log_dirs(self, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
        """The disk with these replicas is full: the broker takes its roles but cannot write."""
        self.full_replicas.setdefault(broker_id, set()).update(partitions)
        self.feed(LogDirFailuresNotified(frozenset({broker_id})))

    def empty_log_dirs(self, broker_id: int) -> None:
        """The disks of a broker have room again, and it says so."""
        self.full_replicas.pop(broker_id, None)
        self.feed(LogDirFailuresNotified(frozenset({broker_id})))

    def feed(self, event: Event) -> None:
        events = deque([event])
        while events:
            queue = EventQueue(events.popleft())
            while (upcoming := queue.next_event()) is not None:
                for effect in step(self.context, upcoming):
                    self.trace.append(effect)
                    outcome = self._perform(effect)
                    if outcome is not None:
                        queue.add_outcome(effect, outcome)
            events.extend(self.refusals)
            self.refusals.clear()

    def _perform(self, effect: Effect) -> Event | None:
        match effect:
            case Send():
                self.heard.append((effect.broker_id, effect.request))
                if isinstance(effect.request, StopReplica) and effect.request.delete:
                    self.unanswered.append((effect.broker_id, effect.request))
                if isinstance(effect.request, LeaderAndIsr):
                    self._refuse_roles(effect.broker_id, effect.request)
                return None
            case CreatePartitionStates():
                for partition, state in effect.states.items():
                    self.states.setdefault(partition, replace(state, version=0))
                return PartitionStatesCreated({p: self.states[p] for p in effect.states})
            case UpdatePartitionStates():
                return self._update(effect)
            case WriteAssignments():
                return self._write_assignments(effect)
            case DeleteTopicZnodes():
                for topic in effect.topics:
                    assignment = self.assignments.pop(topic)
                    self.marked.discard(topic)
                    for number in assignment.partitions:
                        self.states.pop(TopicPartition(topic, number), None)
                return TopicsDeleted(effect.topics)
            case RejectTopicDeletion():
                self.marked.difference_update(effect.topics)
                return None
            case RevisitBrokers():
                return BrokersChanged(effect.brokers)
            case _:
                assert_never(effect)

    def _update(self, effect: UpdatePartitionStates) -> PartitionStatesUpdated:
        updated: dict[TopicPartition, PartitionState] = {}
        conflicts: dict[TopicPartition, PartitionState | None] = {}
        for partition, state in effect.states.items():
            found = self.states.get(partition)
            if found is not None and found.version == state.version:
                updated[partition] = replace(state, version=state.version + 1)
                self.rewrites.append((partition, found, updated[partition]))
            else:
                conflicts[partition] = found
        self.states.update(updated)
        return PartitionStatesUpdated(updated, conflicts, effect.strategy)

    def _write_assignments(self, effect: WriteAssignments) -> AssignmentsWritten:
        written: dict[TopicPartition, ReplicaAssignment] = {}
        for partition, assignment in effect.changes.items():
            topic = self.assignments.get(partition.topic)
            if topic is not None and partition.partition in topic.partitions:
                partitions = {**topic.partitions, partition.partition: assignment}
                self.assignments[partition.topic] = replace(topic, partitions=partitions)
                written[partition] = assignment
        return AssignmentsWritten(written)

    def _refuse_roles(self, broker_id: int, request: LeaderAndIsr) -> None:
        """The broker's answer comes after this step, if it says anything."""
        failed = self.failed_replicas.get(broker_id, set())
        told = [each.topic_partition for each in request.partitions]
        full = self.full_replicas.get(broker_id, set())
        errors = {p: ErrorCode.INELIGIBLE_REPLICA for p in told if p in full}
        errors |= {p: ErrorCode.KAFKA_STORAGE_ERROR for p in told if p in failed}
        if errors or self.context.has_unfit_replicas(broker_id):
            epoch = self.context.live_brokers[broker_id].epoch
            self.refusals.append(LeaderAndIsrResponseReceived(broker_id, epoch, request, errors))
