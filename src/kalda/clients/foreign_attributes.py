"""Maps methods and attributes of other clients to Kalda's, for the error about an unknown name."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

C = TypeVar("C", bound=type)

PRODUCER: Final = {
    "produce": "`send(topic, value=...)` returns a future",
    "send_and_wait": "`send(topic, value=...).result(10)`",
    "poll": "callbacks run by themselves; leave it out",
    "partitions_for_topic": "`partitions_for(topic)`",
}
FUTURE: Final = {
    "get": "`result(timeout)`",
    "value": "`result(timeout)`",
    "is_done": "`done()`",
    "succeeded": "`done()` and `exception()`",
    "failed": "`exception(timeout)`",
    "add_callback": "`add_done_callback(function)`",
    "add_errback": "`add_done_callback(function)`",
}
CONSUMER: Final = {
    "consume": "`poll(timeout_s, max_records)` returns a list",
    "getone": "iterate over the consumer, or `poll(max_records=1)`",
    "getmany": "`poll(timeout_s, max_records)` returns a list",
    "list_topics": "`topics()`",
    "partitions_for_topic": "`partitions_for(topic)`",
    "get_watermark_offsets": "`beginning_offsets` and `end_offsets`",
}
RECORD: Final = {
    "timestamp": "`timestamp_ms`",
    "error": "`poll` raises errors; leave it out",
}


def names_counterparts(counterparts: Mapping[str, str]) -> Callable[[C], C]:
    """Return a decorator for a class whose error about such an attribute says what takes its place.

    It is set at run time only: a type checker goes on reporting the attribute as unknown.
    """

    def missing(self: object, name: str) -> Any:
        hint = f"; here it is: {counterparts[name]}" if name in counterparts else ""
        text = f"'{type(self).__name__}' object has no attribute '{name}'{hint}"
        raise AttributeError(text, name=name, obj=self)

    def add(client: C) -> C:
        client.__getattr__ = missing  # type: ignore[attr-defined]  # not declared, so that checkers stay strict
        return client

    return add
