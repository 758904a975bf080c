"""The response to a refused request is the same in steps as in one piece, for every API."""

import uuid
from collections.abc import Iterator
from types import GeneratorType
from typing import Any

import pytest

from kalda.broker.requests.api import ApiHandler, dropped_in_steps
from kalda.broker.requests.handlers import HANDLERS
from kalda.broker.requests.refusals import refused_in_steps
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.turns import STEPS_AT_ONCE, first_turn, result_of
from kalda.protocol import registry
from kalda.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kalda.protocol.schema import STRING, UUID_KIND, ArrayKind, FixedKind, Kind

BY_KEY = {handler.key: handler for handler in HANDLERS if handler.build is not None}


def made(kind: Any, name: str, number: int, count: int, prefix: str = "") -> Any:
    """Return a value of a kind: arrays have `count` elements, names are different."""
    if isinstance(kind, ArrayKind):
        return [made(kind.element, name, each, count, prefix) for each in range(count)]
    if not isinstance(kind, Kind):
        return kind(
            **{field.name: made(field.kind, field.name, number, count, prefix) for field in kind.FIELDS}
        )
    if kind is STRING:
        return f"{prefix}-{name}-{number}"
    if kind is UUID_KIND:
        return uuid.UUID(int=number + 1)
    return number if isinstance(kind, FixedKind) and kind.code in "ihq" else kind.default


@pytest.mark.parametrize("key", BY_KEY, ids=lambda key: key.title)
@pytest.mark.parametrize("count", [0, 1, 40])
def test_a_refusal_in_steps_is_that_of_the_whole_request(key: ApiKey, count: int) -> None:
    handler, request_class = BY_KEY[key], registry.spec(key).request_class
    # Nested arrays of 40 would be many thousand elements.
    request = made(request_class, "", 0, count if count < 2 else 5)
    for field in request.FIELDS:
        if isinstance(field.kind, ArrayKind) and count > 1:
            elements = [made(field.kind.element, field.name, at, 3, field.name) for at in range(count)]
            setattr(request, field.name, elements)
    code, version = ErrorCode.UNKNOWN_SERVER_ERROR, handler.versions[1]
    refused = result_of(refused_in_steps(handler, request, code, version))
    whole = handler.refusal(request, code, version)
    for response in (whole, refused):
        # Where a request names topics in two arrays, their order is another one.
        for field in response.FIELDS:
            value = getattr(response, field.name)
            setattr(response, field.name, sorted(value, key=repr) if isinstance(value, list) else value)
    assert whole == refused


def commit(topics: int, partitions: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        topics=[
            OffsetCommitRequestTopic(
                name=f"t{topic}",
                partitions=[OffsetCommitRequestPartition(partition_index=at) for at in range(partitions)],
            )
            for topic in range(topics)
        ]
    )


@pytest.mark.parametrize(("topics", "partitions"), [(1, 5_000), (5_000, 1)])
def test_no_step_makes_many_errors(topics: int, partitions: int) -> None:
    """A client that may do nothing must not delay others by what it is refused."""
    handler: Any = Counting(BY_KEY[ApiKey.OFFSET_COMMIT])
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    steps: Any = refused_in_steps(handler, commit(topics, partitions), code, 9)
    while isinstance(steps, GeneratorType):
        before = handler.count
        steps = first_turn(steps)
        assert handler.count - before <= 16 * (STEPS_AT_ONCE + 1)
    assert topics * partitions == handler.count == sum(len(topic.partitions) for topic in steps.topics)


class Counting:
    """A handler that counts the errors that it puts into responses."""

    def __init__(self, handler: ApiHandler) -> None:
        self._handler = handler
        self.count = 0

    def refusal(self, request: Any, code: ErrorCode, version: int) -> Any:
        response = self._handler.refusal(request, code, version)
        self.count += sum(len(topic.partitions) for topic in response.topics)
        return response


class Noted:
    """An object that notes that it is gone."""

    gone = 0

    def __del__(self) -> None:
        Noted.gone += 1


def freed_by_step(messages: list[Any]) -> Iterator[int]:
    """Yield how many of the noted objects each step frees."""
    for _ in dropped_in_steps(messages):
        yield Noted.gone
        Noted.gone = 0


@pytest.mark.parametrize(("topics", "partitions"), [(1, 3_000), (3_000, 1), (100, 30)])
def test_messages_are_let_go_in_steps(topics: int, partitions: int) -> None:
    """To free 300,000 objects at once would delay other clients by 10 ms."""
    Noted.gone = 0
    message = commit(topics, partitions)
    for topic in message.topics:
        for partition in topic.partitions:
            partition.committed_metadata = Noted()  # type: ignore[assignment]  # it is never encoded
    messages: list[Any] = [message]
    del message, topic, partition
    freed = list(freed_by_step(messages))
    assert [] == messages
    assert max(freed) <= 16 * max(1, min(partitions, 30))
    assert topics * partitions == sum(freed) + Noted.gone


def test_what_others_share_is_not_changed() -> None:
    """Responses share the topics of the metadata cache."""
    message = commit(2, 3)
    shared = message.topics[1]
    result_of(dropped_in_steps([message]))
    assert [0, 1, 2] == [each.partition_index for each in shared.partitions]
    assert 2 == len(message.topics)
