"""Every version of the group requests against a broker, as clients of every age send them."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import pytest

from kalda.common.errors import ErrorCode
from kalda.common.types import ZERO_UUID
from kalda.net.peer.dialer import TcpDialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kalda.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kalda.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kalda.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kalda.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kalda.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kalda.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kalda.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from kalda.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from kalda.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from kalda.protocol.schema import Message

M = TypeVar("M", bound=Message)
MakeTopic = Callable[..., str]

TIMEOUT_SECONDS = 60.0


class Peer:
    """A connection that speaks any version."""

    def __init__(self, connection: PeerConnection) -> None:
        self.connection = connection

    @classmethod
    async def open(cls, bootstrap: str, client_id: str = "peer") -> "Peer":
        host, _, port = bootstrap.rpartition(":")
        peer = cls(
            await TcpDialer().dial(
                host, int(port), DialOptions(client_id=client_id, timeout_seconds=TIMEOUT_SECONDS)
            )
        )
        await peer.wait_for_coordinator()
        return peer

    async def ask(self, request: Message, response: type[M], version: int) -> M:
        answer = await self.connection.request(request, timeout_seconds=TIMEOUT_SECONDS, version=version)
        assert isinstance(answer, response)
        return answer

    async def wait_for_coordinator(self) -> None:
        """The internal topic is made when the first client asks for a coordinator."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            request = FindCoordinatorRequest(key="any")
            found = await self.ask(request, FindCoordinatorResponse, 0)
            listed = await self.ask(ListGroupsRequest(), ListGroupsResponse, 0)
            if found.error_code == listed.error_code == ErrorCode.NONE:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("there is no coordinator")


@pytest.fixture
async def peer(one_broker: str) -> AsyncIterator[Peer]:
    opened = await Peer.open(one_broker)
    yield opened
    opened.connection.close()


def name() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def commit_request(
    group: str, topic: str, *offsets: int, metadata: str = "m", topic_id: uuid.UUID = ZERO_UUID
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=at, committed_offset=offset, committed_metadata=metadata
                    )
                    for at, offset in enumerate(offsets)
                ],
            )
        ],
    )


def codes(response: OffsetCommitResponse) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for topic in response.topics for each in topic.partitions]


async def fetched(
    peer: Peer,
    version: int,
    group: str,
    topic: str | None,
    *partitions: int,
    topic_id: uuid.UUID = ZERO_UUID,
) -> list[tuple[int, int, str | None, ErrorCode]]:
    if version >= 8:
        asked = OffsetFetchRequestTopics(name=topic or "", topic_id=topic_id, partition_indexes=[*partitions])
        wanted = None if topic is None else [asked]
        many = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=wanted)])
        answer = await peer.ask(many, OffsetFetchResponse, version)
        assert ErrorCode.NONE == answer.groups[0].error_code
        return [
            (each.partition_index, each.committed_offset, each.metadata, ErrorCode(each.error_code))
            for found in answer.groups[0].topics
            for each in found.partitions
        ]
    topics = None if topic is None else [OffsetFetchRequestTopic(name=topic, partition_indexes=[*partitions])]
    one = OffsetFetchRequest(group_id=group, topics=topics)
    answer = await peer.ask(one, OffsetFetchResponse, version)
    assert ErrorCode.NONE == answer.error_code
    return [
        (each.partition_index, each.committed_offset, each.metadata, ErrorCode(each.error_code))
        for found_topic in answer.topics
        for each in found_topic.partitions
    ]


async def topic_id_of(peer: Peer, topic: str) -> uuid.UUID:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    return (await peer.ask(request, MetadataResponse, 12)).topics[0].topic_id


