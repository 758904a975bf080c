"""Decides JoinGroup: which clients become or stay members of a classic group, and how the group changes.

A new dynamic member of JoinGroup version 4 and above first gets a member id and joins again with it, so that
a client whose response was lost leaves no orphaned member behind (KIP-394); older clients would take
MEMBER_ID_REQUIRED for a failure. A static member that returns without a member id replaces its former self;
if nothing else changes, the group does not rebalance (KIP-345, KIP-814).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.classic.classic_group import UNKNOWN_MEMBER_ID, ClassicGroup, GroupState
from kalda.coordinator.group.classic.classic_member import ClassicMember, held_by
from kalda.coordinator.group.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS, Rebalance
from kalda.coordinator.group.group_shard_state import GroupShardState
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.events.event import EventKind
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

logger: Final = logging.getLogger(__name__)

REQUIRES_MEMBER_ID_FROM: Final = 4
SKIPS_ASSIGNMENT_FROM: Final = 9

_MEMBER_ID_PREFIX_MAX: Final = 1000
"""Characters of a client id or an instance id in a member id, which must fit in a string of a message."""


@dataclass(frozen=True, slots=True)
class Requester:
    """The client that sends a request, and the version of the request."""

    client_id: str
    client_host: str
    api_version: int


@dataclass(frozen=True, slots=True)
class _Join:
    """One JoinGroup under way; `answer` is completed now, or when the generation begins."""

    group: ClassicGroup
    request: JoinGroupRequest
    requester: Requester
    answer: Pending[JoinGroupResponse] = field(default_factory=Pending)

    @property
    def protocols(self) -> dict[str, bytes]:
        """The metadata of the protocols that the member supports, by name and in its order."""
        return {protocol.name: protocol.metadata for protocol in self.request.protocols}

    @property
    def rebalance_timeout_ms(self) -> int:
        """The rebalance timeout; version 0 has one timeout for session and rebalance."""
        timeout_ms = self.request.rebalance_timeout_ms
        return self.request.session_timeout_ms if timeout_ms < 0 else timeout_ms

    @property
    def reason(self) -> str:
        """The client's reason, for the log."""
        return f"client reason: {self.request.reason or 'not provided'}"


