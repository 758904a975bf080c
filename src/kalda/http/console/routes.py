"""Maps the addresses of the console to its pages."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import unquote

from starlette.convertors import PathConvertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from kalda.common.overriding import override
from kalda.http.console import (
    account_pages,
    group_history,
    group_pages,
    history_pages,
    operations_pages,
    overview,
    pipeline_pages,
    record_pages,
    schema_pages,
    security_pages,
    topic_pages,
)
from kalda.http.console.changes import ChangeForm
from kalda.http.console.reading import Reading
from kalda.http.console.record_changes import record_forms
from kalda.http.console.sealing import Seal
from kalda.http.console.topic_changes import topic_forms
from kalda.http.console.visits import Pages, Visit
from kalda.http.errors import HttpError
from kalda.http.services import Services

Page = Callable[[Visit, Reading], Awaitable[Response]]


class PageRoute(Route):
    """A page that is found by its address as it was sent.

    A name may have a slash, which is written as ``%2F``: the group ``a/history`` is not the history of `a`.
    Names of topics and pipelines have none.
    """

    @override
    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        sent = {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
        try:
            match, found = super().matches(sent)
        except ValueError:  # a number of thousands of digits
            return Match.NONE, {}
        given: dict[str, Any] = found.get("path_params", {})
        for name, value in given.items():
            given[name] = unquote(value) if isinstance(value, str) else value
            if "/" in str(given[name]) and not isinstance(self.param_convertors[name], PathConvertor):
                return Match.NONE, {}
        return match, found


def routes(services: Services) -> list[BaseRoute]:
    """Return the routes of the console, relative to its prefix."""
    return Console(services).routes()


def render_error(scope: Scope, error: HttpError) -> Response:
    """Render an error as a page; a request without a login goes to the form."""
    console: Console | None = scope.get("kalda.console")
    if console is None:
        return Response(error.message, error.status, media_type="text/plain")
    return console.error_page(Request(scope), error)


class Console:
    """The console of one process."""

    def __init__(self, services: Services) -> None:
        key = services.settings.http_console_key
        self._pages: Final = Pages(
            services, Seal(secrets.token_bytes(32) if key is None else key.encode(), secrets.token_bytes)
        )
        self._reading: Final = Reading()
        self._records: Final = record_pages.RecordPages()
        self._tails: Final = record_pages.Tails()
        services.callers.add_session(self._pages.session_of)
        compiling = asyncio.create_task(
            services.background.compute(self._pages.compile_templates), name="templates of the console"
        )

        async def close() -> None:
            compiling.cancel()
            await asyncio.gather(compiling, return_exceptions=True)

        services.lifetime.on_close(close)

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        pages: dict[str, Page] = {
            "/": overview.overview,
            "/brokers": overview.brokers,
            "/brokers/{broker_id:int}": overview.broker,
            "/acls": security_pages.acls,
            "/users": security_pages.users,
            "/quotas": security_pages.quotas,
            "/transactions": operations_pages.transactions,
            "/reassignments": operations_pages.moves,
            "/clients": operations_pages.clients,
            "/schemas": schema_pages.schemas,
            "/schemas/{subject:path}": schema_pages.schema,
            "/pipelines": pipeline_pages.pipelines,
            "/pipelines/{pipeline}": pipeline_pages.pipeline,
            "/pipelines/{pipeline}/letters": pipeline_pages.letters,
            "/groups": group_pages.groups,
            "/groups/{group:path}/history": group_history.group_history,
            "/groups/{group:path}": group_pages.group,
            "/topics": topic_pages.topics,
            "/topics/{topic}": topic_pages.topic,
            "/topics/{topic}/settings": topic_pages.topic_settings,
            "/topics/{topic}/groups": topic_pages.topic_groups,
            "/topics/{topic}/history": history_pages.topic_history,
            "/topics/{topic}/records": self._records.records,
            "/topics/{topic}/records/{partition:int}/{offset:int}": record_pages.record,
            "/topics/{topic}/live": record_pages.live,
            "/topics/{topic}/live/events": self._tails.events,
        }
        forms: dict[str, ChangeForm] = {
            **topic_forms(self._reading),
            **record_forms(),
            **group_pages.group_forms(self._reading),
            **security_pages.security_forms(),
            **operations_pages.operations_forms(),
            **overview.broker_forms(),
            **pipeline_pages.pipeline_forms(),
        }
        found: list[BaseRoute] = [
            Route("/static/{version}/{name}", account_pages.asset, methods=["GET"]),
            self._stranger("/login", account_pages.login_form, "GET"),
            self._stranger("/login", account_pages.log_in, "POST"),
            self._stranger("/logout", account_pages.log_out, "POST"),
            self._stranger("/theme", account_pages.choose_theme, "POST"),
        ]
        # Forms first: /topics/create is no topic's page.
        for path, form in forms.items():
            found.append(self._route(path, _without_reading(form.get), "GET"))
            found.append(self._route(path, _without_reading(form.post), "POST"))
        found += [self._route(path, page, "GET") for path, page in pages.items()]
        found.append(self._stranger("/{path:path}", account_pages.nothing_here, "GET"))
        return found

    def error_page(self, request: Request, error: HttpError) -> Response:
        """Return the page of an error."""
        visit = self._pages.stranger(request)
        if error.status == 401 and request.method == "GET":
            return account_pages.to_login(visit, error)
        return account_pages.problem(visit, error)

    def _route(self, path: str, page: Page, method: str) -> BaseRoute:
        async def endpoint(request: Request) -> Response:
            request.scope["kalda.console"] = self
            visit = self._pages.visit(request)
            try:
                return await page(visit, self._reading)
            finally:
                if visit.may_have_changed:
                    self._reading.snapshots.forget(visit.caller)

        return PageRoute(path, endpoint, methods=[method])

    def _stranger(self, path: str, page: Callable[[Visit], Awaitable[Response]], method: str) -> BaseRoute:
        async def endpoint(request: Request) -> Response:
            request.scope["kalda.console"] = self
            visit = self._pages.stranger(request)
            return await page(visit)

        return PageRoute(path, endpoint, methods=[method])


def _without_reading(page: Callable[[Visit], Awaitable[Response]]) -> Page:
    async def called(visit: Visit, _reading: Reading) -> Response:
        return await page(visit)

    return called
