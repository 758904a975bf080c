"""Identifies the visitor of a page and what the visitor may do, and renders pages for the visitor."""

import contextlib
import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from kalda.http.callers import Caller
from kalda.http.console import texts
from kalda.http.console.sealing import Seal
from kalda.http.credentials import Credentials
from kalda.http.errors import HttpError
from kalda.http.services import Services

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin

PREFIX: Final = "/console"
SESSION_COOKIE: Final = "kalda_session"
VISITOR_COOKIE: Final = "kalda_visitor"
NOTICE_COOKIE: Final = "kalda_notice"
THEME_COOKIE: Final = "kalda_theme"
THEMES: Final = ("auto", "light", "dark")

LOGIN: Final = "login"
_NOTICE: Final = "notice"
_NOTICE_SECONDS: Final = 60
_NOTICE_CHARACTERS_MIN: Final = 400
"""The part of its text that a notice has in any case."""
_FIELDS_MAX: Final = 400
_YEAR_SECONDS: Final = 365 * 24 * 3600

SECTIONS: Final[tuple[tuple[str, str], ...]] = (
    ("Overview", "/"),
    ("Topics", "/topics"),
    ("Groups", "/groups"),
    ("Pipelines", "/pipelines"),
    ("Schemas", "/schemas"),
    ("Brokers", "/brokers"),
    ("Transactions", "/transactions"),
    ("Moves", "/reassignments"),
    ("ACLs", "/acls"),
    ("Users", "/users"),
    ("Quotas", "/quotas"),
    ("Clients", "/clients"),
)

