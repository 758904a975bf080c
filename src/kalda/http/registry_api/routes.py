"""Serves the REST API of the registry: which path and method is which resource, and how it is answered.

It matches paths itself: Starlette decodes a path before it splits it, and matches by regular expressions one
after the other. Bodies of reads are kept until the next record of the topic.
"""

import asyncio
import logging
from collections import OrderedDict
from typing import Final

from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from kalda.http.errors import HttpError
from kalda.http.registry.errors import forwarding_failed, unknown_leader
from kalda.http.registry.forwarding import FORWARD_HEADER
from kalda.http.registry.registry import NEW_WRITER_SECONDS, NotWriterError, encoded
from kalda.http.registry_api.calls import Call, Resource
from kalda.http.registry_api.requests import Target, read_body, target_of
from kalda.http.registry_api.resources import RESOURCES
from kalda.http.services import Services
from kalda.security.audit import DENIED

logger: Final = logging.getLogger(__name__)

KEPT_MAX: Final = 20_000
"""Bodies that are kept."""

_MEDIA_TYPE: Final = b"application/vnd.schemaregistry.v1+json"
_ROOTS: Final = frozenset(resource.pattern[0] for resource in RESOURCES)


def routes(services: Services) -> list[BaseRoute]:
    """Return the one route of the registry, which knows all its paths."""
    return [RegistryRoute(services)]


class RegistryRoute(BaseRoute):
    """All paths of the registry."""

    def __init__(self, services: Services) -> None:
        self._services: Final = services
        self._registry: Final = services.registry
        self._kept: Final[OrderedDict[tuple[bytes, bytes], bytes]] = OrderedDict()
        self._kept_epoch = -1
        by_length: dict[tuple[int, str], list[Resource]] = {}
        for resource in RESOURCES:
            by_length.setdefault((len(resource.pattern), resource.pattern[0]), []).append(resource)
        self._resources: Final = by_length

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request is for the registry."""
        if scope["type"] != "http":
            return Match.NONE, {}
        path: str = scope["path"]
        root, _, rest = path[1:].partition("/")
        if root == "v1":
            return (Match.FULL if rest.partition("/")[0] == "metadata" else Match.NONE), {}
        return (Match.FULL if root in _ROOTS or root == "contexts" else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        caller = self._services.callers.of(HTTPConnection(scope))
        await caller.authenticate()
        method: str = scope["method"]
        is_read = method in ("GET", "HEAD")
        state = self._registry.state
        key = (scope.get("raw_path") or scope["path"].encode(), scope["query_string"])
        if is_read and self._services.authorizer.is_open:
            body = self._kept_body(key)
            if body is not None:
                await _send(send, scope, 200, body)
                return
        target = target_of(scope, state)
        resource = self._resource(method, target)
        call = Call(self._services, caller, target, b"")
        try:
            await self._services.authorizer.check(caller, resource.operation, resource.subject_of(target))
        except HttpError:
            if resource.writes:
                call.outcome = DENIED
                self._audit(scope, call)
            raise
        if not is_read:
            await self._change(scope, receive, send, resource, call)
            return
        epoch = state.epoch
        answer = await resource.handler(call)
        body = answer if isinstance(answer, bytes) else encoded(answer)
        self._keep(key, body, epoch)
        await _send(send, scope, 200, body)

    def _resource(self, method: str, target: Target) -> Resource:
        segments = target.segments
        found = [
            each
            for each in self._resources.get((len(segments), segments[0] if segments else ""), ())
            if each.matches(segments)
        ]
        wanted = "GET" if method == "HEAD" else method
        for each in found:
            if each.method == wanted:
                return each
        if not found:
            raise HttpError(404, "HTTP 404 Not Found")
        allowed = ", ".join(each.method for each in found)
        raise HttpError(405, "HTTP 405 Method Not Allowed", headers={"Allow": allowed})

    async def _change(
        self, scope: Scope, receive: Receive, send: Send, resource: Resource, call: Call
    ) -> None:
        call.body = await read_body(receive)
        try:
            answer = await self._handled(resource, call)
        except NotWriterError:
            await self._forward(scope, send, call)
            return
        finally:
            if resource.writes:
                self._audit(scope, call)
        status = resource.status
        await _send(send, scope, status, answer if isinstance(answer, bytes) else encoded(answer))

    async def _handled(self, resource: Resource, call: Call) -> object:
        try:
            return await resource.handler(call)
        except NotWriterError:
            # A heartbeat of the writer may only be late, on a machine with much else to do.
            election = self._registry.election
            if election is None or not await election.is_writer_again(NEW_WRITER_SECONDS):
                raise
            return await resource.handler(call)

    async def _forward(self, scope: Scope, send: Send, call: Call) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if FORWARD_HEADER in headers:
            raise unknown_leader("Leader not known: this process was taken for the leader and is not.")
        registry = self._registry
        writer = await registry.writer()
        election = registry.election
        if election is not None and writer == election.identity:
            # Its lease has ended, or it was just elected.
            raise unknown_leader()
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        query: bytes = scope["query_string"]
        path = raw_path.partition(b"?")[0].decode("latin-1") + (
            f"?{query.decode('latin-1')}" if query else ""
        )
        sending = asyncio.ensure_future(
            self._services.forwarder.send(writer, scope["method"], path, headers, call.body)
        )
        over = asyncio.ensure_future(asyncio.Event().wait() if election is None else election.over.wait())
        try:
            await asyncio.wait((sending, over), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                # A writer that hangs keeps its connections; the group has noticed that it is gone.
                raise forwarding_failed(
                    f"another leader is elected, and {writer.url} did not answer; try again"
                )
            answer = sending.result()
        finally:
            over.cancel()
            sending.cancel()
        if answer.status < 300:
            # What the caller did is in this process's state, too, when it reads next.
            await registry.catch_up()
        await _send(send, scope, answer.status, answer.body, answer.content_type.encode("latin-1"))

    def _audit(self, scope: Scope, call: Call) -> None:
        client = scope.get("client")
        self._services.audit.write(
            "change",
            call.outcome,
            address=client[0] if client else "",
            principal=call.caller.principal,
            request=f"{scope['method']} {scope['path']}",
            **call.details,
        )

    def _kept_body(self, key: tuple[bytes, bytes]) -> bytes | None:
        if self._kept_epoch != self._registry.state.epoch:
            return None
        return self._kept.get(key)

    def _keep(self, key: tuple[bytes, bytes], body: bytes, epoch: int) -> None:
        """Keep a body that was made of the state of an epoch."""
        if epoch != self._registry.state.epoch:
            return
        if self._kept_epoch != epoch:
            self._kept.clear()
            self._kept_epoch = epoch
        self._kept[key] = body
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)


async def _send(
    send: Send, scope: Scope, status: int, body: bytes, content_type: bytes = _MEDIA_TYPE
) -> None:
    if content_type is _MEDIA_TYPE:
        for name, value in scope["headers"]:
            if name == b"accept":
                if b"vnd.schemaregistry" not in value and b"*/*" not in value and b"json" in value:
                    content_type = b"application/json"
                break
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
