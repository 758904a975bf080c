"""Moves a classic group from one generation to the next.

    Empty --join--> PreparingRebalance --all joined, or time is up--> CompletingRebalance
    CompletingRebalance --the leader's assignment is committed--> Stable
    Stable, CompletingRebalance --a member joins, leaves or changes--> PreparingRebalance
    PreparingRebalance --all members gone--> Empty

This is a state machine over `ClassicGroup`. The shard's context provides the clock and runs the timers, each
as an operation that may return records to write. Responses leave through `Answers` at the end of an
operation, so that the callback of a response sees a consistent group. What must not break: every waiting
request is answered once, and every member waits for a response, has a session timer, or both.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from kalda.common import invariants
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.classic.classic_group import ClassicGroup, GroupState
from kalda.coordinator.group.classic.classic_member import NO_ASSIGNMENT, ClassicMember
from kalda.coordinator.group.group_shard_state import GroupShardState
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.events.event import EventId, EventKind
from kalda.protocol.messages.join_group import JoinGroupResponse
from kalda.protocol.messages.sync_group import SyncGroupResponse

logger: Final = logging.getLogger(__name__)

T = TypeVar("T")

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60_000
"""How long a new member may wait for its first generation. It cannot send heartbeats yet, so a failure would
go unnoticed; a member that still lives joins again."""


class Answers:
    """Responses that an operation has decided and not sent yet."""

    def __init__(self) -> None:
        self._decided: list[tuple[Pending[Any], Any]] = []

    def add(self, waiting: Pending[T], response: T) -> None:
        """Add a response to send when the operation ends."""
        self._decided.append((waiting, response))

    def give(self) -> None:
        """Send all responses, including those that are added meanwhile."""
        while self._decided:
            decided, self._decided = self._decided, []
            for waiting, response in decided:
                if not waiting.is_done:
                    # Otherwise the request has failed, and its error was the response.
                    waiting.complete(response)


class Rebalance:
    """Moves the classic groups of one shard; methods return the records to write."""

    def __init__(self, shard: GroupShardState, completed_rebalance: Callable[[], None]) -> None:
        self._shard: Final = shard
        self._completed_rebalance: Final = completed_rebalance
        self.answers: Final = Answers()
        self._cause: EventId | None = None
        """The event of the member that begins the next rebalance."""

    # Towards the next generation.

    def prepare_or_complete(self, group: ClassicGroup, reason: str) -> list[CoordinatorRecord]:
        """Begin a rebalance, or complete the current one if all members have joined."""
        if group.can_rebalance:
            return self.prepare(group, reason)
        return self.maybe_complete_join(group)

    def prepare(self, group: ClassicGroup, reason: str) -> list[CoordinatorRecord]:
        """Begin a rebalance: all members must join again. An empty group first waits for more members."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._propagate_failure(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        context = self._shard.context
        context.cancel(_sync_timer(group.group_id))
        is_initial = group.state is GroupState.EMPTY
        if is_initial:
            delay_ms = self._shard.config.group_initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._schedule_initial(group.group_id, delay_ms, remaining_ms)
        group.enter(GroupState.PREPARING_REBALANCE, context.time_ms())
        logger.info(
            "Preparing to rebalance group %s with old generation %d: %s",
            group.group_id,
            group.generation_id,
            reason,
        )
        self._shard.events.emit(
            EventKind.GROUP_REBALANCING,
            {"group": group.group_id},
            {
                "reason": reason,
                "generation": group.generation_id,
                "members": len(group.members),
                "protocol": "classic",
            },
            cause=self._cause,
        )
        self._cause = None
        if is_initial:
            return []
        if group.all_joined:
            return self.complete_join(group)
        self._schedule_join(group)
        return []

    def maybe_complete_join(self, group: ClassicGroup) -> list[CoordinatorRecord]:
        """Begin the next generation if all members joined; from an empty group only its timer does."""
        if (
            group.state is not GroupState.PREPARING_REBALANCE
            or group.previous_state is GroupState.EMPTY
            or not group.all_joined
        ):
            return []
        return self.complete_join(group)

    def complete_join(self, group: ClassicGroup) -> list[CoordinatorRecord]:
        """Begin the next generation with the members that joined; absent static members stay.

        If nobody joined and static members remain, wait for another round instead.
        """
        context = self._shard.context
        context.cancel(_join_timer(group.group_id))
        absent = [m for m in group.members.values() if m.awaiting_join is None and not m.is_static]
        for member in absent:
            group.remove(member.member_id)
            context.cancel(_heartbeat_timer(group.group_id, member.member_id))
        if absent:
            names = ", ".join(member.member_id for member in absent)
            for member in absent:
                self.note_member(
                    EventKind.MEMBER_FAILED,
                    group,
                    member,
                    f"it did not join again within max.poll.interval.ms={member.rebalance_timeout_ms}",
                )
            self._cause = None
            logger.info("Group %s continues without the members that did not join: %s", group.group_id, names)
        if group.members and not group.elect_joined_leader():
            # All members are static and absent; they stay until their sessions expire.
            logger.warning("Group %s: no member joined, waiting for another round", group.group_id)
            self._schedule_join(group)
            return []
        group.begin_generation(context.time_ms())
        if not group.members:
            logger.info("Group %s with generation %d is empty", group.group_id, group.generation_id)
            return [group.record()]
        logger.info(
            "Group %s generation %d has %d members, led by %s",
            group.group_id,
            group.generation_id,
            len(group.members),
            group.leader_id,
        )
        for member in group.members.values():
            self.answer_join(group, member, self.generation_for(group, member))
            self.schedule_heartbeat(group, member)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        context.schedule(
            _sync_timer(group.group_id),
            group.rebalance_timeout_ms,
            partial(self._on_sync_timer, group.group_id, group.generation_id),
        )
        return []

    def generation_for(self, group: ClassicGroup, member: ClassicMember) -> JoinGroupResponse:
        """Return a member's JoinGroup response; the leader's has the metadata of all members."""
        return JoinGroupResponse(
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader_id or "",
            member_id=member.member_id,
            members=group.joined_members() if member.member_id == group.leader_id else [],
        )

    # The assignment.

    def assignment_committed(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        """Send all members their part of the assignment, which was committed; the group becomes stable."""
        assert group.state is GroupState.COMPLETING_REBALANCE, f"{group} expects no assignment"
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, NO_ASSIGNMENT)
            self._answer_sync(group, member, group.assignment_of(member))
        group.enter(GroupState.STABLE, self._shard.context.time_ms())
        self._shard.events.emit(
            EventKind.GROUP_STABLE,
            {"group": group.group_id},
            {"generation": group.generation_id, "members": len(group.members), "protocol": "classic"},
        )
        self._completed_rebalance()

    def assignment_write_failed(self, group: ClassicGroup, code: ErrorCode) -> None:
        """Begin a rebalance, because the assignment could not be written."""
        self._propagate_failure(group, code)
        records = self.prepare_or_complete(group, f"the assignment could not be stored: {code.name}")
        assert not records, "a group with members writes nothing before its assignment"

    def _propagate_failure(self, group: ClassicGroup, code: ErrorCode) -> None:
        for member in group.members.values():
            member.assignment = NO_ASSIGNMENT
            self._answer_sync(group, member, SyncGroupResponse(error_code=code))

    # Members that leave.

    def remove_member(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Remove a member and fail its waiting requests; the caller calls `after_removal` next."""
        self.answer_both(group, member, ErrorCode.UNKNOWN_MEMBER_ID, member_id="")
        group.remove(member.member_id)
        self._shard.context.cancel(_heartbeat_timer(group.group_id, member.member_id))

    def after_removal(self, group: ClassicGroup, reason: str) -> list[CoordinatorRecord]:
        """Begin or complete a rebalance after members were removed."""
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self.prepare_or_complete(group, reason)
        return self.maybe_complete_join(group)

    def forget_if_unused(self, group: ClassicGroup) -> None:
        """Delete a group that has no record in the log and no members or pending ids."""
        if (
            group.state is GroupState.EMPTY
            and group.generation_id == 0
            and not group.pending_join
            and group.protocol_type is None
            and not self._shard.offsets.has_any(group.group_id)
            and self._shard.groups.get(group.group_id) is group
        ):
            del self._shard.groups[group.group_id]

    def note_member(self, kind: str, group: ClassicGroup, member: ClassicMember, reason: str) -> None:
        """Emit what a member did; it is the cause of the rebalance that begins next."""
        self._cause = self._shard.events.emit(
            kind,
            {"group": group.group_id, "member": member.member_id, "client": member.client_id},
            {"reason": reason, "host": member.client_host, "instance_id": member.instance_id},
        )

    # Answers.

    def answer_join(self, group: ClassicGroup, member: ClassicMember, response: JoinGroupResponse) -> None:
        """Answer the JoinGroup that a member waits for, if any."""
        if member.awaiting_join is not None:
            self.answers.add(member.awaiting_join, response)
            group.set_awaiting_join(member, None)

    def answer_both(
        self, group: ClassicGroup, member: ClassicMember, code: ErrorCode, member_id: str | None = None
    ) -> None:
        """Answer the JoinGroup and the SyncGroup that a member waits for, if any, with an error."""
        named = member.member_id if member_id is None else member_id
        self.answer_join(group, member, JoinGroupResponse(error_code=code, member_id=named))
        if member.awaiting_sync is not None:
            self.answers.add(member.awaiting_sync, SyncGroupResponse(error_code=code))
            member.awaiting_sync = None

    def _answer_sync(self, group: ClassicGroup, member: ClassicMember, response: SyncGroupResponse) -> None:
        if member.awaiting_sync is not None:
            self.answers.add(member.awaiting_sync, response)
            member.awaiting_sync = None
            # The session timer may have fired while the member waited, without effect.
            self.schedule_heartbeat(group, member)

    # Timers.

    def schedule_heartbeat(
        self, group: ClassicGroup, member: ClassicMember, timeout_ms: int | None = None
    ) -> None:
        """Start or prolong a member's session."""
        self.schedule_expiry(
            group, member.member_id, member.session_timeout_ms if timeout_ms is None else timeout_ms
        )

    def schedule_expiry(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Start the timer that removes a member or a pending member id."""
        self._shard.context.schedule(
            _heartbeat_timer(group.group_id, member_id),
            timeout_ms,
            partial(self._on_heartbeat_timer, group.group_id, member_id),
        )

    def cancel_expiry(self, group: ClassicGroup, member_id: str) -> None:
        """Cancel the session timer of a member."""
        self._shard.context.cancel(_heartbeat_timer(group.group_id, member_id))

    def _schedule_join(self, group: ClassicGroup) -> None:
        self._shard.context.schedule(
            _join_timer(group.group_id),
            group.rebalance_timeout_ms,
            partial(self._on_join_timer, group.group_id),
        )

    def _schedule_initial(self, group_id: str, delay_ms: int, remaining_ms: int) -> None:
        self._shard.context.schedule(
            _join_timer(group_id),
            delay_ms,
            partial(self._on_initial_timer, group_id, delay_ms, remaining_ms),
        )

    def _on_join_timer(self, group_id: str) -> Result[None]:
        group = self._classic(group_id)
        if group is None or group.state is not GroupState.PREPARING_REBALANCE:
            return _NOTHING
        return self._end(group, self.complete_join(group))

    def _on_initial_timer(self, group_id: str, delay_ms: int, remaining_ms: int) -> Result[None]:
        group = self._classic(group_id)
        if group is None or group.state is not GroupState.PREPARING_REBALANCE:
            return _NOTHING
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            next_ms = min(self._shard.config.group_initial_rebalance_delay_ms, remaining_ms)
            self._schedule_initial(group_id, next_ms, max(remaining_ms - delay_ms, 0))
            return _NOTHING
        return self._end(group, self.complete_join(group))

    def _on_sync_timer(self, group_id: str, generation_id: int) -> Result[None]:
        group = self._classic(group_id)
        if group is None or group.generation_id != generation_id or not group.pending_sync:
            return _NOTHING
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return _NOTHING
        absent = sorted(group.pending_sync)
        for member_id in absent:
            self.note_member(
                EventKind.MEMBER_FAILED, group, group.members[member_id], "it did not sync in time"
            )
            self.remove_member(group, group.members[member_id])
        return self._end(group, self.prepare(group, f"{', '.join(absent)} did not sync in time"))

    def _on_heartbeat_timer(self, group_id: str, member_id: str) -> Result[None]:
        group = self._classic(group_id)
        if group is None:
            return _NOTHING
        if member_id in group.pending_join:
            logger.info("Group %s: %s was given an id and did not come back", group_id, member_id)
            group.remove(member_id)
            records = self.maybe_complete_join(group)
            self.forget_if_unused(group)
            return self._end(group, records)
        member = group.members.get(member_id)
        if member is None or member.has_satisfied_heartbeat:
            return _NOTHING
        logger.info("Group %s: member %s failed, its session is over", group_id, member_id)
        reason = f"it sent no heartbeat for session.timeout.ms={member.session_timeout_ms}"
        self.note_member(EventKind.MEMBER_FAILED, group, member, reason)
        self.remove_member(group, member)
        return self._end(group, self.after_removal(group, f"{member_id} sent no heartbeat"))

    def _classic(self, group_id: str) -> ClassicGroup | None:
        group = self._shard.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def end_operation(self, group: ClassicGroup) -> None:
        """Send the responses that an operation on the group has decided; the group is consistent now."""
        # What a member did without a rebalance is no cause of a later one, which may be another group's.
        self._cause = None
        if invariants.enabled:
            self.check_invariants(group)
        self.answers.give()

    def check_invariants(self, group: ClassicGroup) -> None:
        """Assert that the group is consistent, and that exactly those timers run that its state needs."""
        group.check_invariants()
        is_scheduled, group_id = self._shard.context.is_scheduled, group.group_id
        prepares = group.state is GroupState.PREPARING_REBALANCE
        assert prepares == is_scheduled(_join_timer(group_id)), (
            f"{group}: the join timer {'does not run' if prepares else 'runs'}"
        )
        assert not is_scheduled(_sync_timer(group_id)) or group.state in (
            GroupState.COMPLETING_REBALANCE,
            GroupState.STABLE,
        ), f"{group}: the sync timer runs"
        for member_id in (*group.members, *group.pending_join):
            member = group.members.get(member_id)
            assert (
                member is not None and (member.awaiting_join or member.awaiting_sync) is not None
            ) or is_scheduled(_heartbeat_timer(group_id, member_id)), (
                f"{group}: {member_id} neither waits nor has a session"
            )

    def _end(self, group: ClassicGroup, records: list[CoordinatorRecord]) -> Result[None]:
        self.end_operation(group)
        return Result(records, None)


_NOTHING: Final[Result[None]] = Result((), None)


def _join_timer(group_id: str) -> str:
    return f"join:{group_id}"


def _sync_timer(group_id: str) -> str:
    return f"sync:{group_id}"


def _heartbeat_timer(group_id: str, member_id: str) -> str:
    return f"heartbeat:{group_id}:{member_id}"
