"""Confirmed changes: what is known of the cluster afterwards, and what exactly is changed."""

import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount

from kalda.clients.errors import RequestTimedOutError
from kalda.common.types import TopicPartition
from kalda.http.console import topic_changes
from kalda.http.console.reading import Reading
from kalda.http.console.routes import Console
from kalda.http.console.sealing import Seal
from kalda.http.console.visits import VISITOR_COOKIE
from kalda.http.errors import HttpError
from kalda.http.services import Services

KEY = "k" * 32
VISITOR = "a" * 32


class Admin:
    """Creates topics, or fails after that."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.deleted: list[object] = []
        self.topic_id: UUID | None = UUID(int=7)

    async def create_topics(self, topics: Iterable[object], *, validate_only: bool = False) -> None:
        if not validate_only and self.error is not None:
            raise self.error

    async def describe_topics(self, topics: Iterable[str]) -> Mapping[str, object]:
        return {topic: SimpleNamespace(topic_id=self.topic_id) for topic in topics}

    async def delete_topics(self, topics: Iterable[object]) -> None:
        self.deleted += topics


class Caller:
    """Anyone, who may change everything."""

    is_read_only = False
    is_anonymous = False
    principal = "User:alice"

    def __init__(self) -> None:
        self.made = Admin()

    async def admin(self) -> Admin:
        return self.made

    async def authenticate(self) -> None:
        pass


@pytest.fixture
def caller() -> Caller:
    return Caller()


@pytest.fixture
async def console(caller: Caller) -> AsyncIterator[Console]:
    closing: list[Callable[[], Any]] = []

    async def compute(_: object) -> None:
        pass

    services = SimpleNamespace(
        settings=SimpleNamespace(http_console_key=KEY, http_console_writable=True, http_parts=()),
        callers=SimpleNamespace(add_session=lambda _: None, of=lambda _: caller, needs_login=True),
        background=SimpleNamespace(compute=compute),
        lifetime=SimpleNamespace(on_close=closing.append),
        audit=SimpleNamespace(write=lambda *_, **__: None),
    )
    yield Console(cast(Services, services))
    for close in closing:
        await close()


@pytest.fixture
async def browser(console: Console) -> AsyncIterator[httpx.AsyncClient]:
    def refuse(_: Request, error: Exception) -> Response:
        assert isinstance(error, HttpError)
        return Response(status_code=error.status)

    application = Starlette(
        routes=[Mount("/console", routes=console.routes())], exception_handlers={HttpError: refuse}
    )
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost/console", cookies={VISITOR_COOKIE: VISITOR}
    ) as client:
        yield client


async def is_known(console: Console, caller: Caller) -> bool:
    """Whether a value that was read before is still there; read it again if not."""
    snapshots = console._reading.snapshots
    known = snapshots.known(cast(Any, caller), "thing") is not None

    async def read() -> int:
        return 1

    await snapshots.get(cast(Any, caller), "thing", read)
    return known


@pytest.mark.parametrize(
    ("error", "status"), [(None, 303), (RequestTimedOutError("slow"), 422), (RuntimeError("a fault"), 500)]
)
async def test_what_was_read_before_a_confirmed_change_is_forgotten(
    console: Console, caller: Caller, browser: httpx.AsyncClient, error: Exception | None, status: int
) -> None:
    """A change that timed out may have been made, and one that is confirmed again was made in between."""
    caller.made.error = error
    token = Seal(KEY.encode(), secrets.token_bytes).form_token(VISITOR)
    await is_known(console, caller)
    question = await browser.post("/topics/create", data={"name": "orders", "token": token})
    confirmed = re.search('name="confirmed" value="([^"]+)"', question.text)
    assert confirmed is not None
    assert await is_known(console, caller)

    fields = {"name": "orders", "token": token, "confirmed": confirmed[1]}
    for expected in (status, 409):
        answer = await browser.post("/topics/create", data=fields)
        assert (expected, False) == (answer.status_code, await is_known(console, caller))


@pytest.mark.parametrize("topic_id", [UUID(int=7), None])
async def test_a_topic_is_deleted_by_its_id(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, topic_id: UUID | None
) -> None:
    """Another one may get its name while the deletion is on its way. Old brokers give topics no ids."""

    async def no_ranges(*_: object) -> dict[int, tuple[int, int]]:
        return {0: (0, 0)}

    async def no_offsets(*_: object) -> object:
        return SimpleNamespace(offsets={"readers": {TopicPartition("orders", 0): 1}})

    monkeypatch.setattr(topic_changes, "log_ranges", no_ranges)
    reading = cast(Reading, SimpleNamespace(committed=no_offsets))
    visit = SimpleNamespace(
        request=SimpleNamespace(path_params={"topic": "orders"}), admin=caller.admin, caller=caller
    )
    caller.made.topic_id = topic_id

    change = await topic_changes.TopicChanges(reading).plan_delete(cast(Any, visit), {})
    await change.perform()

    assert [topic_id or "orders"] == caller.made.deleted
