"""Serves the page of a group's history: rebalances, members, and deleted offsets, each with its cause."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from kalda.events.causes import Evidence
from kalda.events.words import sentence
from kalda.http.console import command_lines
from kalda.http.console.group_pages import TRAIL, group_tabs
from kalda.http.console.listing_pages import Part, listing_page
from kalda.http.console.listings import Cell, Column, Row, listing
from kalda.http.console.reading import Reading
from kalda.http.console.texts import time_text
from kalda.http.console.visits import Visit, path_of

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin

_DAYS: Final = 30
_DAY_MS: Final = 86_400_000
_ANSWER_MS: Final = 5_000
"""How long a broker may take to answer: one that hangs must not hold the page up."""
_EVENTS_MAX: Final = 5_000
"""The latest events of the group that the page has; a member that fails and joins makes many."""
_COLUMNS: Final = (
    Column("time", "Time (UTC)"),
    Column("what", "What"),
    Column("event", "Event"),
    Column("cause", "Cause", is_secondary=True),
)


@dataclass(frozen=True, slots=True)
class _History:
    """The events of the brokers that answered, and what is missing."""

    evidence: Evidence
    problems: tuple[str, ...]


async def group_history(visit: Visit, reading: Reading) -> Response:
    """Show what happened to a group, the newest first."""
    name = visit.request.path_params["group"]

    async def read() -> _History:
        return await _read(await visit.admin(), name)

    history = await reading.snapshots.get(visit.caller, f"history of group {name}", read)
    rows = event_rows(name, history.evidence)
    table = listing(
        f"{path_of('groups', name)}/history",
        visit.parameters,
        _COLUMNS,
        rows,
        one="event",
        many="events",
        empty=(
            "No events are kept",
            " ".join(history.problems)
            or f"Nothing was recorded of this group in the last {_DAYS} days, or brokers no longer keep it.",
        ),
        sort="-time",
    )
    intro = f"Rebalances, members that came and went, and deleted offsets of the last {_DAYS} days."
    return listing_page(
        visit,
        [Part(table)],
        title=name,
        section="Groups",
        trail=TRAIL,
        tabs=group_tabs(name),
        tab="History",
        command=command_lines.line("why", "group", name, options={"since": f"{_DAYS}d"}),
        intro=" ".join((intro, *(history.problems if rows else ()))),
    )


def event_rows(group: str, evidence: Evidence) -> list[Row]:
    """Return the events of a group, the newest first."""
    events = [each for each in evidence.events if each.has(group=group)][-_EVENTS_MAX:]
    rows = []
    for event in reversed(events):
        cause = evidence.cause_of(event)
        rows.append(
            Row(
                [
                    Cell(time_text(event.time_ms), is_code=True, value=event.time_ms),
                    Cell(event.kind.replace("-", " "), note=f"event {event.id}"),
                    Cell(sentence(event)),
                    Cell("" if cause is None else sentence(cause)),
                ]
            )
        )
    return rows


async def _read(admin: "AsyncAdmin", group: str) -> _History:
    found = await admin.describe_events(
        since_ms=round(time.time() * 1000) - _DAYS * _DAY_MS,
        subjects={"group": group},
        outcomes=True,
        timeout_ms=_ANSWER_MS,
    )
    events = [event for each in found.results.values() for event in each.events]
    problems = [
        f"The events of broker {broker_id} are missing: {str(error).rstrip('.')}."
        for broker_id, error in sorted(found.errors.items())
    ]
    return _History(Evidence(events), tuple(problems))
