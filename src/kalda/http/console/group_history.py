"""Serves the page of a group's history: rebalances, members, offsets that were set, and the causes."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from kalda.events.causes import Evidence
from kalda.events.event import CausalEvent
from kalda.events.words import sentence
from kalda.http.console import command_lines
from kalda.http.console.group_pages import TRAIL, group_tabs
from kalda.http.console.listing_pages import Part, listing_page
from kalda.http.console.listings import Cell, Column, Row, listing
from kalda.http.console.reading import Reading
from kalda.http.console.texts import count_text, time_text
from kalda.http.console.visits import Visit, path_of

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin
    from kalda.clients.admin.events import BrokerEvents
    from kalda.clients.admin.outcomes import Outcomes

_DAYS: Final = 30
_DAY_MS: Final = 86_400_000
_ANSWER_MS: Final = 5_000
"""How long a broker may take to answer: one that hangs must not hold the page up."""
EVENTS_MAX: Final = 5_000
"""The latest events of the group that the page has; a member that fails and joins makes many."""
_COLUMNS: Final = (
    Column("time", "Time (UTC)"),
    Column("what", "What"),
    Column("event", "Event"),
    Column("cause", "Cause", is_secondary=True),
)


@dataclass(frozen=True, slots=True)
class History:
    """The rows of a group, and what is missing; it is kept, so it has nothing of what else brokers sent."""

    rows: Sequence[Row]
    """The newest first."""
    problems: Sequence[str]


async def group_history(visit: Visit, reading: Reading) -> Response:
    """Show what happened to a group, the newest first."""
    name = visit.request.path_params["group"]

    async def read() -> History:
        return await read_history(await visit.admin(), name)

    history = await reading.snapshots.get(visit.caller, f"history of group {name}", read)
    table = listing(
        f"{path_of('groups', name)}/history",
        visit.parameters,
        _COLUMNS,
        history.rows,
        one="event",
        many="events",
        empty=(
            "No events are kept",
            " ".join(history.problems)
            or f"Nothing was recorded of this group in the last {_DAYS} days, or brokers no longer keep it.",
        ),
        sort="-time",
    )
    intro = (
        f"Rebalances, members that came and went, offsets that were deleted or reset: the last {_DAYS} days."
    )
    return listing_page(
        visit,
        [Part(table)],
        title=name,
        section="Groups",
        trail=TRAIL,
        tabs=group_tabs(name),
        tab="History",
        command=command_lines.line("why", "group", name, options={"since": f"{_DAYS}d"}),
        intro=" ".join((intro, *(history.problems if history.rows else ()))),
    )


async def read_history(admin: "AsyncAdmin", group: str) -> History:
    """Return what the brokers know of a group."""
    since_ms = round(time.time() * 1000) - _DAYS * _DAY_MS
    found = await admin.describe_events(
        since_ms=since_ms, subjects={"group": group}, outcomes=True, timeout_ms=_ANSWER_MS
    )
    # There may be a hundred thousand events of each broker, about brokers too.
    return await asyncio.to_thread(_history, group, found, since_ms)


def _history(group: str, found: "Outcomes[int, BrokerEvents]", since_ms: int) -> History:
    evidence = Evidence(event for each in found.results.values() for event in each.events)
    events = [each for each in evidence.events if each.has(group=group)]
    problems = [
        f"The events of broker {broker_id} are missing: {str(error).rstrip('.')}."
        for broker_id, error in sorted(found.errors.items())
    ]
    oldest_ms = max((_kept_since_ms(each) for each in found.results.values()), default=0)
    if oldest_ms > since_ms:
        problems.append(f"Not every broker keeps events from before {time_text(oldest_ms)} any more.")
    if len(events) > EVENTS_MAX:
        problems.append(f"Only the latest {count_text(EVENTS_MAX)} events are listed.")
    return History([_row(each, evidence) for each in reversed(events[-EVENTS_MAX:])], problems)


def _kept_since_ms(broker: "BrokerEvents") -> int:
    """Return the time from which on a broker has all its events; 0 if it has dropped none."""
    has_all = bool(broker.events) and broker.events[0].details.get("is_first") is True
    return 0 if has_all else max(broker.oldest_ms, 0)


def _row(event: CausalEvent, evidence: Evidence) -> Row:
    cause = evidence.cause_of(event)
    return Row(
        [
            Cell(time_text(event.time_ms), is_code=True, value=event.time_ms),
            Cell(event.kind.replace("-", " "), note=f"event {event.id}"),
            Cell(sentence(event)),
            Cell("" if cause is None else sentence(cause)),
        ]
    )
