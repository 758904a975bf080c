"""How the costs of a broker grow with the consumer groups and idempotent producers that it knows."""

import socket
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.end_to_end import Figure, create_topic
from benchmarks.footprint import memory_mb
from benchmarks.request_rate import processor_seconds, produce_frame
from kalda.protocol import codec
from kalda.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kalda.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kalda.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kalda.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kalda.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from kalda.testing import KaldaProcess

_GROUPS: Final = (10, 1_000)
_PRODUCERS: Final = (10, 10_000)
_SOCKETS: Final = 20
_REQUESTS: Final = 40_000
_HEARTBEAT_SECONDS: Final = 3.0
_IDLE_ROUNDS: Final = 4
# The last versions before flexible ones: their headers have no tagged fields.
_VERSIONS: Final[dict[Any, int]] = {
    FindCoordinatorRequest: 2,
    JoinGroupRequest: 5,
    SyncGroupRequest: 3,
    HeartbeatRequest: 3,
    OffsetCommitRequest: 7,
}


def run() -> list[Figure]:
    """Measure groups, then producers, each on brokers of their own."""
    figures: list[Figure] = []
    for count in _GROUPS:
        figures += _groups(count)
    for count in _PRODUCERS:
        figures += _producers(count)
    return figures


class _Sockets:
    """A few connections to a broker, on which requests take turns."""

    def __init__(self, bootstrap: str, stack: ExitStack) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._all: Final = [
            stack.enter_context(socket.create_connection((host, int(port)), 60)) for _ in range(_SOCKETS)
        ]
        for each in self._all:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, frames: Sequence[bytes]) -> Iterator[memoryview]:
        """Send the frames, one in flight on each connection, and return the responses without their size."""
        for start in range(0, len(frames), _SOCKETS):
            turn = list(zip(self._all, frames[start : start + _SOCKETS], strict=False))
            for each, frame in turn:
                each.sendall(frame)
            for each, _ in turn:
                yield _receive(each)

    def call(self, requests: Sequence[Any], response_class: type[Any]) -> list[Any]:
        """Send messages as `ask` does; return the responses, which must have no error."""
        version = _VERSIONS[type(requests[0])]
        responses = [
            codec.decode(response_class, version, answer, 4) for answer in self.ask(_frames(requests))
        ]
        failed = [each for each in responses if getattr(each, "error_code", 0)]
        if failed:
            raise RuntimeError(f"the broker answered {failed[0]!r}")
        return responses


def _receive(connection: socket.socket) -> memoryview:
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        piece = connection.recv(65_536)
        if not piece:
            raise RuntimeError("the broker closed a connection")
        data += piece
    return memoryview(data)[4:]


def _frames(requests: Sequence[Any]) -> list[bytes]:
    version = _VERSIONS[type(requests[0])]
    key = int(requests[0].SCHEMA.api_key)
    header = struct.pack(">hhih", key, version, 1, 5) + b"bench"
    bodies = [codec.encode(each, version) for each in requests]
    return [struct.pack(">i", len(header) + len(body)) + header + body for body in bodies]


