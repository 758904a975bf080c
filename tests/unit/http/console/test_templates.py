"""The templates of the console's pages."""

import re
import secrets
from types import SimpleNamespace
from typing import Any, cast

import jinja2
import pytest
from starlette.requests import Request

from kalda.http.console.listings import Cell, Column, Row, listing
from kalda.http.console.sealing import Seal
from kalda.http.console.visits import NOTICE_COOKIE, Notice, Pages
from kalda.http.services import Services


def test_no_page_waits_for_a_template_that_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first page of a process took as long for its templates as for the cluster."""
    pages = Pages(cast(Services, None), Seal(secrets.token_bytes(32), secrets.token_bytes))

    pages.compile_templates()

    def fail(*_: object) -> None:
        raise AssertionError("a template is read again")

    monkeypatch.setattr(jinja2.PackageLoader, "get_source", fail)
    with pytest.raises(jinja2.UndefinedError):
        pages.render("topics.html", {})


def test_only_cells_with_a_long_word_may_break_their_words() -> None:
    """A column of short words that may break was made so narrow that "rebalancing" had two lines."""
    pages = Pages(cast(Services, None), Seal(secrets.token_bytes(32), secrets.token_bytes))
    cells = [
        Cell("first"),
        Cell("group rebalancing"),
        Cell(f"group {'x' * 200}"),
        Cell("1-mio3x9q1", is_code=True),
    ]
    columns = [Column(name, name) for name in "abcd"]
    table = listing("/p", {}, columns, [Row(cells)], one="event", many="events", empty=("", ""))
    visit = SimpleNamespace(url=str)

    parts = cast(Any, pages._templates.get_template("parts.html").module)
    shown = parts.listing(visit, table)

    assert ["", "wrap", "code "] == re.findall('<td class="([^"]*)">', shown)


@pytest.mark.parametrize("name", ["a" * 249, "\u00e9" * 249, "\U0001f600" * 249, "\0" * 249, '"' * 3_000])
def test_a_notice_fits_into_its_cookie_whatever_names_it_has(name: str) -> None:
    """It comes after the change was made: an error in its place would have the visitor make it again."""
    pages = Pages(cast(Services, None), Seal(secrets.token_bytes(32), secrets.token_bytes))
    scope = {
        "type": "http",
        "scheme": "http",
        "headers": [],
        "method": "POST",
        "path": "/",
        "query_string": b"",
    }

    response = pages.stranger(Request(scope)).redirect("/groups", Notice(f"Reset {name}.", f"kalda {name}"))

    sealed = next(each for each in response.headers.getlist("set-cookie") if each.startswith(NOTICE_COOKIE))
    cookie = f"{NOTICE_COOKIE}={sealed.split('=', 1)[1].split(';')[0]}"
    shown = pages.stranger(Request({**scope, "headers": [(b"cookie", cookie.encode())]})).notice
    assert shown is not None
    assert shown.text.startswith(f"Reset {name[:80]}")
    assert len(sealed) < 4_096