SECURITY_HEADERS: Final = {  # besides those of every response of the server
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Notice:
    """A message about a finished change, which the next page shows."""

    text: str
    command: str = ""
    kind: str = "good"


class Pages:
    """Renders pages; a process has one."""

    def __init__(self, services: Services, seal: Seal) -> None:
        self.services: Final = services
        self.seal: Final = seal
        self._templates: Final = Environment(
            loader=PackageLoader("kalda.http.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters.update(
            count=texts.count_text,
            size=texts.size_text,
            time=texts.time_text,
            age=texts.age_text,
            rate=texts.rate_text,
        )

        self._templates.globals["path_of"] = path_of

    def session_of(self, connection: HTTPConnection) -> Credentials | None:
        """Return the login of a connection's cookie; it is a function for `Callers.add_session`."""
        sealed = connection.cookies.get(SESSION_COOKIE)
        opened = None if sealed is None else self.seal.open(LOGIN, sealed, time.time())
        if opened is None:
            return None
        return Credentials(str(opened["user"]), password=str(opened["password"]))

    def compile_templates(self) -> None:
        """Compile all templates; the first visitors need not wait the tenths of a second that it takes."""
        for name in self._templates.list_templates():
            self._templates.get_template(name)

    def render(self, template: str, values: Mapping[str, object]) -> str:
        """Return a page as HTML."""
        return self._templates.get_template(template).render(values)

    def visit(self, request: Request) -> "Visit":
        """Return the visit for a request.

        Raises:
            HttpError: the cluster has logins, and the visitor has none (401).
        """
        return Visit(self, request, self.services.callers.of(request))

    def stranger(self, request: Request) -> "Visit":
        """Return a visit without an identity, for pages that need none."""
        return Visit(self, request, None)


class Visit:
    """One request for a page.

    Args:
        pages: What renders pages.
        request: The request.
        caller: Who asks; None on the pages that show nothing of the cluster.
    """

    def __init__(self, pages: Pages, request: Request, caller: Caller | None) -> None:
        self.pages: Final = pages
        self.request: Final = request
        self._caller: Final = caller
        self._visitor_id = request.cookies.get(VISITOR_COOKIE, "")
        self._is_new = not (
            self._visitor_id.isascii() and self._visitor_id.isalnum() and len(self._visitor_id) == 32
        )
        if self._is_new:
            self._visitor_id = secrets.token_hex(16)
        self._notice: Final = self._read_notice()
        self.may_have_changed = False
        """Whether the request was a confirmed change: also one that failed may have changed something."""

    # Who it is.

    @property
    def caller(self) -> Caller:
        """The caller who requested the page."""
        if self._caller is None:
            raise HttpError(401, "this page needs a login")
        return self._caller

    @property
    def services(self) -> Services:
        """What the parts of the server share."""
        return self.pages.services

    async def admin(self) -> "AsyncAdmin":
        """Return an admin client that acts as the visitor."""
        return await self.caller.admin()

    @property
    def user(self) -> str | None:
        """The name of the visitor who is logged in; None without a login."""
        caller = self._caller
        return None if caller is None or caller.is_anonymous else caller.principal.removeprefix("User:")

    @property
    def has_logins(self) -> bool:
        """Whether the cluster has logins."""
        return self.services.callers.needs_login

    @property
    def may_change(self) -> bool:
        """Whether the visitor may try to change things; on a cluster with logins, its ACLs decide further."""
        caller = self._caller
        if caller is None or caller.is_read_only:
            return False
        return not caller.is_anonymous or self.services.settings.http_console_writable

    @property
    def why_read_only(self) -> str:
        """Why the visitor may change nothing, and what to do about it."""
        if self.has_logins:
            return "You can look only: log in to change something."
        return (
            "You can look only: this cluster has no logins, so changes need the setting "
            "http.console.writable=true of kalda http."
        )

    # The request.

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the address."""
        return dict(self.request.query_params)

    def parameter(self, name: str, default: str = "") -> str:
        """Return a parameter of the address."""
        return self.request.query_params.get(name, default)

    @property
    def here(self) -> str:
        """The address of this page, for a way back to it."""
        url = self.request.url
        return f"{url.path}?{url.query}" if url.query else url.path

    async def form(self) -> dict[str, str]:
        """Return the fields of a form that a page of the same visitor sent.

        Raises:
            HttpError: the form is of another kind (415), malformed (400), or from another site (403).
        """
        kind = self.request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise HttpError(
                415, f"the form has the type {kind or 'nothing'}; it takes application/x-www-form-urlencoded"
            )
        body = await self.request.body()
        try:
            pairs = parse_qsl(
                body.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX, errors="strict"
            )
        except ValueError:
            raise HttpError(400, "the form is malformed") from None
        # A browser ends lines of a text area with CR LF; what was pasted had LF.
        fields = {name: value.replace("\r\n", "\n") for name, value in pairs}
        if self._is_new or not self.pages.seal.is_form_token(self._visitor_id, fields.pop("token", "")):
            raise HttpError(
                403,
                "the form is not from a page of this console, or the console was started again since; go "
                "back, load the page again and send it again",
            )
        return fields

    # The response.

    def url(self, path: str) -> str:
        """Return the address of one of the console's pages."""
        return PREFIX + path

    def asset(self, name: str) -> str:
        """Return the address of a file of the pages; it changes with the file's content."""
        return f"{PREFIX}/static/{_asset_version(name)}/{name}"

    @property
    def theme(self) -> str:
        """The colours that the visitor chose."""
        chosen = self.request.cookies.get(THEME_COOKIE, "auto")
        return chosen if chosen in THEMES else "auto"

    @property
    def notice(self) -> Notice | None:
        """The notice about the visitor's last change."""
        return self._notice

    def hidden_fields(self) -> Markup:
        """Return the fields that each form has."""
        token = self.pages.seal.form_token(self._visitor_id)
        return Markup('<input type="hidden" name="token" value="{}">').format(token)

    def page(
        self,
        template: str,
        *,
        title: str,
        section: str = "",
        command: str = "",
        status: int = 200,
        trail: tuple[tuple[str, str], ...] = (),
        **values: object,
    ) -> Response:
        """Render a page.

        Args:
            template: The name of its template.
            title: Its title, also the heading unless `values` has one.
            section: The entry of the navigation that it belongs to.
            command: The command that shows the same.
            status: The HTTP status.
            trail: Names and addresses of the pages above it.
            values: What the template needs.
        """
        html = self.pages.render(
            template,
            {
                "visit": self,
                "sections": self._sections,
                "title": title,
                "section": section,
                "command": command,
                "trail": [(name, self.url(path)) for name, path in trail],
                **values,
            },
        )
        response = HTMLResponse(html, status, headers=SECURITY_HEADERS)
        self._set_visitor(response)
        if self._notice is not None:
            self._delete_cookie(response, NOTICE_COOKIE)
        return response

    def redirect(self, path: str, notice: Notice | None = None) -> Response:
        """Send the visitor to another page of the console, which shows a notice."""
        response = RedirectResponse(self.url(path), 303, headers=SECURITY_HEADERS)
        if notice is not None:
            self.set_cookie(response, NOTICE_COOKIE, self._sealed_notice(notice), _NOTICE_SECONDS)
        self._set_visitor(response)
        return response

    def _sealed_notice(self, notice: Notice) -> str:
        """Return as much of a notice as a cookie holds; names may be long, and take six bytes a character."""
        for text, command in ((notice.text, notice.command), (notice.text, "")):
            document = {"text": text, "command": command, "kind": notice.kind}
            with contextlib.suppress(ValueError):
                return self.pages.seal.seal(_NOTICE, document, time.time() + _NOTICE_SECONDS)
        document = {"text": notice.text[:_NOTICE_CHARACTERS_MIN], "command": "", "kind": notice.kind}
        return self.pages.seal.seal(_NOTICE, document, time.time() + _NOTICE_SECONDS)

    def set_cookie(self, response: Response, name: str, value: str, seconds: int | None) -> None:
        """Set a cookie that scripts cannot read and that other sites' pages do not send."""
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            path=PREFIX,
            secure=self.is_secure,
            httponly=True,
            samesite="strict",
        )

    def _delete_cookie(self, response: Response, name: str) -> None:
        self.set_cookie(response, name, "", 0)

    def log_out(self, response: Response) -> None:
        """End the visitor's login."""
        self._delete_cookie(response, SESSION_COOKIE)

    @property
    def is_secure(self) -> bool:
        """Whether the visitor came by https."""
        return self.request.url.scheme == "https"

    def audit(self, outcome: str, **fields: object) -> None:
        """Write an event of the visitor to the audit log."""
        client = self.request.client
        principal = "User:ANONYMOUS" if self._caller is None else self._caller.principal
        self.services.audit.write(
            "change",
            outcome,
            address="" if client is None else client.host,
            principal=principal,
            via="console",
            **fields,
        )

    @property
    def _sections(self) -> list[tuple[str, str]]:
        return [each for each in SECTIONS if self.has_registry or each[0] != "Schemas"]

    @property
    def has_registry(self) -> bool:
        """Whether the process serves a registry."""
        return "registry" in self.services.settings.http_parts

    def _set_visitor(self, response: Response) -> None:
        if self._is_new:
            self.set_cookie(response, VISITOR_COOKIE, self._visitor_id, _YEAR_SECONDS)

    def _read_notice(self) -> Notice | None:
        sealed = self.request.cookies.get(NOTICE_COOKIE)
        opened = None if sealed is None else self.pages.seal.open(_NOTICE, sealed, time.time())
        if opened is None:
            return None
        return Notice(str(opened["text"]), str(opened["command"]), str(opened["kind"]))


def path_of(*parts: str | int) -> str:
    """Return a path of the console from names, each of which is one segment whatever it contains.

    >>> path_of("topics", "a/b", "records", 0)
    '/topics/a%2Fb/records/0'
    """
    return "".join(f"/{quote(str(each), safe='')}" for each in parts)


def local_path(text: str) -> str:
    """Return an address within the console, relative to its prefix; the overview for any other address.

    >>> local_path("/console/topics?q=a"), local_path("//evil.example/console/"), local_path("https://a/")
    ('/topics?q=a', '/', '/')
    """
    parts = urlsplit(text) if text.isprintable() and "\\" not in text else None
    if parts is None or parts.scheme or parts.netloc or not text.startswith(f"{PREFIX}/"):
        return "/"
    rest = text.removeprefix(PREFIX)
    return "/" if rest.startswith("//") or "/../" in f"{parts.path}/" else rest


def read_asset(name: str) -> bytes:
    """Return the content of a file of the pages."""
    return (files("kalda.http.console") / "static" / name).read_bytes()


@cache
def _asset_version(name: str) -> str:
    return hashlib.sha256(read_asset(name)).hexdigest()[:12]
