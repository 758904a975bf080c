"""LeaveGroup: one member before version 3, any number from then on."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import cast

import pytest

from kalda.broker.requests.handlers.leave_group import handle
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from tests.unit.broker.data_path_fakes import DataPath


def refuse_all(request: LeaveGroupRequest) -> Pending[LeaveGroupResponse]:
    answer: Pending[LeaveGroupResponse] = Pending()
    members = [
        MemberResponse(member_id=each.member_id, error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        for each in request.members
    ]
    answer.complete(LeaveGroupResponse(members=members))
    return answer


class FakeGroups:
    """A coordinator that answers as told."""

    def __init__(self, leave_group: Callable[[LeaveGroupRequest], Pending[LeaveGroupResponse]]) -> None:
        self.leave_group = leave_group


def leave(directory: Path, request: LeaveGroupRequest, version: int) -> LeaveGroupResponse:
    broker = DataPath(directory)
    groups = cast(GroupCoordinator, FakeGroups(refuse_all))
    answer = handle(groups, request, broker.context(version))
    broker.close()
    assert not isinstance(answer, Coroutine)
    return answer.value if isinstance(answer, Pending) else answer


@pytest.mark.parametrize("version", [0, 2])
def test_the_error_of_the_only_member_is_that_of_the_request(tmp_path: Path, version: int) -> None:
    response = leave(tmp_path, LeaveGroupRequest(group_id="g", member_id="m"), version)
    assert (ErrorCode.UNKNOWN_MEMBER_ID, []) == (response.error_code, response.members)


def test_from_version_3_on_each_member_has_its_own(tmp_path: Path) -> None:
    members = [MemberIdentity(member_id="a"), MemberIdentity(member_id="b")]
    response = leave(tmp_path, LeaveGroupRequest(group_id="g", members=members), 3)
    assert (ErrorCode.NONE, ["a", "b"]) == (
        response.error_code,
        [each.member_id for each in response.members],
    )


def test_nobody_leaves_without_an_error(tmp_path: Path) -> None:
    response = leave(tmp_path, LeaveGroupRequest(group_id="g"), 5)
    assert (ErrorCode.NONE, []) == (response.error_code, response.members)


async def test_very_many_members_leave_some_at_a_time(tmp_path: Path) -> None:
    """90,000 members that left at once held the event loop for 33 ms."""
    asked: list[int] = []

    def leave_group(request: LeaveGroupRequest) -> Pending[LeaveGroupResponse]:
        asked.append(len(request.members))
        return refuse_all(request)

    broker = DataPath(tmp_path)
    groups = cast(GroupCoordinator, FakeGroups(leave_group))
    names = [f"m{number}" for number in range(1_200)]
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=name) for name in names])
    answer = handle(groups, request, broker.context(5))
    assert isinstance(answer, Coroutine)
    response = await answer
    broker.close()
    assert names == [member.member_id for member in response.members]
    assert [500, 500, 200] == asked
