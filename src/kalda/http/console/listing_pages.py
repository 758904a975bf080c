"""Renders pages that are one or more tables."""

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.responses import Response

from kalda.http.console.listings import Listing
from kalda.http.console.visits import Visit


@dataclass(frozen=True, slots=True)
class Part:
    """A table of a page, with its heading."""

    table: Listing
    heading: str = ""
    has_search: bool = True


def listing_page(
    visit: Visit,
    parts: Sequence[Part],
    *,
    title: str,
    section: str,
    command: str,
    intro: str = "",
    actions: Sequence[tuple[str, str]] = (),
    tiles: Sequence[tuple[str, ...]] = (),
    tabs: Sequence[tuple[str, str]] = (),
    tab: str = "",
    trail: tuple[tuple[str, str], ...] = (),
) -> Response:
    """Return a page of tables; `tiles` are a label, a value, and perhaps a note and a kind."""
    return visit.page(
        "listing.html",
        title=title,
        section=section,
        command=command,
        trail=trail,
        listings=parts,
        intro=intro,
        actions=actions,
        tiles=tiles,
        tabs=tabs,
        tab=tab,
    )
