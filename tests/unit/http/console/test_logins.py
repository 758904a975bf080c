"""Logging in to the console."""

import secrets
from types import SimpleNamespace
from typing import Any, cast

from starlette.responses import Response

from kalda.http.console.account_pages import log_in
from kalda.http.console.sealing import Seal


async def test_a_login_that_no_cookie_can_hold_is_refused_in_the_form() -> None:
    """It is checked before the brokers are asked: the login was right, and the answer status 500."""

    async def form() -> dict[str, str]:
        return {"user": "alice", "password": "\U0001f600" * 1_000}

    shown: dict[str, Any] = {}

    def page(_template: str, **values: Any) -> Response:
        shown.update(values)
        return Response()

    settings = SimpleNamespace(http_console_session_ms=60_000, http_caller_sasl_mechanism="PLAIN")
    visit = SimpleNamespace(
        form=form,
        page=page,
        pages=SimpleNamespace(seal=Seal(b"k" * 32, secrets.token_bytes)),
        services=SimpleNamespace(settings=settings),
    )

    await log_in(cast(Any, visit))

    assert "The user and the password are too long for a session." == shown["error"]
