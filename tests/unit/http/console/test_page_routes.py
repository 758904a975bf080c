"""Which page an address leads to."""

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount

from kalda.http.console.routes import PageRoute


@pytest.fixture
def application() -> Starlette:
    def route(name: str, path: str) -> BaseRoute:
        async def page(request: Request) -> Response:
            return JSONResponse([name, request.path_params])

        return PageRoute(path, page)

    pages = [
        route("broker", "/brokers/{broker_id:int}"),
        route("history", "/groups/{group:path}/history"),
        route("group", "/groups/{group:path}"),
        route("nothing", "/{path:path}"),
    ]
    return Starlette(routes=[Mount("/console", routes=pages)])


@pytest.mark.parametrize(
    ("address", "name", "parameters"),
    [
        ("groups/a", "group", {"group": "a"}),
        ("groups/a/history?page=2", "history", {"group": "a"}),
        ("groups/a%2Fhistory", "group", {"group": "a/history"}),
        ("groups/a%2Fhistory/history", "history", {"group": "a/history"}),
        ("groups/a%252Fb%20%C3%A4", "group", {"group": "a%2Fb ä"}),
        ("groups/a/b/history", "history", {"group": "a/b"}),
        ("brokers/7", "broker", {"broker_id": 7}),
        ("brokers/" + "9" * 5_000, "nothing", {"path": "brokers/" + "9" * 5_000}),
    ],
)
async def test_an_address_leads_to_its_page(
    application: Starlette, address: str, name: str, parameters: dict[str, object]
) -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(application), base_url="http://localhost/console/"
    ) as client:
        assert [name, parameters] == (await client.get(address)).json()
