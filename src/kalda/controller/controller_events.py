"""Emits the controller's events: what began a step, and the leaders and in-sync replicas that it wrote.

Brokers that come and go are events by themselves, and so is a request to move partitions, whose effects come
later. What begins another step, such as an election that an operator asks for, is an event only if the step
writes something.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kalda.cluster.history.author import requester_details
from kalda.cluster.schema import NO_LEADER, BrokerInfo, PartitionState, ReplicaAssignment
from kalda.common.types import TopicPartition
from kalda.controller.events import (
    BrokersChanged,
    ControlledShutdownRequested,
    ControllerElected,
    ElectionType,
    Event,
    LeaderAndIsrResponseReceived,
    LeaderElectionRequested,
    LeaderImbalanceCheckDue,
    LogDirFailuresNotified,
    ReassignmentsRequested,
    TopicsChanged,
    TopicsDeleted,
    UncleanElectionChanged,
)
from kalda.events.event import EventId, EventKind, EventSink, Plain

PARTITIONS_PER_EVENT: Final = 300
"""Partitions of one event: 20 KiB. A broker that fails may lead thousands."""


class _Change(NamedTuple):
    """The fields that all partitions of one event have in common."""

    topic: str
    leader_before: int
    leader: int
    isr_before: tuple[int, ...]
    isr: tuple[int, ...]


class ControllerEvents:
    """The events of one term."""

    def __init__(self, broker_id: int, sink: EventSink) -> None:
        self._broker_id: Final = broker_id
        self._sink: Final = sink
        self._cause: EventId | None = None
        self._of_brokers: dict[int, EventId | None] = {}
        """The events of the brokers that left or restarted in this step."""
        self._elected_among: Mapping[int, BrokerInfo] | None = None
        """In the step of an election, the live brokers: no other says that one has left."""
        self._begun: Callable[[], EventId | None] | None = None
        """Emits what began the step; None once it has."""

    def begin(self, event: Event, live_brokers: Mapping[int, BrokerInfo]) -> None:
        """Note what begins a step, before the step changes the context."""
        self._cause, self._begun = None, None
        self._of_brokers.clear()
        self._elected_among = event.brokers if isinstance(event, ControllerElected) else None
        match event:
            case TopicsChanged():
                for topic, assignment in event.added.items():
                    details: dict[str, Plain] = {
                        "partitions_count": len(assignment.partitions),
                        "topic_id": str(assignment.topic_id),
                    }
                    self._sink.emit(EventKind.TOPIC_CREATED, {"topic": topic}, details)
            case BrokersChanged():
                self._cause = self._note_brokers(live_brokers, event.brokers)
            case ControllerElected():
                self._cause = self._emit(
                    EventKind.CONTROLLER_ELECTED,
                    self._broker_id,
                    {"controller_epoch": event.epoch, "brokers": sorted(event.brokers)},
                )
                assigned = {
                    replica
                    for topic in event.assignments.values()
                    for each in topic.partitions.values()
                    for replica in each.replicas
                }
                for broker_id in sorted(assigned - event.brokers.keys()):
                    self._maybe_note_absent(broker_id)
            case ControlledShutdownRequested():
                info = live_brokers.get(event.broker_id)
                epoch = -1 if info is None else info.epoch
                self._cause = self._emit(
                    EventKind.CONTROLLED_SHUTDOWN, event.broker_id, {"broker_epoch": epoch}
                )
            case LeaderElectionRequested():
                is_unclean = event.election is ElectionType.UNCLEAN
                self._later(EventKind.ELECTION_REQUESTED, "unclean" if is_unclean else "preferred")
            case LeaderImbalanceCheckDue():
                self._later(EventKind.ELECTION_REQUESTED, "balance")
            case UncleanElectionChanged():
                self._later(EventKind.ELECTION_REQUESTED, "unclean-allowed")
            case ReassignmentsRequested():
                self._note_moves(event)
            case LeaderAndIsrResponseReceived():
                self._begin_failure(event)
            case LogDirFailuresNotified():
                self._note_ends(event)
            case _:
                pass

    def follow(self, event: Event) -> None:
        """Note an outcome of the step's own effects."""
        if isinstance(event, TopicsDeleted):
            for topic in event.topics:
                self._sink.emit(EventKind.TOPIC_DELETED, {"topic": topic}, cause=self.cause)

    def written(
        self,
        before: Mapping[TopicPartition, PartitionState | None],
        updated: Mapping[TopicPartition, PartitionState],
    ) -> None:
        """Emit the changes of leaders and in-sync replicas that were written."""
        changes: dict[_Change, list[Plain]] = {}
        for partition, state in updated.items():
            old = before.get(partition)
            if old is None or (old.leader, old.isr) == (state.leader, state.isr):
                continue
            change = _Change(partition.topic, old.leader, state.leader, old.isr, state.isr)
            changes.setdefault(change, []).append([partition.partition, state.leader_epoch])
        for change, partitions in changes.items():
            for start in range(0, len(partitions), PARTITIONS_PER_EVENT):
                self._emit_change(change, partitions[start : start + PARTITIONS_PER_EVENT])

    @property
    def cause(self) -> EventId | None:
        """The event that began the present step, which is emitted now if it was not yet."""
        if self._begun is not None:
            self._cause, self._begun = self._begun(), None
        return self._cause

    def _emit_change(self, change: _Change, partitions: list[Plain]) -> None:
        is_election = change.leader != change.leader_before
        # The former leader kept nothing that the new one lacks, unless the new one was not in sync.
        is_unclean = is_election and change.leader != NO_LEADER and change.leader not in change.isr_before
        self._sink.emit(
            EventKind.LEADER_CHANGED if is_election else EventKind.ISR_CHANGED,
            {"topic": change.topic, "broker": change.leader},
            {
                "partitions": partitions,
                "leader_before": change.leader_before,
                "leader": change.leader,
                "isr_before": change.isr_before,
                "isr": change.isr,
                "is_unclean": is_unclean,
                "by": "controller",
            },
            cause=self._cause_of(change),
        )

    def _cause_of(self, change: _Change) -> EventId | None:
        """Return the event of the broker that lost its role, where several brokers left at once."""
        for broker_id in (change.leader_before, *sorted(set(change.isr_before) - set(change.isr))):
            self._maybe_note_absent(broker_id)
            if broker_id in self._of_brokers:
                return self._of_brokers[broker_id]
        return self.cause

    def _maybe_note_absent(self, broker_id: int) -> None:
        """Emit that a broker has left which was gone when this broker became controller."""
        live = self._elected_among
        if live is not None and broker_id != NO_LEADER and broker_id not in {*live, *self._of_brokers}:
            self._of_brokers[broker_id] = self._emit(EventKind.BROKER_LEFT, broker_id, {"at": "election"})

    def _note_brokers(
        self, known: Mapping[int, BrokerInfo], live: Mapping[int, BrokerInfo]
    ) -> EventId | None:
        cause: EventId | None = None
        for broker_id in sorted(live.keys() - known.keys()):
            epoch = live[broker_id].epoch
            cause = self._emit(EventKind.BROKER_JOINED, broker_id, {"broker_epoch": epoch})
        for broker_id in sorted(known.keys() & live.keys()):
            epoch, before = live[broker_id].epoch, known[broker_id].epoch
            if epoch != before:
                details = {"broker_epoch": epoch, "broker_epoch_before": before}
                cause = self._of_brokers[broker_id] = self._emit(EventKind.BROKER_JOINED, broker_id, details)
        # Last, as leaders change because brokers leave more often than because others come.
        for broker_id in sorted(known.keys() - live.keys()):
            epoch = known[broker_id].epoch
            cause = self._of_brokers[broker_id] = self._emit(
                EventKind.BROKER_LEFT, broker_id, {"broker_epoch": epoch}
            )
        return cause

    def _begin_failure(self, event: LeaderAndIsrResponseReceived) -> None:
        reason = ", ".join(sorted({code.name for code in event.errors.values() if code}))
        self._begun = lambda: self._emit(EventKind.REPLICAS_REFUSED, event.broker_id, {"reason": reason})

    def _note_ends(self, event: LogDirFailuresNotified) -> None:
        """Emit the failures that brokers ended by: their own events are in the directories that failed."""
        for each in event.ended:
            for directory, reason in each.ended_by.items():
                details: dict[str, Plain] = {
                    "directory": directory,
                    "reason": reason,
                    "has_ended_broker": True,
                    "broker_epoch": each.broker_epoch,
                }
                self._emit(EventKind.DIRECTORY_FAILED, each.broker_id, details)

    def _note_moves(self, event: ReassignmentsRequested) -> None:
        """Emit at once which partitions move: leaders and replicas change later, in steps of their own."""
        of_topics: dict[str, list[tuple[int, ReplicaAssignment]]] = {}
        for (topic, number), assignment in event.changes.items():
            of_topics.setdefault(topic, []).append((number, assignment))
        author = requester_details()
        found: list[EventId | None] = []
        for topic, moves in of_topics.items():
            for start in range(0, len(moves), PARTITIONS_PER_EVENT):
                each = moves[start : start + PARTITIONS_PER_EVENT]
                assignments = [assignment for _, assignment in each]
                targets = {assignment.target for assignment in assignments}
                details: dict[str, Plain] = {
                    "partitions": [[number, -1] for number, _ in each],
                    "replicas": min(targets) if len(targets) == 1 else (),
                    "adding": sorted({broker for found in assignments for broker in found.adding}),
                    "removing": sorted({broker for found in assignments for broker in found.removing}),
                    **author,
                }
                found.append(self._sink.emit(EventKind.REASSIGNMENT_REQUESTED, {"topic": topic}, details))
        if len(found) == 1:
            # Of several, what the step writes does not say which one began it; its topic and partition do.
            self._cause = found[0]

    def _later(self, kind: str, reason: str) -> None:
        details = {"reason": reason, **requester_details()}
        self._begun = lambda: self._emit(kind, self._broker_id, details)

    def _emit(self, kind: str, broker_id: int, details: Mapping[str, Plain]) -> EventId | None:
        return self._sink.emit(kind, {"broker": broker_id}, details)
