"""Requests that name very many groups: others get their turn meanwhile, the answer is in order."""

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

from kalda.broker.requests.handlers import delete_groups, describe_groups
from kalda.broker.requests.request_slices import SLICE, in_slices
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.protocol.messages.delete_groups import DeleteGroupsRequest
from kalda.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from tests.unit.broker.admin_fakes import context

T = TypeVar("T")
NAMES = [f"group-{number}" for number in range(3 * SLICE + 1)]


class SlowGroups:
    """Answers a slice in the next turn of the loop, and notes how many groups were asked for at once."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def describe_groups(self, group_ids: Sequence[str], _version: int) -> Pending[list[DescribedGroup]]:
        return self._later([DescribedGroup(group_id=each) for each in group_ids])

    def delete_groups(self, group_ids: Sequence[str], author: object) -> Pending[dict[str, ErrorCode]]:
        return self._later(list(group_ids)).then(lambda done: dict.fromkeys(done.value, ErrorCode.NONE))

    def _later(self, values: list[T]) -> Pending[list[T]]:
        self.asked.append(len(values))
        pending: Pending[list[T]] = Pending()
        asyncio.get_running_loop().call_soon(pending.complete, values)
        return pending


def run(handle: Any, request: Any) -> tuple[Any, SlowGroups]:
    groups = SlowGroups()

    async def ask() -> Any:
        found = handle(groups, request, context(5))
        assert asyncio.iscoroutine(found), "handled in one piece"
        return await found

    return asyncio.run(ask()), groups


def test_many_groups_are_described_in_slices() -> None:
    response, groups = run(describe_groups.handle, DescribeGroupsRequest(groups=NAMES))
    assert NAMES == [each.group_id for each in response.groups]
    assert [SLICE, SLICE, SLICE, 1] == groups.asked


def test_many_groups_are_deleted_in_slices_each_once() -> None:
    response, groups = run(delete_groups.handle, DeleteGroupsRequest(groups_names=[*NAMES, *NAMES]))
    assert NAMES == [each.group_id for each in response.results]
    assert [SLICE, SLICE, SLICE, 1] == groups.asked


def test_others_get_their_turn_between_slices() -> None:
    async def ask() -> list[str]:
        events: list[str] = []

        def handle(part: Sequence[str]) -> list[str]:
            events.append("slice")
            asyncio.get_running_loop().call_soon(events.append, "other")
            return list(part)

        assert NAMES == await in_slices(NAMES, handle)
        return events

    assert ["slice", "other"] * 4 == asyncio.run(ask())


def test_an_error_of_a_slice_is_the_requests() -> None:
    def handle(_: Sequence[str]) -> Pending[list[str]]:
        failed: Pending[list[str]] = Pending()
        failed.fail(ValueError("of a slice"))
        return failed

    with pytest.raises(ValueError, match="of a slice"):
        asyncio.run(in_slices(NAMES, handle))
