"""Groups as their members see them: the whole coordinator over a log in memory and a clock that is moved."""

import itertools
from dataclasses import dataclass, field
from typing import Any

from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.classic.classic_group import ClassicGroup
from kalda.coordinator.group.classic.join import Requester
from kalda.coordinator.group.group_config import GroupConfig
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.coordinator.group.group_shard import GroupShard, GroupStatistics
from kalda.coordinator.runtime.coordinator_runtime import CoordinatorRuntime, RuntimeConfig
from kalda.events.event import EventSink
from kalda.protocol.messages.heartbeat import HeartbeatRequest
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kalda.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kalda.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kalda.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kalda.runtime.clock import ManualClock
from tests.unit.coordinator.fakes import FakeLog, FakeLoop
from tests.unit.events.kept_events import KeptEvents

GROUP = "g"
LATEST = 9


@dataclass
class Client:
    """A member as its client keeps it."""

    name: str
    member_id: str = ""
    generation_id: int = -1
    instance_id: str | None = None
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 60_000
    protocols: tuple[str, ...] = ("range",)
    version: int = LATEST
    joined: JoinGroupResponse | None = None
    assignment: bytes | None = None
    waiting: dict[str, Pending[Any]] = field(default_factory=dict)


class GroupSimulation:
    """One coordinator, one partition, and clients that do as they are told."""

    def __init__(self, events: EventSink | None = None, /, **settings: int) -> None:
        """`events` gets the events instead of `kept`."""
        self.clock = ManualClock()
        self.loop = FakeLoop(self.clock)
        self.log = FakeLog()
        self.config = GroupConfig(**settings)
        self.statistics = GroupStatistics()
        self.kept = KeptEvents()
        ids = itertools.count(1)

        def make_shard(partition: int) -> GroupShard:
            return GroupShard(
                partition,
                self.config,
                self.statistics,
                new_id=lambda: str(next(ids)),
                events=events or self.kept,
            )

        self.runtime = CoordinatorRuntime(
            self.log, make_shard, self.clock, self.loop, RuntimeConfig("__consumer_offsets")
        )
        self.coordinator = GroupCoordinator(self.runtime, self.config, self.statistics, lambda _: 0)
        self.clients: dict[str, Client] = {}
        self.epoch = 0
        self.events: list[str] = []
        self.asked: list[tuple[str, str, Pending[Any]]] = []
        """Every request that was not answered at once: who, what, and the answer."""
        self.runtime.become_leader(0, self.epoch)
        self.loop.settle()

    # The coordinator's fate.

    def fail_over(self) -> None:
        """Another broker takes over: nothing is left but the log."""
        self.runtime.resign(0)
        self.epoch += 1
        self.runtime.become_leader(0, self.epoch)
        self.loop.settle()

    def replicate(self) -> None:
        """Let the high watermark catch up."""
        self.log.commit(0)
        self.runtime.on_high_watermark(0)
        self.loop.settle()

    def advance(self, milliseconds: int) -> None:
        """Let time pass."""
        self.loop.advance(milliseconds)

    # Looking.

    @property
    def shard(self) -> GroupShard:
        return self.runtime.shard(0)

    @property
    def group(self) -> ClassicGroup | None:
        found = self.shard.groups.get(GROUP)
        assert found is None or isinstance(found, ClassicGroup)
        return found

    def client(self, name: str, **changes: Any) -> Client:
        client = self.clients.setdefault(name, Client(name))
        for key, value in changes.items():
            setattr(client, key, value)
        return client

    # Requests.

    def join(self, name: str, **changes: Any) -> None:
        """Join with what the client knows; the answer comes as an event, and the client learns from it."""
        client = self.client(name, **changes)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=client.session_timeout_ms,
            rebalance_timeout_ms=client.rebalance_timeout_ms,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=each, metadata=subscription(name)) for each in client.protocols
            ],
        )
        requester = Requester(client.name, "/127.0.0.1", client.version)
        self._await(client, "join", self.coordinator.join_group(request, requester))

    def sync(self, name: str, assignments: dict[str, bytes] | None = None) -> None:
        """Sync; a leader gives every member its own name."""
        client = self.client(name)
        if assignments is None:
            assignments = {}
            if client.joined is not None and client.joined.leader == client.member_id:
                assignments = {
                    each.member_id: each.member_id.split("-")[0].encode() for each in client.joined.members
                }
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=client.generation_id,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )
        self._await(client, "sync", self.coordinator.sync_group(request))

    def heartbeat(self, name: str) -> ErrorCode:
        client = self.client(name)
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=client.generation_id,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
        )
        code = self.coordinator.heartbeat(request)
        self.events.append(f"{name} <- heartbeat {ErrorCode(code).name}")
        return code

    def leave(self, *names: str) -> None:
        members = [
            MemberIdentity(
                member_id=self.client(name).member_id, group_instance_id=self.client(name).instance_id
            )
            for name in names
        ]
        request = LeaveGroupRequest(group_id=GROUP, members=members)
        self._await(self.client(names[0]), "leave", self.coordinator.leave_group(request))

    def commit(self, name: str, offset: int, topic: str = "t", partition: int = 0) -> None:
        client = self.client(name)
        request = commit_request(client, offset, topic, partition)
        self._await(client, "commit", self.coordinator.commit_offsets(request, LATEST))

    def _await(self, client: Client, kind: str, result: Any) -> None:
        if isinstance(result, Pending):
            client.waiting[kind] = result
            self.asked.append((client.name, kind, result))
            result.add_done(lambda done: self._on_answer(client, kind, done))
        else:
            self._learn(client, kind, result)

    def _on_answer(self, client: Client, kind: str, done: Pending[Any]) -> None:
        if client.waiting.get(kind) is done:
            del client.waiting[kind]
        if done.error is not None:
            code = getattr(done.error, "code", done.error)
            self.events.append(f"{client.name} <- {kind} failed {getattr(code, 'name', code)}")
        else:
            self._learn(client, kind, done.value)

    def _learn(self, client: Client, kind: str, response: Any) -> None:
        self.events.append(f"{client.name} <- {kind} {_text(response)}")
        if isinstance(response, JoinGroupResponse):
            if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = response.member_id
            if not response.error_code:
                client.generation_id = response.generation_id
                client.joined = response
            elif response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                client.member_id = ""
        elif isinstance(response, SyncGroupResponse) and not response.error_code:
            client.assignment = response.assignment


