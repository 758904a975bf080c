"""Serves JoinGroup, SyncGroup, Heartbeat and LeaveGroup for the classic groups of one shard.

Each operation runs inside one write of the runtime and leaves the group in order. What it decides about other
members' requests is sent at its end (`Answers`). What must wait for the log, which is an assignment or a
static member's new id, is sent from `Result.on_written`.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.classic.classic_group import UNKNOWN_MEMBER_ID, ClassicGroup, GroupState
from kalda.coordinator.group.classic.classic_member import ClassicMember
from kalda.coordinator.group.classic.join import Joining, Requester
from kalda.coordinator.group.classic.rebalance import Rebalance
from kalda.coordinator.group.group_shard_state import GroupShardState
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.events.event import EventKind
from kalda.protocol.messages.heartbeat import HeartbeatRequest
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kalda.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from kalda.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

logger: Final = logging.getLogger(__name__)

ASSIGNMENTS_BYTES_MAX: Final = 16 * 1024 * 1024
"""The assignments of a group are one record, of 1 MB at most by default. One of 90 MB was copied four times
before the log refused it."""


class ClassicProtocol:
    """Serves the requests of classic groups; `ClassicMembers` has the same methods for consumer groups."""

    def __init__(
        self,
        shard: GroupShardState,
        *,
        new_id: Callable[[], str],
        completed_rebalance: Callable[[], None] = lambda: None,
    ) -> None:
        self._shard: Final = shard
        self.rebalance: Final = Rebalance(shard, completed_rebalance)
        self._joining: Final = Joining(shard, self.rebalance, new_id)

    # Leadership of the shard.

    def on_loaded(self) -> None:
        """Expect a heartbeat of every member, shrink groups that are too large, go on with downgrades."""
        size_max = self._shard.config.group_max_size
        for group in self._groups():
            for member in group.members.values():
                self.rebalance.schedule_heartbeat(group, member)
            if len(group.members) > size_max:
                records = self.rebalance.prepare(group, f"loaded with more members than {size_max}")
                assert not records, "a group with members writes nothing before its assignment"
            elif group.members and group.leader_id is None:
                self.rebalance_downgraded(group)

    def on_unloaded(self) -> None:
        """Answer all waiting requests with NOT_COORDINATOR: another broker is the coordinator now."""
        for group in self._groups():
            for member in group.members.values():
                self.rebalance.answer_both(group, member, ErrorCode.NOT_COORDINATOR)
            group.enter(GroupState.DEAD, group.state_timestamp_ms)
        self.rebalance.answers.give()

    def rebalance_downgraded(self, group: ClassicGroup) -> None:
        """Have the members of a group that was a consumer group join again, soon."""
        for member in group.members.values():
            self.rebalance.schedule_heartbeat(group, member)
        key = f"consumer-downgraded/{group.group_id}"
        self._shard.context.schedule(key, 0, partial(self._rebalance_downgraded, group.group_id))

    def _rebalance_downgraded(self, group_id: str) -> Result[None]:
        group = self._shard.groups.get(group_id)
        if not isinstance(group, ClassicGroup) or group.state is not GroupState.STABLE:
            return Result((), None)
        records = self.rebalance.prepare(group, "it was a consumer group")
        self.rebalance.end_operation(group)
        return Result(records, None)

    # Requests.

    def join(self, request: JoinGroupRequest, requester: Requester) -> Result[JoinGroupResponse]:
        """Join a group; a request without a member id creates a group that does not exist."""
        group = self._shard.groups.get(request.group_id)
        if group is None and request.member_id == UNKNOWN_MEMBER_ID:
            group = ClassicGroup(request.group_id, self._shard.context.time_ms())
            self._shard.groups[request.group_id] = group
        if not isinstance(group, ClassicGroup):
            code = ErrorCode.UNKNOWN_MEMBER_ID if group is None else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            return Result((), Pending.of(JoinGroupResponse(error_code=code, member_id=request.member_id)))
        result = self._joining.join(group, request, requester)
        self.rebalance.forget_if_unused(group)
        self.rebalance.end_operation(group)
        return result

    def sync(self, request: SyncGroupRequest) -> Result[SyncGroupResponse]:
        """Return the member's assignment; the leader's request brings the assignments of all members."""
        try:
            group = self._member_group(request.group_id)
            self._validate_sync(group, request)
        except ApiError as error:
            return Result((), Pending.of(SyncGroupResponse(error_code=error.code)))
        member = group.members[request.member_id]
        group.pending_sync.discard(member.member_id)
        # The assignment of a stable group is committed: a member that missed the response gets it again.
        if group.state is GroupState.STABLE:
            return Result((), Pending.of(group.assignment_of(member)))
        assert group.state is GroupState.COMPLETING_REBALANCE, f"{group} was validated"
        if member.awaiting_sync is not None:
            # The first request timed out at the member, which sends it again.
            again = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            self.rebalance.answers.add(member.awaiting_sync, again)
        answer: Pending[SyncGroupResponse] = Pending()
        member.awaiting_sync = answer
        # Members wait until the leader's assignment is committed. One that was sent before could be lost with
        # this coordinator, and the next coordinator would give the partitions to others.
        result: Result[SyncGroupResponse] = Result((), answer)
        if group.leader_id == member.member_id:
            result = self._assign(group, request, answer)
        self.rebalance.end_operation(group)
        return result

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Prolong the member's session; answer REBALANCE_IN_PROGRESS while members must join again."""
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

    def leave(self, request: LeaveGroupRequest) -> Result[LeaveGroupResponse]:
        """Remove members; each that cannot be removed gets an error code of its own."""
        found = self._shard.groups.get(request.group_id)
        if not isinstance(found, ClassicGroup):
            unknown = [_left(member, ErrorCode.UNKNOWN_MEMBER_ID) for member in request.members]
            return Result((), LeaveGroupResponse(members=unknown))
        results = [_left(member, self._leave(found, member)) for member in request.members]
        left = [each.member_id or each.group_instance_id or "" for each in results if not each.error_code]
        records = []
        if left:
            records = self.rebalance.after_removal(found, f"{', '.join(left)} left")
        self.rebalance.forget_if_unused(found)
        self.rebalance.end_operation(found)
        return Result(records, LeaveGroupResponse(members=results))

    def note_commit(self, group_id: str, member_id: str) -> None:
        """Prolong the session of a member that commits offsets."""
        group = self._shard.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return
        member = group.members.get(member_id)
        if member is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self.rebalance.schedule_heartbeat(group, member)

    # Internals.

    def _groups(self) -> list[ClassicGroup]:
        return [group for group in self._shard.groups.values() if isinstance(group, ClassicGroup)]

    def _member_group(self, group_id: str) -> ClassicGroup:
        found = self._shard.groups.get(group_id)
        if not isinstance(found, ClassicGroup):
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
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

    def _assign(
        self, group: ClassicGroup, request: SyncGroupRequest, answer: Pending[SyncGroupResponse]
    ) -> Result[SyncGroupResponse]:
        """Write the leader's assignment; all members get their part when it is committed."""
        assignments = {each.member_id: each.assignment for each in request.assignments}
        size = sum(len(assignments.get(member_id, b"")) for member_id in group.members)
        if size > ASSIGNMENTS_BYTES_MAX:
            logger.warning(
                "Group %s: the assignment of the leader %s has %d bytes and is refused; %d are allowed",
                group.group_id,
                request.member_id,
                size,
                ASSIGNMENTS_BYTES_MAX,
            )
            # The error of a record that is too large for the log.
            self.rebalance.assignment_write_failed(group, ErrorCode.UNKNOWN_SERVER_ERROR)
            return Result((), answer)
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
            # The group may have begun another rebalance meanwhile, or may have moved to another broker.
            if group.state is GroupState.COMPLETING_REBALANCE and group.generation_id == generation_id:
                if code is ErrorCode.NONE:
                    self.rebalance.assignment_committed(group, assignments)
                else:
                    self.rebalance.assignment_write_failed(group, code)
                self.rebalance.end_operation(group)

        return Result([group.record(assignments)], answer, on_written)

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
        self.rebalance.note_member(EventKind.MEMBER_LEFT, group, member, reason)
        self.rebalance.remove_member(group, member)
        return ErrorCode.NONE


def _left(member: MemberIdentity, code: ErrorCode) -> MemberResponse:
    return MemberResponse(
        member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
    )
