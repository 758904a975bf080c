"""Serves the pages that need no login: the login, the colours, errors, and the pages' files."""

import time
from mimetypes import guess_type
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from kalda.http.console.visits import (
    LOGIN,
    PREFIX,
    SECURITY_HEADERS,
    SESSION_COOKIE,
    THEME_COOKIE,
    THEMES,
    Notice,
    Visit,
    local_path,
    read_asset,
)
from kalda.http.credentials import Credentials
from kalda.http.errors import HttpError
from kalda.security.audit import FAILURE, SUCCESS

_ASSETS: Final = ("console.css", "console.js", "htmx.min.js", "htmx.LICENSE", "icon.svg")
_YEAR_SECONDS: Final = 365 * 24 * 3600
_NAME_CHARACTERS_MAX: Final = 256
_PASSWORD_CHARACTERS_MAX: Final = 1_024


async def asset(request: Request) -> Response:
    """Serve a file of the pages; its address has a digest of it, so browsers may keep it."""
    name = request.path_params["name"]
    if name not in _ASSETS:
        raise HttpError(404, f"there is no file {name[:100]}")
    kind = guess_type(name)[0] or "text/plain"
    headers = {**SECURITY_HEADERS, "Cache-Control": f"public, max-age={_YEAR_SECONDS}, immutable"}
    return Response(read_asset(name), media_type=kind, headers=headers)


async def login_form(visit: Visit) -> Response:
    """Show the form of a login."""
    return _login_page(visit, visit.parameter("back"), "", None)


async def log_in(visit: Visit) -> Response:
    """Have the brokers check user and password, and give the visitor a session."""
    entered = await visit.form()
    user, password = entered.get("user", "").strip(), entered.get("password", "")
    back = entered.get("back", "")
    if not 0 < len(user) <= _NAME_CHARACTERS_MAX or not 0 < len(password) <= _PASSWORD_CHARACTERS_MAX:
        return _login_page(visit, back, user, "A user and a password are needed.")
    seconds = visit.services.settings.http_console_session_ms / 1000
    try:
        sealed = visit.pages.seal.seal(LOGIN, {"user": user, "password": password}, time.time() + seconds)
    except ValueError:
        return _login_page(visit, back, user, "The user and the password are too long for a session.")
    client = visit.request.client
    address = "" if client is None else client.host
    try:
        await visit.services.callers.by(Credentials(user, password=password)).authenticate()
    except HttpError as error:
        if error.status != 401:
            raise
        visit.services.audit.write("login", FAILURE, address=address, principal=f"User:{user}", via="console")
        return _login_page(visit, back, user, "The brokers refuse this user or password.")
    visit.services.audit.write("login", SUCCESS, address=address, principal=f"User:{user}", via="console")
    response = visit.redirect(local_path(back), Notice(f"Logged in as {user}."))
    visit.set_cookie(response, SESSION_COOKIE, sealed, round(seconds))
    return response


async def log_out(visit: Visit) -> Response:
    """End the visitor's session."""
    await visit.form()
    response = visit.redirect("/" if not visit.has_logins else "/login")
    visit.log_out(response)
    return response


async def choose_theme(visit: Visit) -> Response:
    """Store the colour theme that the visitor chose."""
    entered = await visit.form()
    theme = entered.get("theme", "auto")
    response = visit.redirect(local_path(entered.get("back", "")))
    visit.set_cookie(response, THEME_COOKIE, theme if theme in THEMES else "auto", _YEAR_SECONDS)
    return response


async def nothing_here(visit: Visit) -> Response:
    """Return the error page for an unknown address."""
    raise HttpError(404, "there is no page at this address")


def to_login(visit: Visit, error: HttpError) -> Response:
    """Send a visitor without a login to the form, which leads back."""
    had_one = SESSION_COOKIE in visit.request.cookies
    query = urlencode({"back": visit.here})
    notice = Notice("The login ended; log in again.", kind="") if had_one else None
    response = visit.redirect(f"/login?{query}", notice)
    if had_one:
        visit.log_out(response)
    return response


def problem(visit: Visit, error: HttpError) -> Response:
    """Return the page of an error."""
    titles = {
        403: "Not allowed",
        404: "Not found",
        501: "Not supported by these brokers",
        503: "Not available now",
    }
    hints = {
        403: "The cluster's ACLs, or the settings of kalda http, do not allow it.",
        503: "The brokers cannot be reached, or the server is busy.",
        504: "The brokers did not answer in time.",
    }
    is_of_login = error.status in (401, 403) and visit.has_logins
    return visit.page(
        "error.html",
        title=titles.get(error.status, "It failed"),
        status=error.status,
        message=error.message[:1].upper() + error.message[1:],
        hint=hints.get(error.status, ""),
        login=f"{PREFIX}/login?{urlencode({'back': visit.here})}" if is_of_login else None,
    )


def _login_page(visit: Visit, back: str, user: str, error: str | None) -> Response:
    mechanism = visit.services.settings.http_caller_sasl_mechanism or visit.services.settings.client.get(
        "sasl.mechanism", "SCRAM-SHA-512"
    )
    return visit.page(
        "login.html",
        title="Log in",
        status=200 if error is None else 401,
        back=back,
        user=user,
        error=error,
        mechanism=mechanism,
    )
