"""JoinGroup: who may become or stay a member, and what it does to the group.

New dynamic members of JoinGroup version 4 and above are given an id first and join again with it, so that
one whose answer was lost does not leave a ghost behind (KIP-394); older clients would take that for an error.
Static members that come back without an id replace their former self; if nothing else changes, the group does
not rebalance (KIP-345, KIP-814).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.classic.classic_group import UNKNOWN_MEMBER_ID, ClassicGroup, GroupState
from kalda.coordinator.group.classic.classic_member import ClassicMember
from kalda.coordinator.group.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS, Rebalance
from kalda.coordinator.group.shard import GroupShard
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kalda.protocol.messages.sync_group import SyncGroupResponse

__all__ = ["Joining", "OnWritten", "Requester", "Step"]

logger: Final = logging.getLogger(__name__)

REQUIRES_MEMBER_ID_FROM: Final = 4
SKIPS_ASSIGNMENT_FROM: Final = 9

OnWritten: TypeAlias = Callable[[ErrorCode], None]
"""Called with NONE when the records of a step are committed, else with why they are not."""


@dataclass(frozen=True, slots=True)
class Requester:
    """Who sends a request, and in which version."""

    client_id: str
    client_host: str
    api_version: int


@dataclass(frozen=True, slots=True)
class Step:
    """What an operation writes, and what it does when that is committed or has failed."""

    records: Sequence[CoordinatorRecord] = ()
    on_written: OnWritten | None = None


class Joining:
    """JoinGroup for the classic groups of one shard."""

    def __init__(self, shard: GroupShard, rebalance: Rebalance, new_id: Callable[[], str]) -> None:
        self._shard: Final = shard
        self._rebalance: Final = rebalance
        self._new_id: Final = new_id

    def join(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        requester: Requester,
        answer: Pending[JoinGroupResponse],
    ) -> Step:
        """Join or join again; `answer` is given now, or when the generation begins."""
        member_id = request.member_id
        protocols = {protocol.name: protocol.metadata for protocol in request.protocols}
        if not self._has_room(group, member_id):
            group.remove(member_id)
            self._refuse(answer, ErrorCode.GROUP_MAX_SIZE_REACHED)
            return Step(self._rebalance.maybe_complete_join(group))
        if not group.supports(request.protocol_type, protocols):
            self._refuse(answer, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
            return Step()
        if member_id == UNKNOWN_MEMBER_ID:
            return self._join_new(group, request, protocols, requester, answer)
        if member_id in group.pending_join and request.group_instance_id is None:
            logger.info("Group %s: %s joins with the id it was given", group.group_id, member_id)
            return self._add(group, request, protocols, requester, member_id, answer)
        return self._join_again(group, request, protocols, answer)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether `group.max.size` lets this member in.

        While the group prepares, those count who wait: the size may be above a limit that was lowered, and
        then the last ones to join again are turned away.
        """
        size_max = self._shard.config.group_max_size
        if group.state is GroupState.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            is_waiting = member is not None and member.awaiting_join is not None
            return is_waiting or group.members_awaiting_join < size_max
        return member is not None or len(group.members) < size_max

    # New members.

    def _join_new(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        requester: Requester,
        answer: Pending[JoinGroupResponse],
    ) -> Step:
        instance_id = request.group_instance_id
        prefix = requester.client_id if instance_id is None else instance_id
        new_member_id = f"{prefix}-{self._new_id()}"
        if instance_id is not None:
            present = group.static_members.get(instance_id)
            if present is not None:
                logger.info(
                    "Group %s in state %s: static member %s comes back, %s replaces %s",
                    group.group_id,
                    group.state_name,
                    instance_id,
                    new_member_id,
                    present,
                )
                old = group.members[present]
                return self._replace_static(group, request, protocols, requester, old, new_member_id, answer)
        elif requester.api_version >= REQUIRES_MEMBER_ID_FROM:
            group.pending_join.add(new_member_id)
            self._rebalance.schedule_expiry(group, new_member_id, request.session_timeout_ms)
            self._refuse(answer, ErrorCode.MEMBER_ID_REQUIRED, new_member_id)
            return Step()
        return self._add(group, request, protocols, requester, new_member_id, answer)

    def _add(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        requester: Requester,
        member_id: str,
        answer: Pending[JoinGroupResponse],
    ) -> Step:
        member = ClassicMember(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=requester.client_id,
            client_host=requester.client_host,
            rebalance_timeout_ms=_rebalance_timeout_ms(request),
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=protocols,
        )
        member.is_new = True
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member, answer)
        self._rebalance.schedule_heartbeat(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return Step(
            self._rebalance.prepare_or_complete(group, f"{member_id} joins; {_reason(request)}"),
        )

    # Members that join again.

    def _join_again(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        answer: Pending[JoinGroupResponse],
    ) -> Step:
        member_id = request.member_id
        try:
            group.validate_member(member_id, request.group_instance_id)
        except ApiError as error:
            self._refuse(answer, error.code, member_id)
            return Step()
        member = group.members[member_id]
        is_stable = group.state is GroupState.STABLE
        changes_nothing = member.matches(protocols) and not (is_stable and group.leader_id == member_id)
        if changes_nothing and group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            # It may have missed the answer. A leader of a stable group wants a rebalance, though: it saw
            # a change that does not show in what it sends, such as new partitions.
            self._rebalance.answers.add(answer, self._rebalance.generation_for(group, member))
            return Step()
        self._update(group, member, request, protocols, answer)
        reason = f"{member_id} joins again; {_reason(request)}"
        return Step(self._rebalance.prepare_or_complete(group, reason))

    def _update(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        answer: Pending[JoinGroupResponse],
    ) -> None:
        group.update(member, protocols, _rebalance_timeout_ms(request), request.session_timeout_ms)
        # A member asks twice when its first request timed out on its side; answers on one connection go
        # out in order, so the first must not wait for ever.
        self._rebalance.answer_join(
            group,
            member,
            JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id),
        )
        group.set_awaiting_join(member, answer)

    # Static members that come back.

    def _replace_static(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        requester: Requester,
        old: ClassicMember,
        new_member_id: str,
        answer: Pending[JoinGroupResponse],
    ) -> Step:
        old_leader = group.leader_id
        self._fence(group, old)
        member = group.replace_static(old, new_member_id)
        self._rebalance.cancel_expiry(group, old.member_id)
        self._update(group, member, request, protocols, answer)
        self._rebalance.schedule_heartbeat(group, member)
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may have been told the old id, and would assign to it.
            reason = f"static member {member.instance_id} comes back; {_reason(request)}"
            return Step(self._rebalance.prepare(group, reason))
        if group.state is not GroupState.STABLE:
            return Step(self._rebalance.maybe_complete_join(group))
        if group.select_protocol() != group.protocol_name:
            reason = f"static member {member.instance_id} comes back and changes the protocol"
            return Step(self._rebalance.prepare_or_complete(group, reason))
        logger.info("Group %s: static member %s keeps its part", group.group_id, member.instance_id)

        def on_written(code: ErrorCode) -> None:
            if code is not ErrorCode.NONE:
                self._undo_replacement(group, old, member, answer, code)
            elif member.awaiting_join is answer:
                self._answer_replacement(group, member, requester, old_leader)
            self._rebalance.answers.give()

        return Step([group.record()], on_written)

    def _fence(self, group: ClassicGroup, old: ClassicMember) -> None:
        """End what the former self of a static member waits for."""
        self._rebalance.answer_join(
            group,
            old,
            JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=old.member_id),
        )
        if old.awaiting_sync is not None:
            self._rebalance.answers.add(
                old.awaiting_sync, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID)
            )
            old.awaiting_sync = None

    def _answer_replacement(
        self, group: ClassicGroup, member: ClassicMember, requester: Requester, old_leader: str | None
    ) -> None:
        response = self._rebalance.generation_for(group, member)
        if requester.api_version >= SKIPS_ASSIGNMENT_FROM:
            response.skip_assignment = member.member_id == group.leader_id
        else:
            # One that believes to lead would assign, and nobody waits for an assignment: let it follow.
            response.leader = old_leader or ""
            response.members = []
        self._rebalance.answer_join(group, member, response)

    def _undo_replacement(
        self,
        group: ClassicGroup,
        old: ClassicMember,
        member: ClassicMember,
        answer: Pending[JoinGroupResponse],
        code: ErrorCode,
    ) -> None:
        """The log does not know the new id: go back to the old one, unless the group has moved on."""
        if member.awaiting_join is not answer:
            return
        self._rebalance.answer_join(group, member, JoinGroupResponse(error_code=code))
        if group.state is not GroupState.STABLE or group.members.get(member.member_id) is not member:
            return
        logger.warning(
            "Group %s: %s cannot be stored in place of %s: %s",
            group.group_id,
            member.member_id,
            old.member_id,
            code.name,
        )
        group.update(member, old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms)
        self._rebalance.cancel_expiry(group, member.member_id)
        self._rebalance.schedule_heartbeat(group, group.replace_static(member, old.member_id))

    def _refuse(
        self, answer: Pending[JoinGroupResponse], code: ErrorCode, member_id: str = UNKNOWN_MEMBER_ID
    ) -> None:
        self._rebalance.answers.add(answer, JoinGroupResponse(error_code=code, member_id=member_id))


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Version 0 has one time-out for both."""
    if request.rebalance_timeout_ms < 0:
        return request.session_timeout_ms
    return request.rebalance_timeout_ms


def _reason(request: JoinGroupRequest) -> str:
    return f"client reason: {request.reason or 'not provided'}"
