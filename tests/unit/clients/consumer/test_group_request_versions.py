"""Every request of a member fits every version that brokers from 2.1 on offer."""

import pytest

from kalda.clients.consumer.group.classic_member import ClassicMember
from kalda.clients.consumer.group.consumer_member import ConsumerMember, MemberOptions, SubscribedTopics
from kalda.clients.errors import ClientError
from kalda.common.errors import ErrorCode
from kalda.protocol import codec
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kalda.protocol.messages.leave_group import LeaveGroupRequest


def joined() -> ClassicMember:
    member = ClassicMember("g", None, 45_000, 300_000)
    sent = member.generation
    member.join_request([("range", b"r")])
    member.on_join_response(
        JoinGroupResponse(
            error_code=0, generation_id=1, protocol_name="range", leader="m", member_id="m", members=[]
        ),
        sent,
    )
    return member


@pytest.mark.parametrize("version", range(10))
def test_join(version: int) -> None:
    """What a version does not carry, such as the reason, is left out."""
    member = ClassicMember("g", "i1" if version >= 5 else None, 45_000, 300_000)
    request = member.join_request([("range", b"r"), ("sticky", b"s")])
    read = codec.decode(JoinGroupRequest, version, codec.encode(request, version))
    assert [("range", b"r"), ("sticky", b"s")] == [(each.name, each.metadata) for each in read.protocols]


@pytest.mark.parametrize("version", range(6))
def test_sync(version: int) -> None:
    """Also with the assignments of a leader."""
    codec.encode(joined().sync_request({"m": b"x"}), version)


@pytest.mark.parametrize("version", range(5))
def test_heartbeat(version: int) -> None:
    """The plain ones."""
    codec.encode(joined().heartbeat_request(), version)


@pytest.mark.parametrize("version", range(6))
def test_leave(version: int) -> None:
    """One member up to version 2, a list of members from 3, with reasons from 5."""
    encoded = codec.encode(joined().leave_request(version, "bye" * 200), version)
    read = codec.decode(LeaveGroupRequest, version, encoded)
    left = read.member_id if version < 3 else read.members[0].member_id
    assert "m" == left
    if version == 5:
        assert 255 == len(read.members[0].reason or "")


@pytest.mark.parametrize("version", range(2))
def test_consumer_group_heartbeat(version: int) -> None:
    """Version 0 has no regular expressions, and no member ids of clients."""
    member = ConsumerMember(MemberOptions("g", "i", "r", 1000, "range"), "m")
    member.join()
    request = member.heartbeat_request(
        version, SubscribedTopics(frozenset("t"), None if version == 0 else "t.*")
    )
    codec.encode(request, version)
    assert ("m" if version else "") == request.member_id


def test_a_session_time_out_that_brokers_refuse_is_named() -> None:
    """The limits are the brokers' settings, which the error names."""
    member = ClassicMember("g", None, 1_000, 300_000)
    sent = member.generation
    member.join_request([])
    refused = JoinGroupResponse(
        error_code=ErrorCode.INVALID_SESSION_TIMEOUT,
        protocol_name=None,
        leader="",
        member_id="",
        members=[],
    )
    with pytest.raises(ClientError, match=r"`session.timeout.ms`=1000 .*group.min.session.timeout.ms"):
        member.on_join_response(refused, sent)
