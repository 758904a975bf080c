"""The classic protocol over the groups of one shard: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Each operation runs inside one write of the runtime and leaves the group in order. What is decided about
others' requests goes out at its end; what waits for the log (an assignment, a static member's new id) goes
out through `Step.on_written`.
"""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.classic.classic_group import UNKNOWN_MEMBER_ID, ClassicGroup, GroupState
from kalda.coordinator.group.classic.classic_member import ClassicMember
from kalda.coordinator.group.classic.join import Joining, Requester, Step
from kalda.coordinator.group.classic.rebalance import Rebalance
from kalda.coordinator.group.group import Group, GroupType
from kalda.coordinator.group.shard import GroupShard
from kalda.coordinator.runtime.coordinator_shard import ShardContext
from kalda.protocol.messages.heartbeat import HeartbeatRequest
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kalda.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from kalda.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

__all__ = ["ClassicProtocol", "ClassicRequests"]

logger: Final = logging.getLogger(__name__)


class ClassicRequests(Protocol):
    """Serves requests of the classic protocol."""

    def join(
        self, request: JoinGroupRequest, requester: Requester, answer: Pending[JoinGroupResponse]
    ) -> Step:
        """JoinGroup."""
        ...

    def sync(self, request: SyncGroupRequest, answer: Pending[SyncGroupResponse]) -> Step:
        """SyncGroup."""
        ...

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Heartbeat."""
        ...

    def leave(self, request: LeaveGroupRequest) -> tuple[list[CoordinatorRecord], LeaveGroupResponse]:
        """LeaveGroup."""
        ...


class ClassicProtocol:
    """What members of classic groups ask for; a part of the shard."""

    def __init__(
        self,
        shard: GroupShard,
        *,
        new_id: Callable[[], str],
        completed_rebalance: Callable[[], None] = lambda: None,
    ) -> None:
        self._shard: Final = shard
        self.rebalance: Final = Rebalance(shard, completed_rebalance)
        self._bridges: Final[dict[GroupType, ClassicRequests]] = {}
        self._joining: Final = Joining(shard, self.rebalance, new_id)

    # The shard's life.

    def on_loaded(self, context: ShardContext) -> None:
        """Expect a heartbeat of every member that the log knows; shrink groups that are too large now."""
        size_max = self._shard.config.group_max_size
        for group in self._groups():
            for member in group.members.values():
                self.rebalance.schedule_heartbeat(group, member)
            if len(group.members) > size_max:
                records = self.rebalance.prepare(group, f"loaded with more members than {size_max}")
                assert not records, "a group with members writes nothing before its assignment"

    def on_unloaded(self) -> None:
        """End whatever waits: another broker is the coordinator now."""
        for group in self._groups():
            for member in group.members.values():
                self.rebalance.answer_join(
                    group,
                    member,
                    JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR, member_id=member.member_id),
                )
                if member.awaiting_sync is not None:
                    self.rebalance.answers.add(
                        member.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
                    )
                    member.awaiting_sync = None
            group.enter(GroupState.DEAD, group.state_timestamp_ms)
        self.rebalance.answers.give()

    def add_bridge(self, kind: GroupType, bridge: ClassicRequests) -> None:
        """Pass requests that concern groups of another kind on."""
        self._bridges[kind] = bridge

    # Requests.

    def join(
        self, request: JoinGroupRequest, requester: Requester, answer: Pending[JoinGroupResponse]
    ) -> Step:
        """Join a group; without a member id the group is made if there is none."""
        group = self._shard.groups.get(request.group_id)
        bridge = self._bridge(group)
        if bridge is not None:
            return bridge.join(request, requester, answer)
        if group is None and request.member_id == UNKNOWN_MEMBER_ID:
            group = ClassicGroup(request.group_id, self._shard.context.time_ms())
            self._shard.groups[request.group_id] = group
        if not isinstance(group, ClassicGroup):
            code = ErrorCode.UNKNOWN_MEMBER_ID if group is None else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            answer.complete(JoinGroupResponse(error_code=code, member_id=request.member_id))
            return Step()
        step = self._joining.join(group, request, requester, answer)
        self.rebalance.forget_if_unused(group)
        self.rebalance.answers.give()
        return step

    def sync(self, request: SyncGroupRequest, answer: Pending[SyncGroupResponse]) -> Step:
        """Ask for the assignment; the leader's request brings it for all."""
        bridge = self._bridge(self._shard.groups.get(request.group_id))
        if bridge is not None:
            return bridge.sync(request, answer)
        try:
            group = self._member_group(request.group_id)
            self._validate_sync(group, request)
        except ApiError as error:
            answer.complete(SyncGroupResponse(error_code=error.code))
            return Step()
        member = group.members[request.member_id]
        group.pending_sync.discard(member.member_id)
        if group.state is GroupState.STABLE:
            response = SyncGroupResponse(
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                assignment=member.assignment,
            )
            answer.complete(response)
            return Step()
        assert group.state is GroupState.COMPLETING_REBALANCE, f"{group} was validated"
        if member.awaiting_sync is not None:
            # Asked twice: the first request timed out on the member's side.
            again = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            self.rebalance.answers.add(member.awaiting_sync, again)
        member.awaiting_sync = answer
        step = self._assign(group, request) if group.leader_id == member.member_id else Step()
        self.rebalance.answers.give()
        return step

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Note that a member lives; tell it to join again while the group rebalances."""
        bridge = self._bridge(self._shard.groups.get(request.group_id))
        if bridge is not None:
            return bridge.heartbeat(request)
        try:
            group = self._member_group(request.group_id)
            group.validate_member(request.member_id, request.group_instance_id)
        except ApiError as error:
            return error.code
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if group.state is GroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self.rebalance.schedule_heartbeat(group, group.members[request.member_id])
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, request: LeaveGroupRequest) -> tuple[list[CoordinatorRecord], LeaveGroupResponse]:
        """Take members out, those that can be."""
        members = request.members
        found = self._shard.groups.get(request.group_id)
        bridge = self._bridge(found)
        if bridge is not None:
            return bridge.leave(request)
        if not isinstance(found, ClassicGroup):
            return [], LeaveGroupResponse(members=[_left(m, ErrorCode.UNKNOWN_MEMBER_ID) for m in members])
        results = [_left(member, self._leave(found, member)) for member in members]
        left = [each.member_id or each.group_instance_id or "" for each in results if not each.error_code]
        records = []
        if left:
            records = self.rebalance.after_removal(found, f"{', '.join(left)} left")
        self.rebalance.forget_if_unused(found)
        self.rebalance.answers.give()
        return records, LeaveGroupResponse(members=results)

    def note_commit(self, group_id: str, member_id: str) -> None:
        """Note that a member lives, since it commits offsets."""
        group = self._shard.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return
        member = group.members.get(member_id)
        if member is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self.rebalance.schedule_heartbeat(group, member)

    # Internals.

    def _groups(self) -> list[ClassicGroup]:
        return [group for group in self._shard.groups.values() if isinstance(group, ClassicGroup)]

    def _bridge(self, group: Group | None) -> ClassicRequests | None:
        """Who serves members of this group that speak the classic protocol, if it is of another kind."""
        return None if group is None else self._bridges.get(group.kind)

    def _member_group(self, group_id: str) -> ClassicGroup:
        found = self._shard.groups.get(group_id)
        if found is None or found.kind is not GroupType.CLASSIC:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        assert isinstance(found, ClassicGroup), f"{found} says that it is classic"
        return found

    def _validate_sync(self, group: ClassicGroup, request: SyncGroupRequest) -> None:
        group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        for said, real in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if said is not None and said != real:
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is GroupState.PREPARING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
        if group.state is GroupState.EMPTY:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)

    def _assign(self, group: ClassicGroup, request: SyncGroupRequest) -> Step:
        """Write the leader's assignment; it is everybody's once it is committed."""
        assignments = {each.member_id: each.assignment for each in request.assignments}
        generation_id = group.generation_id
        logger.info(
            "Group %s generation %d: the leader %s assigns to %d of %d members",
            group.group_id,
            generation_id,
            request.member_id,
            sum(member_id in assignments for member_id in group.members),
            len(group.members),
        )

        def on_written(code: ErrorCode) -> None:
            # The group may have begun to rebalance meanwhile, and may be another broker's.
            if group.state is GroupState.COMPLETING_REBALANCE and group.generation_id == generation_id:
                if code is ErrorCode.NONE:
                    self.rebalance.store_assignment(group, assignments)
                else:
                    self.rebalance.refuse_assignment(group, code)
                self.rebalance.answers.give()

        return Step([group.record(assignments)], on_written)

    def _leave(self, group: ClassicGroup, leaver: MemberIdentity) -> ErrorCode:
        member_id = leaver.member_id
        if member_id == UNKNOWN_MEMBER_ID:
            # An administrator removes a static member by its instance id alone.
            present = group.static_members.get(leaver.group_instance_id or "")
            if present is None or leaver.group_instance_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = present
        elif member_id in group.pending_join:
            group.remove(member_id)
            self.rebalance.cancel_expiry(group, member_id)
            return ErrorCode.NONE
        else:
            try:
                group.validate_member(member_id, leaver.group_instance_id)
            except ApiError as error:
                return error.code
        member: ClassicMember = group.members[member_id]
        reason = leaver.reason or "no reason given"
        logger.info("Group %s: %s leaves: %s", group.group_id, member.member_id, reason)
        self.rebalance.remove_member(group, member)
        return ErrorCode.NONE


def _left(member: MemberIdentity, code: ErrorCode) -> MemberResponse:
    return MemberResponse(
        member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
    )
