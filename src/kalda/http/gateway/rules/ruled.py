"""Applies rules to the gateway's endpoints, and counts the requests of each rule."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Final, TypeVar

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kalda.clients.errors import BrokerResponseError, error_for
from kalda.common.errors import ErrorCode
from kalda.common.metrics import Metrics
from kalda.faults.model import RequestEffect
from kalda.http.callers import Callers
from kalda.http.errors import HttpError, http_error_of
from kalda.http.gateway.rules.rules import Decision, RequestKind, RequestOfCaller, Rules

C = TypeVar("C", bound=HTTPConnection)

HANG_SECONDS_MAX: Final = 600.0
"""A request that hangs holds a connection; no fault needs it longer."""


class RuleCounts:
    """The metrics of rules."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics: Final = metrics

    def count(self, decision: Decision, status: int, began: float) -> None:
        """Count a request with its status; `began` is its time by `perf_counter`."""
        self._metrics.counter(
            "kalda_http_rule_requests",
            "Requests by rule.",
            rule=decision.rule,
            routed=str(decision.is_routed).lower(),
            status=str(status),
        ).value += 1
        self._metrics.histogram(
            "kalda_http_rule_time_ms", "Milliseconds from a request to its response.", rule=decision.rule
        ).observe((perf_counter() - began) * 1000)


class RuledEndpoints:
    """Wraps endpoints of topics with the rules of a process."""

    def __init__(self, rules: Rules, callers: Callers, counts: RuleCounts) -> None:
        self._rules: Final = rules
        self._callers: Final = callers
        self._counts: Final = counts

    def wrap(
        self,
        kind: RequestKind,
        endpoint: Callable[[C], Awaitable[ASGIApp]],
        topics_of: Callable[[C], Sequence[str]] | None = None,
    ) -> Callable[[C], Awaitable[ASGIApp]]:
        """Return an endpoint to which the rules for a kind of requests apply.

        Args:
            kind: What the endpoint's requests do.
            endpoint: Returns the response of a request or WebSocket; it is returned itself without rules.
            topics_of: Returns the topics of a request, none where no rule can apply; without it, the request
                has one, in its path.
        """
        if not self._rules:
            return endpoint

        async def ruled(connection: C) -> ASGIApp:
            topics = (connection.path_params["topic"],) if topics_of is None else topics_of(connection)
            principal = self._callers.of(connection).principal
            key = connection.headers.get("idempotency-key")
            wanted = RequestOfCaller(kind, tuple(topics), principal, key)
            decision = self._rules.decide(wanted, asyncio.get_running_loop().time()) if topics else None
            if decision is None:
                return await endpoint(connection)
            began = perf_counter()
            status = 0
            try:
                response = await _apply(decision, connection, endpoint)
                status = response.status_code if isinstance(response, Response) else 200
                return response
            except HttpError as error:
                status = error.status
                raise
            finally:
                self._counts.count(decision, status, began)

        return ruled


def error_of_rule(decision: Decision) -> BrokerResponseError:
    """Return a fault's error in the form of an error of the cluster."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR if decision.error is None else decision.error
    return error_for(code, f"rule {decision.rule}")


class _NoResponse:
    """Sends nothing, and closes the connection; a WebSocket that is not open yet is refused."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        abort = scope.get("extensions", {}).get("kalda.abort")
        if abort is None:
            raise HttpError(503, "a rule closes the connection")
        abort()


async def _apply(decision: Decision, connection: C, endpoint: Callable[[C], Awaitable[ASGIApp]]) -> ASGIApp:
    if decision.wait_s is not None:
        raise _too_many(
            f"rule {decision.rule} allows no more requests now; try again in {decision.wait_s:.2f} s",
            decision.wait_s,
        )
    if "topic" in connection.path_params:
        connection.path_params["topic"] = decision.topic
    fault = decision.fault
    if fault is None:
        return await endpoint(connection)
    seconds = (fault.milliseconds or 0) / 1000
    match fault.effect:
        case RequestEffect.ERROR:
            raise http_error_of(error_of_rule(decision))
        case RequestEffect.DELAY:
            await asyncio.sleep(seconds)
            return await endpoint(connection)
        case RequestEffect.THROTTLE:
            raise _too_many(f"rule {decision.rule} throttles the request", seconds)
        case RequestEffect.HANG:
            await asyncio.sleep(HANG_SECONDS_MAX)
            return _NoResponse()
        case RequestEffect.DROP:
            return _NoResponse()
    await endpoint(connection)
    if fault.effect is RequestEffect.ERROR_AFTER:
        raise http_error_of(error_of_rule(decision))
    return _NoResponse()


def _too_many(message: str, seconds: float) -> HttpError:
    return HttpError(429, message, headers={"Retry-After": str(math.ceil(seconds))})