@pytest.mark.parametrize("version", range(1, 11))
async def test_offsets_are_committed_and_fetched_in_every_version(
    one_broker: str, peer: Peer, make_topic: MakeTopic, version: int
) -> None:
    topic, group = make_topic(one_broker, values=0), name()
    topic_id = await topic_id_of(peer, topic)
    request = commit_request(group, topic, 7, 8, topic_id=topic_id)
    answer = await peer.ask(request, OffsetCommitResponse, version)
    assert [ErrorCode.NONE] * 2 == codes(answer)
    expected = [(0, 7, "m", ErrorCode.NONE), (1, 8, "m", ErrorCode.NONE), (2, -1, "", ErrorCode.NONE)]
    assert expected == await fetched(peer, version, group, topic, 0, 1, 2, topic_id=topic_id)
    if version >= 2:
        assert expected[:2] == await fetched(peer, version, group, None)
    assert [] == await fetched(peer, max(version, 2), name(), None)
    # One partition that does not exist is refused, the other committed.
    wrong = commit_request(group, topic, 9, topic_id=topic_id)
    wrong.topics[0].partitions.append(
        OffsetCommitRequestPartition(partition_index=99, committed_offset=1, committed_metadata="")
    )
    answer = await peer.ask(wrong, OffsetCommitResponse, version)
    assert [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] == codes(answer)
    found = await fetched(peer, version, group, topic, 0, topic_id=topic_id)
    assert (0, 9, "m", ErrorCode.NONE) == found[0]


async def test_version_0_keeps_offsets_in_zookeeper(
    one_broker: str, peer: Peer, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(one_broker, values=0), name()
    for offset in (3, 4):
        answer = await peer.ask(commit_request(group, topic, offset), OffsetCommitResponse, 0)
        assert [ErrorCode.NONE] == codes(answer)
        assert [
            (0, offset, "", ErrorCode.NONE),
            (1, -1, "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ] == await fetched(peer, 0, group, topic, 0, 1)
    # The two stores know nothing of each other.
    assert [(0, -1, "", ErrorCode.NONE)] == await fetched(peer, 1, group, topic, 0)
    refused = await peer.ask(commit_request("a/../b", topic, 1), OffsetCommitResponse, 0)
    assert [ErrorCode.INVALID_GROUP_ID] == codes(refused)
    refused = await peer.ask(commit_request(group, topic, 1, metadata="x" * 5000), OffsetCommitResponse, 0)
    assert [ErrorCode.OFFSET_METADATA_TOO_LARGE] == codes(refused)


async def test_many_groups_are_fetched_at_once(one_broker: str, peer: Peer, make_topic: MakeTopic) -> None:
    topic, groups = make_topic(one_broker, values=0), [name() for _ in range(20)]
    for at, group in enumerate(groups):
        await peer.ask(commit_request(group, topic, at), OffsetCommitResponse, 9)
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    )
    answer = await peer.ask(request, OffsetFetchResponse, 9)
    assert groups == [group.group_id for group in answer.groups]
    assert list(range(20)) == [group.topics[0].partitions[0].committed_offset for group in answer.groups]


@pytest.mark.parametrize("version", range(10))
async def test_a_member_lives_its_life_in_every_version(
    one_broker: str, peer: Peer, make_topic: MakeTopic, version: int
) -> None:
    """Other requests in the version that came with this JoinGroup, or their last one."""
    topic, group = make_topic(one_broker, values=0), name()
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
    )
    joined = await peer.ask(request, JoinGroupResponse, version)
    if version >= 4:
        assert ErrorCode.MEMBER_ID_REQUIRED == joined.error_code
        request.member_id = joined.member_id
        joined = await peer.ask(request, JoinGroupResponse, version)
    assert ErrorCode.NONE == joined.error_code
    assert (1, joined.member_id, "range") == (joined.generation_id, joined.leader, joined.protocol_name)
    assert [joined.member_id] == [each.member_id for each in joined.members]
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=1,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"part")],
    )
    synced = await peer.ask(sync, SyncGroupResponse, min(version, 5))
    assert (ErrorCode.NONE, b"part") == (synced.error_code, synced.assignment)
    beat = HeartbeatRequest(group_id=group, generation_id=1, member_id=joined.member_id)
    assert ErrorCode.NONE == (await peer.ask(beat, HeartbeatResponse, min(version, 4))).error_code
    commit = commit_request(group, topic, 5)
    commit.member_id, commit.generation_id_or_member_epoch = joined.member_id, 1
    assert [ErrorCode.NONE] == codes(await peer.ask(commit, OffsetCommitResponse, max(version, 1)))
    described = await peer.ask(DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse, min(version, 6))
    (found,) = described.groups
    assert ("Stable", "consumer", "range") == (found.group_state, found.protocol_type, found.protocol_data)
    assert [(joined.member_id, "peer", "/127.0.0.1", b"part")] == [
        (each.member_id, each.client_id, each.client_host, each.member_assignment) for each in found.members
    ]
    if version >= 3:
        leave = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=joined.member_id)])
    else:
        leave = LeaveGroupRequest(group_id=group, member_id=joined.member_id)
    left = await peer.ask(leave, LeaveGroupResponse, min(version, 5))
    assert [ErrorCode.NONE] * (len(left.members) + 1) == [
        left.error_code,
        *(each.error_code for each in left.members),
    ]
    assert ErrorCode.UNKNOWN_MEMBER_ID == (await peer.ask(beat, HeartbeatResponse, 0)).error_code
    deleted = await peer.ask(DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse, min(version, 2))
    assert [ErrorCode.NONE] == [each.error_code for each in deleted.results]
    assert [] == await fetched(peer, max(version, 2), group, None)


