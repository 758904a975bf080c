"""Maps the paths of the gateway, relative to ``/v1``, to its endpoints."""

from collections.abc import Iterable, Iterator

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route, Router, WebSocketRoute
from starlette.websockets import WebSocket

from kalda.http.gateway import openapi
from kalda.http.gateway.cors import with_cors
from kalda.http.gateway.gateway import Gateway
from kalda.http.gateway.rules.rules import RequestKind
from kalda.http.services import Services

_PAGE_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def routes(services: Services) -> Iterable[BaseRoute]:
    """Return the routes; called once, on the running event loop."""
    own = list(_routes(Gateway(services)))
    origins = services.settings.http_cors_origins
    return [Mount("", app=with_cors(Router(own), origins))] if origins else own


def _routes(gateway: Gateway) -> Iterator[BaseRoute]:
    async def described(_request: Request) -> Response:
        return JSONResponse(openapi.document())

    async def page(_request: Request) -> Response:
        return HTMLResponse(openapi.page(), headers={"Content-Security-Policy": _PAGE_POLICY})

    yield Route("/", page, methods=["GET"])
    yield Route("/openapi.json", described, methods=["GET"])
    wrap = gateway.rules.wrap
    stream = wrap(RequestKind.STREAM, gateway.streams.events)
    messages = wrap(RequestKind.STREAM, gateway.streams.socket)

    async def socket(websocket: WebSocket) -> None:
        await (await messages(websocket))(websocket.scope, websocket.receive, websocket.send)

    yield Route("/topics/{topic}/stream", stream, methods=["GET"])
    yield WebSocketRoute("/topics/{topic}/stream", socket)
    yield Route("/topics/{topic}", wrap(RequestKind.WRITE, gateway.writes.post), methods=["POST"])
    records = wrap(RequestKind.CONSUMER, gateway.consumers.records, gateway.consumers.topics_of)
    consumers = "/groups/{group}/consumers"
    yield Route(consumers, gateway.consumers.create, methods=["POST"])
    yield Route(f"{consumers}/{{consumer}}", gateway.consumers.delete, methods=["DELETE"])
    yield Route(f"{consumers}/{{consumer}}/records", records, methods=["GET"])
    yield Route(f"{consumers}/{{consumer}}/acks", gateway.consumers.acknowledge, methods=["POST"])
    yield Route(f"{consumers}/{{consumer}}/renew", gateway.consumers.renew, methods=["POST"])
    webhook = "/webhooks/{webhook}"
    yield Route("/webhooks", gateway.webhooks.list, methods=["GET"])
    yield Route(webhook, gateway.webhooks.show, methods=["GET"])
    yield Route(webhook, gateway.webhooks.put, methods=["PUT"])
    yield Route(webhook, gateway.webhooks.delete, methods=["DELETE"])
