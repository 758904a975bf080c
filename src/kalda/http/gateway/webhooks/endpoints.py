"""Serves ``/v1/webhooks``."""

from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kalda.clients.admin.topics import NewTopic
from kalda.clients.errors import BrokerResponseError
from kalda.common.errors import ErrorCode
from kalda.common.received_json import loads_body
from kalda.http.callers import Caller, Callers
from kalda.http.errors import HttpError
from kalda.http.gateway.access import TopicAccess
from kalda.http.gateway.webhooks.registry import Webhooks
from kalda.http.gateway.webhooks.runner import WebhookRunner
from kalda.http.gateway.webhooks.subscription import (
    InvalidSubscriptionError,
    check_no_loop,
    read_subscription,
)
from kalda.security.acl.model import AclOperation

_NOT_ALLOWED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        # There is one that the caller may not see.
        ErrorCode.TOPIC_ALREADY_EXISTS,
    }
)


class WebhookEndpoints:
    """The subscriptions that callers may see and change: their own."""

    def __init__(self, callers: Callers, access: TopicAccess, webhooks: Webhooks) -> None:
        self._callers: Final = callers
        self._access: Final = access
        self._webhooks: Final = webhooks

    async def list(self, request: Request) -> Response:
        """Answer a GET with the caller's webhooks."""
        caller = await self._caller(request)
        shown = [
            _shown(runner)
            for _, runner in sorted(self._webhooks.runners.items())
            if runner.subscription.principal == caller.principal
        ]
        return JSONResponse({"webhooks": shown})

    async def show(self, request: Request) -> Response:
        """Answer a GET with one webhook."""
        caller = await self._caller(request)
        return JSONResponse(_shown(self._own(request, caller)))

    async def put(self, request: Request) -> Response:
        """Answer a PUT, which makes or replaces a webhook; only this response has the secret."""
        caller = await self._caller(request)
        name = request.path_params["webhook"]
        try:
            given = loads_body((await request.body()).decode())
            if not isinstance(given, dict):
                raise HttpError(400, "the body is not a JSON object")
            subscription = read_subscription(name, given, caller.principal)
        except InvalidSubscriptionError as error:
            raise HttpError(400, str(error)) from None
        except ValueError as error:
            raise HttpError(400, f"the body is not JSON: {error}") from None
        known = self._webhooks.runners.get(name)
        if known is not None and known.subscription.principal != caller.principal:
            raise HttpError(403, f"webhook {name} is another caller's")
        await self._access.check(caller, subscription.topic, AclOperation.READ)
        if subscription.has_own_dead_letter_topic:
            await self._check_dead_letter_topic(caller, subscription.dead_letter_topic)
        try:
            check_no_loop(subscription, (each.subscription for each in self._webhooks.runners.values()))
        except InvalidSubscriptionError as error:
            raise HttpError(400, str(error)) from None
        await self._webhooks.put(subscription)
        return JSONResponse(
            {**subscription.shown(), "secret": subscription.secret}, 200 if known is not None else 201
        )

    async def delete(self, request: Request) -> Response:
        """Answer a DELETE. The group's offsets stay, so that a webhook of the same name goes on there."""
        caller = await self._caller(request)
        await self._webhooks.delete(self._own(request, caller).subscription.name)
        return Response(status_code=204)

    async def _check_dead_letter_topic(self, caller: Caller, topic: str) -> None:
        """Check that the caller may write to a topic, which is made with the caller's rights if need be.

        The process writes dead letters with its own rights, which must not become those of the caller.
        """
        try:
            await self._access.check(caller, topic, AclOperation.WRITE)
        except HttpError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        else:
            return
        try:
            await (await caller.admin()).create_topics([NewTopic(topic, 1)])
        except BrokerResponseError as error:
            if error.code in _NOT_ALLOWED:
                raise HttpError(403, f"{caller.principal} may not write topic {topic}") from None
            raise
        self._access.forget(topic)
        await self._access.check(caller, topic, AclOperation.WRITE)

    async def _caller(self, request: Request) -> Caller:
        caller = self._callers.of(request)
        if caller.is_read_only:
            raise HttpError(403, "webhooks need a user and a password")
        await caller.authenticate()
        return caller

    def _own(self, request: Request, caller: Caller) -> WebhookRunner:
        name = request.path_params["webhook"]
        runner = self._webhooks.runners.get(name)
        if runner is None or runner.subscription.principal != caller.principal:
            raise HttpError(404, f"there is no webhook {name!r:.120}")
        return runner


def _shown(runner: WebhookRunner) -> dict[str, Any]:
    return {
        **runner.subscription.shown(),
        "delivered": runner.delivered,
        "failed_attempts": runner.failed_attempts,
        "dead_letters": runner.dead_letters,
        "last_error": runner.last_error,
    }
