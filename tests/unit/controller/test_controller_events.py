"""What the controller's events name as the cause of what a step writes."""

from collections.abc import Mapping

from kalda.cluster.schema import LogDirEvent, PartitionState, ReplicaAssignment
from kalda.common.types import TopicPartition
from kalda.controller.controller_events import ControllerEvents
from kalda.controller.events import LogDirFailuresNotified, ReassignmentsRequested
from kalda.events.event import EventId, EventKind, Plain, Subject


class Sink:
    """Keeps the kind, the topic or the broker and the cause of each event, and its details."""

    def __init__(self) -> None:
        self.found: list[tuple[str, Plain, EventId | None]] = []
        self.details: list[Mapping[str, Plain]] = []

    def emit(
        self,
        kind: str,
        subject: Subject,
        details: Mapping[str, Plain] | None = None,
        *,
        cause: EventId | None = None,
    ) -> EventId | None:
        self.found.append((kind, subject.get("topic", subject.get("broker")), cause))
        self.details.append(details or {})
        return EventId(0, len(self.found))

    emit_seldom = emit


def moved(*topics: str) -> list[EventId | None]:
    """Return the causes of the changed in-sync replicas after one request to move a partition of each."""
    sink = Sink()
    events = ControllerEvents(0, sink)
    partitions = [TopicPartition(topic, 0) for topic in topics]
    events.begin(ReassignmentsRequested(dict.fromkeys(partitions, ReplicaAssignment((1, 2)))), {})
    before = PartitionState(leader=1, leader_epoch=0, isr=(1, 2, 3), controller_epoch=1)
    after = PartitionState(leader=1, leader_epoch=1, isr=(1, 2), controller_epoch=1)
    events.written(dict.fromkeys(partitions, before), dict.fromkeys(partitions, after))
    requested = [EventKind.REASSIGNMENT_REQUESTED] * len(topics)
    assert [*requested, *[EventKind.ISR_CHANGED] * len(topics)] == [kind for kind, _, _ in sink.found]
    return [cause for kind, _, cause in sink.found if kind == EventKind.ISR_CHANGED]


def test_a_request_to_move_partitions_of_one_topic_is_the_cause() -> None:
    assert [EventId(0, 1)] == moved("a")


def test_of_several_topics_none_is_named_as_the_cause_of_anothers_changes() -> None:
    """The last topic's event was; the rules of causes find the right one by topic and partition."""
    assert [None, None] == moved("a", "b")


def test_failed_directories_of_a_broker_that_ended_are_kept_by_the_controller() -> None:
    sink = Sink()
    ended = LogDirEvent(2, {"/a": "broken", "/b": "gone"}, 40)
    ControllerEvents(0, sink).begin(LogDirFailuresNotified(frozenset({1}), (ended,)), {})
    assert [(EventKind.DIRECTORY_FAILED, 2, None)] * 2 == sink.found
    assert [("/a", "broken", 40, True), ("/b", "gone", 40, True)] == [
        (each["directory"], each["reason"], each["broker_epoch"], each["has_ended_broker"])
        for each in sink.details
    ]
