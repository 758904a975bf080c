"""The heartbeats of a share group's member, and what their answers mean."""

from typing import Any
from uuid import UUID

import pytest

from kalda.clients.errors import BrokerResponseError, UnsupportedApiError
from kalda.clients.share.share_member import ShareHeartbeatResult, ShareMember
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

TOPICS = frozenset({"b", "a"})
TOPIC_ID = UUID(int=9)


def shown(request: ShareGroupHeartbeatRequest | None) -> tuple[Any, ...]:
    assert request is not None
    return request.member_epoch, request.rack_id, request.subscribed_topic_names


def answered(member: ShareMember, epoch: int, *partitions: int) -> ShareHeartbeatResult:
    parts = [TopicPartitions(topic_id=TOPIC_ID, partitions=list(partitions))]
    return member.on_response(
        ShareGroupHeartbeatResponse(
            member_epoch=epoch, assignment=Assignment(topic_partitions=parts) if partitions else None
        )
    )


def joined() -> ShareMember:
    member = ShareMember("g", "m", "r1")
    member.join()
    assert (0, "r1", ["a", "b"]) == shown(member.heartbeat_request(TOPICS))
    assert ShareHeartbeatResult.PROCEED is answered(member, 1, 0, 1)
    assert {TOPIC_ID: frozenset({0, 1})} == member.assigned
    return member


def test_a_heartbeat_names_what_has_changed() -> None:
    member = joined()
    assert not member.has_unsent(TOPICS)
    assert (1, None, None) == shown(member.heartbeat_request(TOPICS))
    assert ShareHeartbeatResult.PROCEED is answered(member, 2)
    assert {TOPIC_ID: frozenset({0, 1})} == member.assigned, "an answer without an assignment changes none"
    assert member.has_unsent(frozenset({"c"}))
    assert (2, None, ["c"]) == shown(member.heartbeat_request(frozenset({"c"})))
    member.heartbeat_failed()
    assert (2, None, ["c"]) == shown(member.heartbeat_request(frozenset({"c"})))
    answered(member, 3, 2)
    assert {TOPIC_ID: frozenset({2})} == member.assigned


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_removed_member_joins_again_with_its_id(code: ErrorCode) -> None:
    member = joined()
    response = ShareGroupHeartbeatResponse(error_code=code)
    assert ShareHeartbeatResult.REJOIN is member.on_response(response)
    assert {TOPIC_ID: frozenset({0, 1})} == member.assigned, "they need not be given up meanwhile"
    request = member.heartbeat_request(TOPICS)
    assert "m" == request.member_id
    assert (0, "r1", ["a", "b"]) == shown(request)
    answered(member, 1, 3)
    assert {TOPIC_ID: frozenset({3})} == member.assigned


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (ErrorCode.NOT_COORDINATOR, ShareHeartbeatResult.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ShareHeartbeatResult.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ShareHeartbeatResult.RETRY),
    ],
)
def test_a_coordinator_that_moves_changes_nothing(code: ErrorCode, result: ShareHeartbeatResult) -> None:
    member = joined()
    assert result is member.on_response(ShareGroupHeartbeatResponse(error_code=code))
    assert {TOPIC_ID: frozenset({0, 1})} == member.assigned
    assert (1, None, ["a", "b"]) == shown(member.heartbeat_request(TOPICS)), "the topics are said again"


def test_other_errors_end_the_membership() -> None:
    member = joined()
    refused = ShareGroupHeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message="no")
    with pytest.raises(BrokerResponseError, match=r"ShareGroupHeartbeat in group g \(no\)"):
        member.on_response(refused)
    assert not member.is_in_group
    assert {} == member.assigned
    member.join()
    with pytest.raises(UnsupportedApiError, match=r"share.version"):
        member.on_response(ShareGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))


def test_leaving() -> None:
    member = ShareMember("g", "m", None)
    assert member.leave_request() is None
    member.join()
    assert member.leave_request() is None, "no broker knows it"
    member = joined()
    assert -1 == shown(member.leave_request())[0]
    assert not member.is_in_group
    answered(member, 5, 3)
    assert {} == member.assigned, "a late answer changes nothing"
    member = joined()
    assert -1 == shown(member.leave_request(is_idle=True))[0]
    assert member.has_left_idle
    member.join()
    assert (0, "r1", ["a", "b"]) == shown(member.heartbeat_request(TOPICS))
