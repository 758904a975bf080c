"""Puts the parts of the server together into one ASGI application.

A part is a module ``routes`` with a function ``routes(services)``, which returns routes
relative to the part's prefix, and may have ``render_error(scope, error)`` for the form of its errors. The
registry has no prefix: its paths are Confluent's, ``/v1/metadata`` among them, so its routes come first.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Final, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from kalda.http.boundary import Boundary
from kalda.http.errors import RenderError
from kalda.http.foreign_pages import ForeignPages
from kalda.http.services import Services
from kalda.net.metrics_text import OPENMETRICS_TYPE, TEXT_TYPE, render

_PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "registry": ("", "kalda.http.registry_api"),
    "gateway": ("/v1", "kalda.http.gateway"),
    "console": ("/console", "kalda.http.console"),
}
"""The prefix of each part's paths, and its package, which is imported only if it is served."""


def create_application(services: Services) -> ASGIApp:
    """Return the application: the registry at ``/``, the gateway at ``/v1``, the console at ``/console``."""
    routes: list[BaseRoute] = list(_common(services))
    renderers: dict[str, RenderError] = {}
    for part, (prefix, package) in _PARTS.items():
        if part not in services.settings.http_parts or find_spec(package) is None:
            continue
        module = import_module(f"{package}.routes")
        own = cast(Callable[[Services], Iterable[BaseRoute]], module.routes)(services)
        routes += [Mount(prefix, routes=list(own))] if prefix else own
        render_error: RenderError | None = getattr(module, "render_error", None)
        if render_error is not None and prefix:
            renderers[prefix.strip("/")] = render_error
    application = Starlette(routes=routes)

    async def routed(scope: Scope, receive: Receive, send: Send) -> None:
        # With the application in the scope, the router raises for what is not found, and `Boundary` renders
        # it. Starlette's own layers would turn every exception into a response of their own before.
        scope["app"] = application
        await application.router(scope, receive, send)

    settings = services.settings
    return Boundary(
        routed, services.metrics, settings.http_request_bytes_max, renderers, ForeignPages(settings)
    )


def _common(services: Services) -> Iterable[BaseRoute]:
    async def root(request: Request) -> Response:
        # Clients of the registry expect an empty object; a person with a browser looks for the console.
        has_console = "console" in services.settings.http_parts
        if has_console and "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/console/")
        return JSONResponse({})

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def metrics(request: Request) -> Response:
        is_openmetrics = "application/openmetrics-text" in request.headers.get("accept", "")
        body = render(services.metrics, is_openmetrics=is_openmetrics)
        return Response(body, media_type=OPENMETRICS_TYPE if is_openmetrics else TEXT_TYPE)

    yield Route("/", root, methods=["GET"])
    yield Route("/healthz", healthz, methods=["GET"])
    yield Route("/metrics", metrics, methods=["GET"])
