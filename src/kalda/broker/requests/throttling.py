"""Makes requests obey client quotas: the throttle time of responses, and the budget of changes.

A raw handler calls `throttle_ms` when it builds its response; the dispatcher calls `throttle_response` for
all others. Both mute the connection of a client that must wait.
"""

import copy
from collections.abc import Callable, Coroutine, Generator
from math import ceil
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kalda.broker.requests.api import RequestContext
from kalda.broker.topics.topic_admin import Take, unbounded
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import Steps
from kalda.events.event import EventKind

if TYPE_CHECKING:
    from kalda.broker.security.client_throttle import ClientThrottle

T = TypeVar("T")

_WAIT_MS_MAX: Final = 2**31 - 1
"""The longest time that a response can name: a quota of a byte a second makes one batch last for weeks."""


def throttle_ms(throttle: "ClientThrottle", context: RequestContext) -> int:
    """Return how long the client must wait, in milliseconds, and mute its connection for that time."""
    seconds = context.throttle_seconds
    if throttle.limits_time:
        connection, client_id = context.connection, context.client_id
        if context.parked_at:
            context.pays_for_response = True
            wait = throttle.worked_before(connection, client_id, context.busy_seconds)
        else:
            wait = throttle.worked(connection, client_id)
        seconds = max(seconds, wait)
    if not seconds:
        return 0
    context.connection.mute(seconds)
    return min(ceil(seconds * 1000), _WAIT_MS_MAX)


def throttle_response(throttle: "ClientThrottle", context: RequestContext, response: object) -> object:
    """Return the response with the time that the client must wait."""
    if not context.api.handler.is_throttled:
        return response
    wait_ms = throttle_ms(throttle, context)
    if not wait_ms or not hasattr(response, "throttle_time_ms"):
        return response
    # Several requests may share one response.
    throttled: Any = copy.copy(response)
    throttled.throttle_time_ms = max(wait_ms, throttled.throttle_time_ms)
    return throttled


@coroutine
def timed(
    work: Coroutine[Any, Any, object], context: RequestContext, now: Callable[[], float]
) -> Generator[Any, Any, object]:
    """Run a coroutine and count the time of its steps as time that the request took."""
    value: Any = None
    failure: BaseException | None = None
    while True:
        began = now()
        try:
            waits_for = work.send(value) if failure is None else work.throw(failure)
        except StopIteration as end:
            return end.value
        finally:
            context.busy_seconds += now() - began
        failure = None
        try:
            value = yield waits_for
        except BaseException as error:
            failure = error


def timed_steps(steps: Steps[T], context: RequestContext, now: Callable[[], float]) -> Steps[T]:
    """Do some work in its steps and count their time as time that the request took."""
    while True:
        began = now()
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            context.busy_seconds += now() - began
        yield


def mutation_budget(
    throttle: "ClientThrottle", context: RequestContext, *, strict_from: int | None = None
) -> Take:
    """Return what uses up the client's budget of changes of the cluster (KIP-599).

    Clients of versions before `strict_from` do not know THROTTLING_QUOTA_EXCEEDED: they overdraw the budget
    and wait for longer.
    """
    share = throttle.mutations(context.connection, context.client_id) if throttle.is_active else None
    if share is None:
        return unbounded
    is_strict = strict_from is not None and context.api_version >= strict_from
    clock = throttle.clock

    def take(count: int) -> None:
        now = clock.monotonic()
        wait = share.wait_seconds(now) if is_strict else 0.0
        is_refused = wait > 0
        if not is_refused:
            wait = share.use(count, now)
        # A strict budget may be overdrawn once; only the change after that is refused, and waits.
        if (is_refused or not is_strict) and wait > context.throttle_seconds:
            share.throttled_seconds.record(wait - context.throttle_seconds, now)
            context.throttle_seconds = wait
        if wait:
            throttle.events.emit_seldom(
                EventKind.CLIENT_THROTTLED,
                {"client": context.client_id or "", "user": context.principal.name},
                {"reason": "controller_mutation_rate", "seconds": round(wait, 3)},
            )
        if is_refused:
            raise ApiError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"The quota of {share.limit:g} changed partitions a second is used up; "
                f"wait for {ceil(wait * 1000)} ms.",
            )

    return take
