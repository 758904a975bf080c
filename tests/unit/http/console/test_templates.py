"""The templates of the console's pages."""

import secrets
from typing import cast

import jinja2
import pytest

from kalda.http.console.sealing import Seal
from kalda.http.console.visits import Pages
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
