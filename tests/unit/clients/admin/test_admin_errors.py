"""An admin call raises when one of its things failed, unless the caller asks for the outcomes."""

import inspect
from collections.abc import Iterable
from typing import Any

import pytest

from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.admin.groups import MemberToRemove
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.partitions import ElectionType, OffsetSpec
from kalda.clients.admin.topics import NewTopic
from kalda.clients.errors import BrokerResponseError, ClientError
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class Cluster:
    """Answers each call: what is named in `failing` fails, the rest succeeds."""

    def __init__(self, *failing: object) -> None:
        self.failing = failing

    async def run(self, operation: object, keys: Iterable[Any], timeout_ms: int | None) -> Outcomes[Any, Any]:
        keys = list(keys)
        if keys == [None]:  # the call for all partitions, whose one result is its outcomes
            return Outcomes({None: Outcomes({FIRST: None}, self._errors([SECOND]))})
        return Outcomes(dict.fromkeys(key for key in keys if key not in self.failing), self._errors(keys))

    def _errors(self, keys: list[Any]) -> dict[Any, ClientError]:
        return {
            key: BrokerResponseError(ErrorCode.INVALID_REQUEST, f"call for {key}")
            for key in keys
            if key in self.failing
        }


class Scripted(AsyncAdmin):
    """An admin client of a scripted cluster."""

    def __init__(self, *failing: object) -> None:
        self._cluster: Any = Cluster(*failing)

    def _open_runner(self) -> Any:
        return self._cluster


async def test_one_topic_that_exists_raises_and_the_error_has_what_succeeded() -> None:
    """A program that ignores what the call returns must not go on as if all topics were there."""
    admin = Scripted("taken", "bad")

    with pytest.raises(BrokerResponseError, match="call for taken: INVALID_REQUEST") as raised:
        await admin.create_topics([NewTopic("new"), NewTopic("taken"), NewTopic("bad")])

    assert {"new": None} == raised.value.succeeded
    assert ["taken", "bad"] == list(raised.value.failed)
    assert raised.value is raised.value.failed["taken"]
    assert ["also failed: call for bad: INVALID_REQUEST", "succeeded: new"] == [
        note.split(": The ")[0].split(": This ")[0] for note in raised.value.__notes__
    ]


async def test_with_outcomes_each_thing_has_its_own() -> None:
    outcomes = await Scripted("taken").create_topics([NewTopic("new"), NewTopic("taken")], outcomes=True)

    assert {"new": None} == outcomes.results
    assert ["taken"] == list(outcomes.errors)


async def test_a_call_that_succeeded_returns_results_that_may_be_checked_again() -> None:
    """Programs written for calls that did not raise call `raise_for_errors`."""
    created = await Scripted().create_topics([NewTopic("new")])

    created.raise_for_errors()
    assert {"new": None} == dict(created)


async def test_errors_of_parts_of_a_thing_raise_too() -> None:
    with pytest.raises(BrokerResponseError, match="call for"):
        await Scripted(SECOND).elect_leaders(ElectionType.PREFERRED)
    with pytest.raises(BrokerResponseError, match="call for g"):
        await Scripted("g").remove_members_from_consumer_group({"g": [MemberToRemove("m")], "none": []})

    assert [SECOND] == list(
        (await Scripted(SECOND).elect_leaders(ElectionType.PREFERRED, outcomes=True)).errors
    )


async def test_a_long_call_has_a_short_error() -> None:
    partitions = {TopicPartition("t", number): OffsetSpec.latest() for number in range(1000)}

    with pytest.raises(ClientError) as raised:
        await Scripted(FIRST).list_offsets(partitions)

    assert 999 == len(raised.value.succeeded)
    (note,) = raised.value.__notes__
    assert note.endswith("and 989 more")


def test_every_method_with_a_result_for_each_thing_takes_the_argument() -> None:
    """The next method must not return errors that nobody reads."""
    methods = inspect.getmembers(AsyncAdmin, inspect.iscoroutinefunction)
    returning = {
        name
        for name, each in methods
        if "Outcomes[" in str(inspect.signature(each).return_annotation) and name != "_run"
    }

    assert 29 <= len(returning)
    assert returning == {
        name
        for name, each in methods
        if name != "_run" and "outcomes" in (known := inspect.signature(each).parameters)
        if known["outcomes"].kind is inspect.Parameter.KEYWORD_ONLY and known["outcomes"].default is False
    }
