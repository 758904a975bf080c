"""Answers requests that name share partitions by group, topic id and partition, one result for each."""

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kalda.broker.requests.request_slices import SLICE, in_slices, value_of
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending, gather
from kalda.common.types import UUID
from kalda.coordinator.share.share_records import SharePartitionKey

T = TypeVar("T")
Response = TypeVar("Response")

UNSUPPORTED: Final = ApiError(ErrorCode.UNSUPPORTED_VERSION)
"""What requests about share groups get while ``share.version`` is not in force."""


class Shapes(NamedTuple):
    """The classes of a response: of itself, of a topic and of a partition."""

    response: Callable[..., Any]
    topic: Callable[..., Any]
    partition: Callable[..., Any]


def answer_by_partition(
    group_id: str,
    topics: Iterable[Any],
    operate: Callable[[SharePartitionKey, Any], Pending[T]],
    shapes: Shapes,
    fields: Callable[[T], dict[str, Any]],
) -> Pending[Any] | Coroutine[Any, Any, Any]:
    """Return the response when `operate` is done for each partition of a request.

    `fields` returns the fields of a partition's result besides its error. Operations on many partitions are
    begun in several turns of the event loop.
    """
    named = [(topic.topic_id, each) for topic in topics for each in topic.partitions]

    def begin(part: Sequence[tuple[UUID, Any]]) -> list[Pending[T]]:
        return [
            operate(SharePartitionKey(group_id, topic_id, each.partition), each) for topic_id, each in part
        ]

    def combine(done: list[Pending[T]]) -> Any:
        results: dict[Any, list[Any]] = {}
        for (topic_id, asked), each in zip(named, done, strict=True):
            error = each.error
            values = fields(each.value) if error is None else error_fields(error)
            results.setdefault(topic_id, []).append(shapes.partition(partition=asked.partition, **values))
        return _response(shapes, results)

    if len(named) <= SLICE:
        return gather(begin(named), combine)

    async def answer() -> Any:
        return await value_of(gather(await in_slices(named, begin), combine))

    return answer()


def refuse_by_partition(topics: Iterable[Any], shapes: Shapes, code: ErrorCode) -> Any:
    """Return the response that has an error for each partition of a request."""
    results: dict[Any, list[Any]] = {}
    for topic in topics:
        found = results.setdefault(topic.topic_id, [])
        found += [shapes.partition(partition=each.partition, error_code=code) for each in topic.partitions]
    return _response(shapes, results)


def error_fields(error: Exception) -> dict[str, Any]:
    """Return the fields of a result that carry an error."""
    if isinstance(error, ApiError):
        return {"error_code": error.code, "error_message": error.message}
    return {"error_code": ErrorCode.UNKNOWN_SERVER_ERROR}


def _response(shapes: Shapes, results: dict[Any, list[Any]]) -> Any:
    return shapes.response(
        results=[
            shapes.topic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in results.items()
        ]
    )
