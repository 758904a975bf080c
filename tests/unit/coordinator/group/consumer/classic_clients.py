"""Clients of the classic protocol for the simulation: eager ones, which give up all they have first."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct
from uuid import UUID

from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.classic.join import Requester
from kalda.protocol import codec
from kalda.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from kalda.protocol.messages.heartbeat import HeartbeatRequest
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kalda.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kalda.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.unit.coordinator.group.consumer.consumer_simulation import GROUP, ConsumerSimulation

_VERSION = Struct(">h")


@dataclass
class ClassicClient:
    """A member of the classic protocol; `step` does whatever it would do next."""

    simulation: ConsumerSimulation
    topics: tuple[str, ...] = ("t",)
    instance_id: str | None = None
    member_id: str = ""
    generation_id: int = -1
    is_stable: bool = False
    owned: set[tuple[UUID, int]] = field(default_factory=set)
    joining: Pending[JoinGroupResponse] | None = None
    syncing: Pending[SyncGroupResponse] | None = None

    def step(self) -> None:
        """Take in an answer if there is one, else ask for what is next."""
        if self.joining is not None:
            if self.joining.is_done:
                answer, self.joining = self.joining, None
                self._on_joined(answer.value)
        elif self.syncing is not None:
            if self.syncing.is_done:
                answered, self.syncing = self.syncing, None
                self._on_synced(answered.value)
        elif self.is_stable:
            self._heartbeat()
        else:
            self._join()

    def leave(self) -> None:
        """Leave the group."""
        request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=self.member_id)])
        self.simulation.write(self.simulation.classic.leave(request))

    def lose_all(self) -> None:
        """Stop using anything, and join again."""
        self.owned.clear()
        self.is_stable = False
        self.joining = self.syncing = None

    def _join(self) -> None:
        self.owned.clear()
        subscription = ConsumerProtocolSubscription(topics=list(self.topics))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(
                    name="range", metadata=_VERSION.pack(3) + codec.encode(subscription, 3)
                )
            ],
        )
        requester = Requester("classic", "/host", 9)
        self.joining = self.simulation.write(self.simulation.classic.join(request, requester))

    def _on_joined(self, response: JoinGroupResponse) -> None:
        code = ErrorCode(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if code is not ErrorCode.NONE:
            return
        self.member_id, self.generation_id = response.member_id, response.generation_id
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            assignments=self._assign([member.member_id for member in response.members]),
        )
        self.syncing = self.simulation.write(self.simulation.classic.sync(request))

    def _assign(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        """What a leader does: partitions go round the members."""
        shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
        everything = sorted(self.simulation.topics.partitions(self.topics))
        for position, (topic, number) in enumerate(everything if members else ()):
            share = shares[members[position % len(members)]]
            share.append(TopicPartition(topic=topic, partitions=[number]))
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=_assignment(share))
            for member, share in shares.items()
        ]

    def _on_synced(self, response: SyncGroupResponse) -> None:
        code = ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            self.is_stable = True
            self.owned = set(self._read(response.assignment))
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    def _read(self, data: bytes) -> Iterable[tuple[UUID, int]]:
        if not data:
            return
        decoded = codec.decode(ConsumerProtocolAssignment, _VERSION.unpack_from(data)[0], data, 2)
        for each in decoded.assigned_partitions:
            topic = self.simulation.topics.topic(each.topic)
            if topic is not None:
                yield from ((topic.topic_id, number) for number in each.partitions)

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation_id, member_id=self.member_id)
        code = self.simulation.classic.heartbeat(request)
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if code is not ErrorCode.NONE:
            self.is_stable = False
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.owned.clear()


def _assignment(partitions: list[TopicPartition]) -> bytes:
    return _VERSION.pack(1) + codec.encode(ConsumerProtocolAssignment(assigned_partitions=partitions), 1)
