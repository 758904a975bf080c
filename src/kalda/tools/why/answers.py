"""Collects the events of all brokers, and prints an answer: its chain, its limits, and what to run next."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast

from kalda.command.output import Json
from kalda.command.values import parse_time_or_age_ms
from kalda.events.causes import Evidence
from kalda.events.chains import Answer, Incident
from kalda.events.event import TIME_MAX, EventKind
from kalda.events.words import sentence

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.command.command import Tool

_ANSWER_MS: Final = 5_000
"""How long a broker may take to answer: one that is paused or cut off must not hold the answer up."""


_CLOCKS_MAX: Final = 5
"""Clocks that were set, of which an answer warns: one that is set all the time is one warning too."""


@dataclass(frozen=True, slots=True)
class Collected:
    """The events of the brokers that answered."""

    evidence: Evidence
    silent: tuple[int, ...]
    """Brokers that did not answer, or are known and not registered."""
    remarks: tuple[str, ...]


def since_ms_of(text: str) -> int:
    """Return the time that ``--since`` names: a date and time, or how long before now.

    Raises:
        ToolUsageError: it is neither.
    """
    return parse_time_or_age_ms("--since", text, round(time.time() * 1000))


async def collect(
    admin: "AsyncAdmin", since_ms: int, subjects: Mapping[str, str], expected: Iterable[int] = ()
) -> Collected:
    """Ask all brokers for their events; `expected` are brokers that should be there."""
    described = await admin.describe_events(
        since_ms=since_ms, subjects=subjects, outcomes=True, timeout_ms=_ANSWER_MS
    )
    silent = sorted(set(expected) - described.results.keys() | described.errors.keys())
    remarks = []
    for broker_id in silent:
        error = described.errors.get(broker_id)
        reason = "it is not registered" if error is None else str(error)
        remarks.append(f"Broker {broker_id} did not answer, so its own events are missing: {reason}")
    for broker_id, each in sorted(described.results.items()):
        has_all = bool(each.events) and each.events[0].details.get("is_first") is True
        if each.oldest_ms > since_ms > 0 and not has_all:
            remarks.append(f"Broker {broker_id} keeps no events from before {time_text(each.oldest_ms)}.")
    events = [event for each in described.results.values() for event in each.events]
    # Causes are found by their times, which a clock that was set puts out of order.
    clocks = [event for event in events if event.kind == EventKind.CLOCK_CHANGED]
    remarks += [f"{time_text(each.time_ms)}  {sentence(each)}" for each in clocks[-_CLOCKS_MAX:]]
    return Collected(Evidence(events), tuple(silent), tuple(remarks))


def print_answer(tool: "Tool", answer: Answer) -> None:
    """Print an answer, the first cause first."""
    tool.output.result(_document(answer), *_lines(answer))


def _lines(answer: Answer) -> Iterable[str]:
    yield from answer.facts
    if not answer.incidents:
        yield f"No event about {answer.subject} is kept."
    for number, incident in enumerate(answer.incidents):
        yield ""
        if number > 0:
            yield "Before that:"
        yield from _incident_lines(incident)
        if number == 0 and incident.commands:
            yield ""
            yield f"Next: {incident.commands[0]}"
            for command in incident.commands[1:3]:
                yield f"      {command}"
    if answer.remarks:
        yield ""
        yield from answer.remarks


def _incident_lines(incident: Incident) -> Iterable[str]:
    for number, link in enumerate(incident.links, start=1):
        mark = "first cause" if number == 1 else "then"
        yield f"{number}. {time_text(link.event.time_ms)}  {link.text}  ({mark}, event {link.event.id})"


def _document(answer: Answer) -> Json:
    return {
        "subject": answer.subject,
        "facts": list(answer.facts),
        "incidents": [
            {
                "first_cause": incident.first.text,
                "chain": [
                    {
                        "event": str(link.event.id),
                        "time_ms": link.event.time_ms,
                        "kind": link.event.kind,
                        "text": link.text,
                        "subject": dict(link.event.subject),
                        "details": cast("Json", dict(link.event.details)),
                        "cause": None if link.event.cause is None else str(link.event.cause),
                        "evidence": link.evidence,
                    }
                    for link in incident.links
                ],
                "next": list(incident.commands),
            }
            for incident in answer.incidents
        ],
        "remarks": list(answer.remarks),
    }


def time_text(time_ms: int) -> str:
    """Return a time in UTC, to the millisecond; the number itself where it is no date."""
    if not 0 <= time_ms <= TIME_MAX:
        return f"{time_ms} ms"
    return (
        datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{time_ms % 1000:03d}"
    )
