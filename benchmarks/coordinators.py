"""The coordinators: how long a commit takes, a rebalance of many members, and loading many groups.

The clients are connections with prepared requests in this process, so that nearly all that is measured is
the broker.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

from benchmarks.apache_kafka import ApacheKafka
from benchmarks.end_to_end import Figure, create_topic
from kalda.common.errors import ErrorCode
from kalda.net.peer.dialer import TcpDialer
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kalda.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kalda.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from kalda.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from kalda.protocol.schema import Message
from kalda.testing import KaldaProcess

M = TypeVar("M", bound=Message)

_COMMITS: Final = 2000
_MEMBERS: Final = 100
_GROUPS: Final = 10_000
_INITIAL_DELAY_MS: Final = 500
_HEAD_START_SECONDS: Final = 0.02
_SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": str(_INITIAL_DELAY_MS),
    "offsets.topic.num.partitions": "1",
}
_CONNECTIONS: Final = 20
_TOPIC: Final = "commits"
_TIMEOUT_SECONDS: Final = 30.0


def run() -> list[Figure]:
    """Measure on one broker; loading is measured by starting it again."""
    figures: list[Figure] = []
    with (
        tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory,
        KaldaProcess(Path(directory) / "data", settings=_SETTINGS) as broker,
    ):
        figures += _measure(broker.bootstrap)
        asyncio.run(_many_groups(broker.bootstrap))
        broker.stop()
        broker.start()
        figures += asyncio.run(_loading(broker.bootstrap))
    return figures


def run_apache_kafka() -> list[Figure]:
    """Measure Apache Kafka under the same labels.

    Raises:
        NotAvailableError: it cannot be had here.
    """
    with ApacheKafka(settings=_SETTINGS) as kafka:
        figures = _measure(kafka.bootstrap)
        asyncio.run(_many_groups(kafka.bootstrap))
        kafka.restart(lambda: None)
        return [*figures, *asyncio.run(_loading(kafka.bootstrap))]


def _measure(bootstrap: str) -> list[Figure]:
    create_topic(bootstrap, _TOPIC)
    return [*asyncio.run(_commits(bootstrap)), *asyncio.run(_rebalance(bootstrap))]


async def _open(bootstrap: str) -> PeerConnection:
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    return await TcpDialer().dial(
        host, int(port), DialOptions(client_id="bench", timeout_seconds=_TIMEOUT_SECONDS)
    )


async def _ask(connection: PeerConnection, request: Message, response: type[M]) -> M:
    answer = await connection.request(request, timeout_seconds=_TIMEOUT_SECONDS)
    assert isinstance(answer, response), f"{request} was answered by {answer}"
    return answer


async def _topic_id(connection: PeerConnection) -> UUID:
    """Return the id that a commit names the topic by, from version 10 on."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=_TOPIC)])
    (topic,) = (await _ask(connection, request, MetadataResponse)).topics
    return topic.topic_id


def _commit(topic_id: UUID, group: str, offset: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=_TOPIC,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=""
                    )
                ],
            )
        ],
    )


async def _committed(connection: PeerConnection, topic_id: UUID, group: str, offset: int) -> None:
    """Commit until it is taken: the first one of all waits for the internal topic."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        answer = await _ask(connection, _commit(topic_id, group, offset), OffsetCommitResponse)
        code = answer.topics[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            return
        assert time.monotonic() < deadline, f"commits of {group} are refused: {ErrorCode(code).name}"
        await asyncio.sleep(0.02)


async def _commits(bootstrap: str) -> list[Figure]:
    connection = await _open(bootstrap)
    await _find(connection)
    topic_id = await _topic_id(connection)
    for offset in range(200):
        await _committed(connection, topic_id, "warm", offset)
    taken = []
    for offset in range(_COMMITS):
        started = time.perf_counter()
        await _committed(connection, topic_id, "bench", offset)
        taken.append((time.perf_counter() - started) * 1000)
    connection.close()
    taken.sort()
    return [
        ("offset commit, one in flight, p50", statistics.median(taken), "ms"),
        ("offset commit, one in flight, p99", taken[len(taken) * 99 // 100], "ms"),
    ]


async def _find(connection: PeerConnection) -> None:
    """Have the internal topic created, as every client does by asking for its coordinator."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        request = FindCoordinatorRequest(coordinator_keys=["bench"])
        found = await _ask(connection, request, FindCoordinatorResponse)
        if found.coordinators[0].error_code == ErrorCode.NONE:
            return
        await asyncio.sleep(0.05)