def subscription(name: str, topics: tuple[str, ...] = ("t",)) -> bytes:
    """What a consumer sends as its metadata, of version 0; its name is the user data."""
    data = b"\0\0" + len(topics).to_bytes(4, "big")
    for topic in topics:
        data += len(topic).to_bytes(2, "big") + topic.encode()
    return data + len(name).to_bytes(4, "big") + name.encode()


def commit_request(
    client: Client, offset: int, topic: str = "t", partition: int = 0, **changes: Any
) -> OffsetCommitRequest:
    """A commit of one offset."""
    return OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=client.generation_id,
        member_id=client.member_id,
        group_instance_id=client.instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata="", **changes
                    )
                ],
            )
        ],
    )


def _text(response: Any) -> str:
    if isinstance(response, JoinGroupResponse):
        if response.error_code:
            member = f" member={response.member_id}" if response.member_id else ""
            return ErrorCode(response.error_code).name + member
        members = ",".join(each.member_id for each in response.members)
        told = f" members={members}" if members else ""
        skips = " skip_assignment" if response.skip_assignment else ""
        return (
            f"generation={response.generation_id} member={response.member_id} leader={response.leader} "
            f"protocol={response.protocol_name}{told}{skips}"
        )
    if isinstance(response, SyncGroupResponse):
        if response.error_code:
            return ErrorCode(response.error_code).name
        return f"assignment={response.assignment.decode()!r}"
    if isinstance(response, LeaveGroupResponse):
        codes = [response.error_code, *(each.error_code for each in response.members)]
        return " ".join(ErrorCode(code).name for code in codes[1:] or codes)
    assert isinstance(response, OffsetCommitResponse)
    return ErrorCode(response.topics[0].partitions[0].error_code).name