class Joining:
    """JoinGroup for the classic groups of one shard."""

    def __init__(self, shard: GroupShardState, rebalance: Rebalance, new_id: Callable[[], str]) -> None:
        self._shard: Final = shard
        self._rebalance: Final = rebalance
        self._new_id: Final = new_id

    def join(
        self, group: ClassicGroup, request: JoinGroupRequest, requester: Requester
    ) -> Result[JoinGroupResponse]:
        """Join for the first time or again."""
        join = _Join(group, request, requester)
        member_id = request.member_id
        if not self._has_room(group, member_id):
            group.remove(member_id)
            self._refuse(join, ErrorCode.GROUP_MAX_SIZE_REACHED)
            return Result(self._rebalance.maybe_complete_join(group), join.answer)
        if not group.supports(request.protocol_type, join.protocols):
            return self._refuse(join, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        try:
            self._require_memory(join)
        except ApiError as error:
            logger.warning("Group %s: %s", group.group_id, error)
            return self._refuse(join, error.code, member_id)
        if member_id == UNKNOWN_MEMBER_ID:
            return self._join_new(join)
        if member_id in group.pending_join and request.group_instance_id is None:
            logger.info("Group %s: %s joins with the id it was given", group.group_id, member_id)
            return self._add(join, member_id)
        return self._join_again(join)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Return whether `group.max.size` lets this member in.

        While the group prepares, only members that wait count: the group may be larger than a limit that was
        lowered, and then the last members to join again are refused.
        """
        size_max = self._shard.config.group_max_size
        if group.state is GroupState.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            is_waiting = member is not None and member.awaiting_join is not None
            return is_waiting or group.members_awaiting_join < size_max
        return member is not None or len(group.members) < size_max

    def _require_memory(self, join: _Join) -> None:
        """Raise `ApiError` if what the member adds to the group has no place."""
        group, request = join.group, join.request
        instance_id = request.group_instance_id
        member_id = request.member_id
        if not member_id and instance_id is not None:
            member_id = group.static_members.get(instance_id, member_id)
        member = group.members.get(member_id)
        wanted = held_by(member_id, instance_id, join.requester.client_id, join.protocols)
        growth = wanted - (member.held_bytes if member is not None else 0)
        self._shard.memory.require(group.group_id, group.held_bytes, growth, self._shard.context.time_ms())

    # New members.

    def _join_new(self, join: _Join) -> Result[JoinGroupResponse]:
        group, instance_id = join.group, join.request.group_instance_id
        prefix = join.requester.client_id if instance_id is None else instance_id
        new_member_id = f"{prefix[:_MEMBER_ID_PREFIX_MAX]}-{self._new_id()}"
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
                return self._replace_static(join, group.members[present], new_member_id)
        elif join.requester.api_version >= REQUIRES_MEMBER_ID_FROM:
            group.add_pending(new_member_id)
            self._rebalance.schedule_expiry(group, new_member_id, join.request.session_timeout_ms)
            return self._refuse(join, ErrorCode.MEMBER_ID_REQUIRED, new_member_id)
        return self._add(join, new_member_id)

    def _add(self, join: _Join, member_id: str) -> Result[JoinGroupResponse]:
        group, request = join.group, join.request
        member = ClassicMember(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=join.requester.client_id,
            client_host=join.requester.client_host,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=join.protocols,
        )
        member.is_new = True
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member, join.answer)
        self._rebalance.schedule_heartbeat(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        if group.can_rebalance:
            self._rebalance.note_member(EventKind.MEMBER_JOINED, group, member, "a new member")
        records = self._rebalance.prepare_or_complete(group, f"{member_id} joins; {join.reason}")
        return Result(records, join.answer)

    # Members that join again.

    def _join_again(self, join: _Join) -> Result[JoinGroupResponse]:
        group, member_id = join.group, join.request.member_id
        try:
            group.validate_member(member_id, join.request.group_instance_id)
        except ApiError as error:
            return self._refuse(join, error.code, member_id)
        member = group.members[member_id]
        is_stable = group.state is GroupState.STABLE
        changes_nothing = member.matches(join.protocols) and not (is_stable and group.leader_id == member_id)
        if changes_nothing and group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            # The member may have missed the response. The leader of a stable group asks for a rebalance,
            # though: it saw a change that its request does not show, such as new partitions.
            self._rebalance.answers.add(join.answer, self._rebalance.generation_for(group, member))
            return Result((), join.answer)
        self._update(join, member)
        reason = f"{member_id} joins again; {join.reason}"
        return Result(self._rebalance.prepare_or_complete(group, reason), join.answer)

    def _update(self, join: _Join, member: ClassicMember) -> None:
        group = join.group
        group.update(member, join.protocols, join.rebalance_timeout_ms, join.request.session_timeout_ms)
        # A member asks twice when its first request timed out on its side. Responses on one connection leave
        # in order, so the first must not wait for ever.
        self._rebalance.answer_join(
            group,
            member,
            JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id),
        )
        group.set_awaiting_join(member, join.answer)

    # Static members that return.

    def _replace_static(
        self, join: _Join, old: ClassicMember, new_member_id: str
    ) -> Result[JoinGroupResponse]:
        group, old_leader = join.group, join.group.leader_id
        reason = (
            f"{join.requester.client_id or 'a client without an id'} at {join.requester.client_host} joined "
            f"with the same group.instance.id={old.instance_id}"
        )
        self._rebalance.note_member(EventKind.MEMBER_REPLACED, group, old, reason)
        self._rebalance.answer_both(group, old, ErrorCode.FENCED_INSTANCE_ID)
        member = group.replace_static(old, new_member_id)
        self._rebalance.cancel_expiry(group, old.member_id)
        self._update(join, member)
        self._rebalance.schedule_heartbeat(group, member)
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may have been given the old id, and would assign to it.
            reason = f"static member {member.instance_id} comes back; {join.reason}"
            return Result(self._rebalance.prepare(group, reason), join.answer)
        if group.state is not GroupState.STABLE:
            return Result(self._rebalance.maybe_complete_join(group), join.answer)
        if group.select_protocol() != group.protocol_name:
            reason = f"static member {member.instance_id} comes back and changes the protocol"
            return Result(self._rebalance.prepare_or_complete(group, reason), join.answer)
        logger.info("Group %s: static member %s keeps its part", group.group_id, member.instance_id)
        on_written = partial(self._on_replacement_written, join, old, member, old_leader)
        return Result([group.record()], join.answer, on_written)

    def _on_replacement_written(
        self,
        join: _Join,
        old: ClassicMember,
        member: ClassicMember,
        old_leader: str | None,
        code: ErrorCode,
    ) -> None:
        if member.awaiting_join is not join.answer:
            # The group has moved on and answered the request.
            return
        group = join.group
        if code is not ErrorCode.NONE:
            self._undo_replacement(group, old, member, code)
        else:
            response = self._rebalance.generation_for(group, member)
            if join.requester.api_version >= SKIPS_ASSIGNMENT_FROM:
                response.skip_assignment = member.member_id == group.leader_id
            else:
                # A member that believes to lead would assign, and no member waits for an assignment.
                response.leader = old_leader or ""
                response.members = []
            self._rebalance.answer_join(group, member, response)
        self._rebalance.end_operation(group)

    def _undo_replacement(
        self, group: ClassicGroup, old: ClassicMember, member: ClassicMember, code: ErrorCode
    ) -> None:
        """Go back to the old member id, which is the one in the log, unless the group has moved on."""
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
        self, join: _Join, code: ErrorCode, member_id: str = UNKNOWN_MEMBER_ID
    ) -> Result[JoinGroupResponse]:
        response = JoinGroupResponse(error_code=code, member_id=member_id)
        self._rebalance.answers.add(join.answer, response)
        return Result((), join.answer)