@pytest.mark.parametrize("version", range(7))
async def test_a_group_that_is_not_there_is_described_as_such(peer: Peer, version: int) -> None:
    answer = await peer.ask(DescribeGroupsRequest(groups=["none"]), DescribeGroupsResponse, version)
    (found,) = answer.groups
    expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
    assert (expected, "Dead") == (found.error_code, found.group_state)


async def test_groups_are_listed_by_state_and_type(
    one_broker: str, peer: Peer, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(one_broker, values=0), name()
    await peer.ask(commit_request(group, topic, 1), OffsetCommitResponse, 9)

    async def listed(version: int, states: list[str], types: list[str]) -> bool:
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        answer = await peer.ask(request, ListGroupsResponse, version)
        return group in [each.group_id for each in answer.groups]

    for version in range(6):
        assert await listed(version, [], [])
    assert await listed(4, ["EMPTY"], [])
    assert not await listed(4, ["Stable"], [])
    assert await listed(5, ["empty", "stable"], ["Classic"])
    assert not await listed(5, [], ["consumer"])


async def test_offsets_are_deleted(one_broker: str, peer: Peer, make_topic: MakeTopic) -> None:
    topic, group = make_topic(one_broker, values=0), name()
    await peer.ask(commit_request(group, topic, 1, 2), OffsetCommitResponse, 9)
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(name=each, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for each in (topic, "not-there")
        ],
    )
    answer = await peer.ask(request, OffsetDeleteResponse, 0)
    assert ErrorCode.NONE == answer.error_code
    assert {topic: ErrorCode.NONE, "not-there": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} == {
        each.name: each.partitions[0].error_code for each in answer.topics
    }
    assert [(1, 2, "m", ErrorCode.NONE)] == await fetched(peer, 9, group, None)
    request.group_id = "none"
    assert ErrorCode.GROUP_ID_NOT_FOUND == (await peer.ask(request, OffsetDeleteResponse, 0)).error_code


@pytest.mark.parametrize("version", range(10))
async def test_bad_joins_are_refused_in_every_version(peer: Peer, version: int) -> None:

    async def join(group: str, session_timeout_ms: int, member_id: str = "") -> ErrorCode:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        return ErrorCode((await peer.ask(request, JoinGroupResponse, version)).error_code)

    assert ErrorCode.INVALID_GROUP_ID is await join("", 10_000)
    assert ErrorCode.INVALID_SESSION_TIMEOUT is await join("g", 10)
    assert ErrorCode.INVALID_SESSION_TIMEOUT is await join("g", 10_000_000)
    assert ErrorCode.UNKNOWN_MEMBER_ID is await join("not-there", 10_000, "somebody")


@pytest.mark.parametrize("is_static", [False, True])
@pytest.mark.parametrize("version", [0, 4, 5, 9])
async def test_the_member_id_of_a_client_with_a_long_name_fits_in_a_response(
    one_broker: str, version: int, is_static: bool
) -> None:
    """A longer one would end the join of each member and every description of the group."""
    peer, group = await Peer.open(one_broker, "c" * 32_000), name()
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000 if version else -1,
        group_instance_id="i" * 32_767 if is_static and version >= 5 else None,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    answer = await peer.ask(request, JoinGroupResponse, version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        request.member_id = answer.member_id
        answer = await peer.ask(request, JoinGroupResponse, version)
    assert ErrorCode.NONE == answer.error_code
    described = await peer.ask(DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse, 5)
    assert [answer.member_id] == [member.member_id for member in described.groups[0].members]
    peer.connection.close()