def _groups(count: int) -> list[Figure]:
    """Measure heartbeats and commits of groups of one member, and what they cost while they only live on."""
    with (
        tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory,
        KaldaProcess(Path(directory)) as broker,
        ExitStack() as stack,
    ):
        create_topic(broker.bootstrap, "requests")
        sockets = _Sockets(broker.bootstrap, stack)
        names = [f"group-{number}" for number in range(count)]
        _await_coordinator(sockets, names[0])
        empty = memory_mb(broker.pid)
        began = time.monotonic()
        members = _join(sockets, names)
        joined = time.monotonic() - began
        beats = [
            HeartbeatRequest(group_id=name, generation_id=generation, member_id=member)
            for name, member, generation in members
        ]
        offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = OffsetCommitRequestTopic(name="requests", partitions=[offset])
        commits = [
            OffsetCommitRequest(
                group_id=name, generation_id_or_member_epoch=generation, member_id=member, topics=[topic]
            )
            for name, member, generation in members
        ]
        rounds = _REQUESTS // 4 // count
        heartbeat_us = _processor_us(broker.pid, sockets, _frames(beats) * rounds)
        commit_us = _processor_us(broker.pid, sockets, _frames(commits) * rounds)
        sockets.call(commits[:1], OffsetCommitResponse)
        before = processor_seconds(broker.pid)
        for _ in range(_IDLE_ROUNDS):
            sockets.call(beats, HeartbeatResponse)
            time.sleep(_HEARTBEAT_SECONDS)
        idle = (processor_seconds(broker.pid) - before) / (_IDLE_ROUNDS * _HEARTBEAT_SECONDS)
        memory = memory_mb(broker.pid) - empty
    label = f"{count} groups"
    return [
        (f"{label}: joined in", joined, "s"),
        (f"{label}: processor time of a heartbeat", heartbeat_us, "us"),
        (f"{label}: processor time of a commit", commit_us, "us"),
        (f"{label}: heartbeats every 3 s", idle * 100, "% of a core"),
        (f"{label}: memory of all", memory, "MB"),
    ]


def _await_coordinator(sockets: _Sockets, group: str) -> None:
    """Have the offsets topic made, and wait until it is led."""
    for _ in range(100):
        try:
            sockets.call([FindCoordinatorRequest(key=group)], FindCoordinatorResponse)
        except RuntimeError:
            time.sleep(0.1)
        else:
            time.sleep(1.0)
            return
    raise RuntimeError("there is no coordinator")


def _join(sockets: _Sockets, names: Sequence[str]) -> list[tuple[str, str, int]]:
    """Make one member join each group; return group, member and generation."""
    offered = [JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")]

    def request(name: str, member: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=name,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=member,
            protocol_type="consumer",
            protocols=offered,
        )

    version = _VERSIONS[JoinGroupRequest]
    # The first answer is MEMBER_ID_REQUIRED, with the id.
    first = _frames([request(name, "") for name in names])
    ids = [codec.decode(JoinGroupResponse, version, each, 4).member_id for each in sockets.ask(first)]
    again = [request(name, member) for name, member in zip(names, ids, strict=True)]
    joined = sockets.call(again, JoinGroupResponse)
    members = [(name, each.member_id, each.generation_id) for name, each in zip(names, joined, strict=True)]
    syncs = [
        SyncGroupRequest(
            group_id=name,
            generation_id=generation,
            member_id=member,
            assignments=[SyncGroupRequestAssignment(member_id=member, assignment=b"\0\0\0\0\0\0")],
        )
        for name, member, generation in members
    ]
    sockets.call(syncs, SyncGroupResponse)
    return members


def _producers(count: int) -> list[Figure]:
    """Measure one-record requests that this many idempotent producers take turns to send, and a restart."""
    with tempfile.TemporaryDirectory(prefix="kalda-bench-") as directory:
        with KaldaProcess(Path(directory)) as broker, ExitStack() as stack:
            create_topic(broker.bootstrap, "requests")
            sockets = _Sockets(broker.bootstrap, stack)
            empty = memory_mb(broker.pid)
            # `count` is a multiple of the connections, or divides them: each producer keeps its connection.
            frames = [
                produce_frame("requests", producer_id=1_000 + producer, sequence=sequence)
                for sequence in range(_REQUESTS // count)
                for producer in range(count)
            ]
            spent = _processor_us(broker.pid, sockets, frames)
            memory = memory_mb(broker.pid) - empty
        with KaldaProcess(Path(directory)) as broker:
            started = broker.start_seconds
    label = f"{count} idempotent producers"
    return [
        (f"{label}: processor time of a produce request", spent, "us"),
        (f"{label}: memory of all", memory, "MB"),
        (f"{label}: start of the broker", started, "s"),
    ]


def _processor_us(pid: int, sockets: _Sockets, frames: Sequence[bytes]) -> float:
    before = processor_seconds(pid)
    for _ in sockets.ask(frames):
        pass
    return (processor_seconds(pid) - before) / len(frames) * 1e6
