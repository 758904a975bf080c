"""DescribeEvents (key 20020): returns the events that a broker keeps, for ``kalda why``.

Kalda's own; Apache Kafka has no such API. A broker returns its own events only.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BOOL, BYTES, INT16, INT32, INT64, STRING, Message, Struct, array, wire


class EventSubject(Struct):
    """A name that events must have in their subject: a kind of thing, such as ``topic``, and its name."""

    subject_type: str = wire(STRING, "0+")
    subject_name: str = wire(STRING, "0+")


class DescribeEventsRequest(Message, api_key=ApiKey.DESCRIBE_EVENTS, versions="0", flexible="0+"):
    """Events from `since_ms` up to before `until_ms` whose number is above `after_number`.

    With `subjects` only those that have one of them, and those that are about brokers alone.
    """

    since_ms: int = wire(INT64, "0+")
    until_ms: int = wire(INT64, "0+", default=2**63 - 1)
    after_number: int = wire(INT64, "0+", default=-1)
    events_max: int = wire(INT32, "0+", default=5000)
    subjects: list[EventSubject] = wire(array(EventSubject), "0+")


class DescribeEventsResponse(Message, api_key=ApiKey.DESCRIBE_EVENTS, versions="0", flexible="0+"):
    """The events by ascending number, each as the JSON of `kalda.events.event.encode_event`.

    `oldest_ms` is the time of the oldest event that the broker keeps, -1 if it has none. With `has_more`
    further events follow the last one.
    """

    throttle_time_ms: int = wire(INT32, "0+")
    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+", default=None)
    broker_id: int = wire(INT32, "0+", default=-1)
    oldest_ms: int = wire(INT64, "0+", default=-1)
    has_more: bool = wire(BOOL, "0+")
    events: list[bytes] = wire(array(BYTES), "0+")
