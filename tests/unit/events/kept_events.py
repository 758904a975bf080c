"""A sink that keeps what it gets, for tests of what emits events."""

from collections.abc import Mapping

from kalda.events.event import CausalEvent, EventId, Plain, Subject


class KeptEvents:
    """An `EventSink`; `events` has what was emitted."""

    def __init__(self) -> None:
        self.events: list[CausalEvent] = []

    def emit(
        self,
        kind: str,
        subject: Subject,
        details: Mapping[str, Plain] | None = None,
        *,
        cause: EventId | None = None,
    ) -> EventId | None:
        """Keep an event."""
        found = CausalEvent(
            id=EventId(0, len(self.events) + 1),
            time_ms=0,
            kind=kind,
            subject=subject,
            details=details or {},
            cause=cause,
        )
        self.events.append(found)
        return found.id

    def emit_seldom(
        self, kind: str, subject: Subject, details: Mapping[str, Plain] | None = None
    ) -> EventId | None:
        """Keep an event, however often it comes."""
        return self.emit(kind, subject, details)

    def of_kind(self, kind: str) -> list[CausalEvent]:
        """Return the events of one kind."""
        return [event for event in self.events if event.kind == kind]
