"""DescribeEvents (key 20020), version 0: returns the events that this broker keeps, for ``kalda why``.

Kalda's own. The answer is bounded to `EVENTS_MAX` events and `BYTES_MAX` bytes; the client asks again for
what is behind. Events have clients' addresses and values of settings, so reading them needs the permission
that reading settings needs.
"""

from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import cluster
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.events.event import encode_event
from kalda.events.recorder import EventQuery, EventRecorder
from kalda.protocol.messages.describe_events import DescribeEventsRequest, DescribeEventsResponse
from kalda.runtime.error_text import error_text
from kalda.security.acl.model import AclOperation

EVENTS_MAX: Final = 5_000
BYTES_MAX: Final = 1024 * 1024
SUBJECTS_MAX: Final = 100


async def handle(
    events: EventRecorder | None,
    broker_id: int,
    request: DescribeEventsRequest,
    _: RequestContext,
) -> DescribeEventsResponse:
    """Read the events off the event loop."""
    if events is None:
        raise ApiError(ErrorCode.POLICY_VIOLATION, "`kalda.events.bytes`=0: this broker keeps no events.")
    if len(request.subjects) > SUBJECTS_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{len(request.subjects)} subjects are more than {SUBJECTS_MAX}."
        )
    query = EventQuery(
        since_ms=request.since_ms,
        until_ms=request.until_ms,
        after_number=request.after_number,
        events_max=max(1, min(request.events_max, EVENTS_MAX)),
        subjects=tuple((each.subject_type, each.subject_name) for each in request.subjects),
    )
    try:
        page = await events.read(query)
    except OSError as error:
        raise ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"The events cannot be read: {error_text(error)}"
        ) from None
    contents: list[bytes] = []
    size = 0
    for event in page.events:
        content = encode_event(event)
        size += len(content)
        if contents and size > BYTES_MAX:
            break
        contents.append(content)
    return DescribeEventsResponse(
        broker_id=broker_id,
        oldest_ms=page.oldest_ms,
        has_more=page.has_more or len(contents) < len(page.events),
        events=contents,
    )


def error_response(_: DescribeEventsRequest, code: ErrorCode) -> DescribeEventsResponse:
    """Return a response with the error."""
    return DescribeEventsResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.DESCRIBE_EVENTS,
    versions=(0, 0),
    build=lambda services: partial(handle, services.events, services.broker_id),
    error_response=error_response,
    access=cluster(AclOperation.DESCRIBE_CONFIGS),
)