async def _rebalance(bootstrap: str) -> list[Figure]:
    """From the first request until all members have their part: newcomers, then members of a stable group."""
    connections = [await _open(bootstrap) for _ in range(_MEMBERS)]
    started = time.perf_counter()
    joined = await asyncio.gather(*(_join(connection, "") for connection in connections))
    await _sync_all(connections, joined)
    formed = time.perf_counter() - started
    # The leader asks for a rebalance; the others join when a heartbeat has told them, here at once.
    order = sorted(range(_MEMBERS), key=lambda at: joined[at].leader != joined[at].member_id)
    started = time.perf_counter()
    leading = asyncio.create_task(_join(connections[order[0]], joined[order[0]].member_id), name="leader")
    # A broker of several threads must not hear of the others first: to them nothing would have changed.
    await asyncio.sleep(_HEAD_START_SECONDS)
    following = await asyncio.gather(*(_join(connections[at], joined[at].member_id) for at in order[1:]))
    again = [await leading, *following]
    await _sync_all([connections[at] for at in order], again)
    rebalanced = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return [
        (f"{_MEMBERS} members form a group (initial delay {_INITIAL_DELAY_MS} ms)", formed, "s"),
        (f"{_MEMBERS} members rebalance", rebalanced, "s"),
    ]


async def _sync_all(connections: list[PeerConnection], joined: list[JoinGroupResponse]) -> None:
    assert len({each.generation_id for each in joined}) == 1, "members are in two generations"
    parts = await asyncio.gather(
        *(_sync(connection, each) for connection, each in zip(connections, joined, strict=True))
    )
    assert all(part.assignment == b"part" for part in parts), "a member has no part"


async def _join(connection: PeerConnection, member_id: str) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id="many",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(100))],
    )
    answer = await _ask(connection, request, JoinGroupResponse)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        return await _join(connection, answer.member_id)
    assert answer.error_code == ErrorCode.NONE, f"joining failed: {ErrorCode(answer.error_code).name}"
    return answer


async def _sync(connection: PeerConnection, joined: JoinGroupResponse) -> SyncGroupResponse:
    request = SyncGroupRequest(
        group_id="many",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"part")
            for each in joined.members
        ],
    )
    answer = await _ask(connection, request, SyncGroupResponse)
    assert answer.error_code == ErrorCode.NONE, f"syncing failed: {ErrorCode(answer.error_code).name}"
    return answer


async def _many_groups(bootstrap: str) -> None:
    connections = [await _open(bootstrap) for _ in range(_CONNECTIONS)]
    topic_id = await _topic_id(connections[0])

    async def commit(at: int) -> None:
        for number in range(at, _GROUPS, _CONNECTIONS):
            await _committed(connections[at], topic_id, f"group-{number}", number)

    await asyncio.gather(*(commit(at) for at in range(_CONNECTIONS)))
    for connection in connections:
        connection.close()


async def _loading(bootstrap: str) -> list[Figure]:
    """From the moment that the broker serves until the last group's offset can be read."""
    started = time.perf_counter()
    connection = await _open(bootstrap)
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=f"group-{_GROUPS - 1}", topics=None)]
    )
    while True:
        (group,) = (await _ask(connection, request, OffsetFetchResponse)).groups
        if group.error_code == ErrorCode.NONE:
            break
        await asyncio.sleep(0.005)
    seconds = time.perf_counter() - started
    connection.close()
    assert group.topics[0].partitions[0].committed_offset == _GROUPS - 1, "an offset was lost"
    return [(f"{_GROUPS} groups are loaded after a restart", seconds, "s")]
