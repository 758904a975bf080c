"""Decides the requests of a member in the classic group protocol, and applies responses. Pure.

It covers JoinGroup, SyncGroup, Heartbeat, LeaveGroup and the errors of OffsetCommit. `ClassicMembership`
sends the requests, runs the assignors and calls the user's listener.

A response counts only for the generation in which its request was sent. A heartbeat that was sent before a
rebalance may get an error after it, which must not reset the new generation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kalda.clients.consumer.group.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    RebalanceInProgressError,
)
from kalda.clients.errors import ClientError, error_for
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.heartbeat import HeartbeatRequest
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kalda.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kalda.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

PROTOCOL_TYPE: Final = "consumer"
_REASON_LENGTH_MAX: Final = 255
"""Longer reasons are cut, as in Java (KIP-800)."""
_COORDINATOR_MOVED: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


class MemberState(Enum):
    """Where the member is in a rebalance."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    """JoinGroup is under way."""
    COMPLETING_REBALANCE = "completing rebalance"
    """SyncGroup is under way; heartbeats are due."""
    STABLE = "stable"


class Next(Enum):
    """The consequence of a response."""

    PROCEED = "proceed"
    JOIN_AGAIN = "join again"
    RETRY = "retry after a back-off"
    FIND_COORDINATOR = "find the coordinator, after a back-off"


@dataclass(frozen=True, slots=True)
class Generation:
    """The member's part in a generation of the group."""

    generation_id: int = -1
    member_id: str = ""
    protocol_name: str | None = None
    """The assignor that the group uses."""

    def __str__(self) -> str:
        return f"generation {self.generation_id} of {self.member_id or 'a member without id'}"


NO_GENERATION: Final = Generation()


class ClassicMember:
    """One member of one group."""

    def __init__(
        self, group_id: str, group_instance_id: str | None, session_timeout_ms: int, rebalance_timeout_ms: int
    ) -> None:
        self._group_id: Final = group_id
        self._instance_id: Final = group_instance_id
        self._session_timeout_ms: Final = session_timeout_ms
        self._rebalance_timeout_ms: Final = rebalance_timeout_ms
        self.state = MemberState.UNJOINED
        self.generation = NO_GENERATION
        self.last_generation = NO_GENERATION
        """The last one whose assignment this member got. It stays when the member is removed from the group,
        so that the coordinator refuses the offsets of records that were read in it."""
        self.needs_rejoin = True
        """Whether the next poll joins the group."""
        self.needs_prepare = True
        """Whether partitions must be revoked or given up before the next JoinGroup."""
        self._rejoin_reason = ""

    @property
    def is_static(self) -> bool:
        """Whether the member has a `group.instance.id` (KIP-345)."""
        return self._instance_id is not None

    @property
    def is_part_of_group(self) -> bool:
        """Whether heartbeats are due."""
        return self.state in (MemberState.COMPLETING_REBALANCE, MemberState.STABLE)

    @property
    def is_rebalancing(self) -> bool:
        """Whether JoinGroup or SyncGroup is under way."""
        return self.state in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)

    @property
    def has_lost_partitions(self) -> bool:
        """Whether other members may own this member's partitions: its generation was reset."""
        return self.generation.generation_id < 0 or not self.generation.member_id

    def request_rejoin(self, reason: str) -> None:
        """Have the next poll join the group; the coordinator logs the reason."""
        logger.info("Group %s: joining because %s.", self._group_id, reason)
        self._rejoin_reason = reason
        self.needs_rejoin = True

    # Joining

    def join_request(self, protocols: Sequence[tuple[str, bytes]]) -> JoinGroupRequest:
        """Begin to join with the subscriptions of all assignors, best first."""
        self.state = MemberState.PREPARING_REBALANCE
        return JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.generation.member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
            reason=self._rejoin_reason[:_REASON_LENGTH_MAX],
        )

    def on_join_response(self, response: JoinGroupResponse, sent: Generation) -> Next:
        """Process the answer to JoinGroup; after `PROCEED`, SyncGroup follows.

        Raises:
            ClientError: the member cannot join, and trying again does not help.
        """
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            if response.protocol_type not in (None, PROTOCOL_TYPE):
                raise InconsistentGroupProtocolError(
                    f"group {self._group_id} is of type {response.protocol_type!r}, not {PROTOCOL_TYPE!r}"
                )
            if self.state is not MemberState.PREPARING_REBALANCE:
                # The member left while it joined.
                return Next.RETRY
            self.state = MemberState.COMPLETING_REBALANCE
            self.generation = Generation(response.generation_id, response.member_id, response.protocol_name)
            return Next.PROCEED
        self.needs_rejoin = True
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            # The coordinator gives an id first, so that lost answers leave no members behind (KIP-394).
            self.generation = Generation(member_id=response.member_id)
            self._rejoin_reason = "need to re-join with the given member-id"
            return Next.JOIN_AGAIN
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._reset_after(code, sent)
            return Next.JOIN_AGAIN
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return Next.JOIN_AGAIN
        if code in _COORDINATOR_MOVED:
            return Next.FIND_COORDINATOR
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return Next.RETRY
        raise self._fatal(code, "JoinGroup")

    def sync_request(self, assignments: Mapping[str, bytes]) -> SyncGroupRequest:
        """Return a SyncGroup request for this member's assignment; the leader's has all assignments."""
        return SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self.generation.generation_id,
            member_id=self.generation.member_id,
            group_instance_id=self._instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.generation.protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=data)
                for member_id, data in assignments.items()
            ],
        )

    def on_sync_response(self, response: SyncGroupResponse, sent: Generation) -> Next:
        """Process the answer to SyncGroup; after `PROCEED`, the response has the assignment.

        Raises:
            ClientError: the member cannot join, and trying again does not help.
        """
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            if self.state is not MemberState.COMPLETING_REBALANCE or self.generation != sent:
                # A heartbeat was refused meanwhile.
                self.needs_rejoin = True
                return Next.JOIN_AGAIN
            if response.protocol_type not in (None, PROTOCOL_TYPE) or (
                response.protocol_name not in (None, self.generation.protocol_name)
            ):
                raise InconsistentGroupProtocolError(
                    f"group {self._group_id} answered SyncGroup with {response.protocol_name!r}, "
                    f"JoinGroup with {self.generation.protocol_name!r}"
                )
            self.state = MemberState.STABLE
            self.last_generation = self.generation
            self.needs_rejoin = False
            self.needs_prepare = True
            self._rejoin_reason = ""
            return Next.PROCEED
        self.needs_rejoin = True
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return Next.JOIN_AGAIN
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._reset_after(code, sent)
            return Next.JOIN_AGAIN
        if code in _COORDINATOR_MOVED:
            return Next.FIND_COORDINATOR
        raise self._fatal(code, "SyncGroup")

    # Heartbeats

    def heartbeat_request(self) -> HeartbeatRequest:
        """Build a heartbeat."""
        return HeartbeatRequest(
            group_id=self._group_id,
            generation_id=self.generation.generation_id,
            member_id=self.generation.member_id,
            group_instance_id=self._instance_id,
        )

    def on_heartbeat_response(self, error_code: int, sent: Generation) -> Next:
        """Process the answer to a heartbeat; `JOIN_AGAIN` means that the next poll joins.

        Raises:
            ClientError: the member was replaced by another one with its instance id, or may not be in the
                group.
        """
        code = ErrorCode.of(error_code)
        if code is ErrorCode.NONE:
            return Next.PROCEED
        if code in _COORDINATOR_MOVED:
            return Next.FIND_COORDINATOR
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return Next.RETRY
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if self.state is not MemberState.STABLE:
                return Next.PROCEED
            self.request_rejoin("group is already rebalancing")
            return Next.JOIN_AGAIN
        if code in (
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        ):
            if self.generation != sent:
                return Next.PROCEED
            self._reset_after(code, sent)
            if code is ErrorCode.FENCED_INSTANCE_ID:
                raise self._fatal(code, "Heartbeat")
            return Next.JOIN_AGAIN
        raise self._fatal(code, "Heartbeat")

    # Commits

    def commit_generation(self) -> Generation:
        """Return the generation to commit in.

        Raises:
            RebalanceInProgressError: the member is joining.
            CommitFailedError: the member is not in the group.
        """
        if self.state is MemberState.STABLE:
            return self.generation
        if self.is_rebalancing:
            raise RebalanceInProgressError("offsets cannot be committed while the consumer joins its group")
        raise CommitFailedError(
            f"the consumer is not part of group {self._group_id}; it was probably removed from it"
        )

    def on_commit_refused(self, code: ErrorCode, sent: Generation) -> ClientError:
        """Process an error of OffsetCommit that concerns the membership; return what to raise."""
        is_current = self.generation == sent
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.request_rejoin("offset commit failed since group is already rebalancing")
            return RebalanceInProgressError("offsets cannot be committed while the group rebalances")
        if not is_current and self.state is MemberState.PREPARING_REBALANCE:
            return RebalanceInProgressError(
                "offsets of an older generation cannot be committed, the consumer is joining again"
            )
        if code is ErrorCode.FENCED_INSTANCE_ID:
            if is_current:
                return self._fatal(code, "OffsetCommit")
            return CommitFailedError(f"another consumer has joined as {self._instance_id}")
        self._reset_after(code, sent)
        return CommitFailedError(f"{code.name}: {code.message.rstrip('.')}")

    # Leaving

    def leave_request(self, version: int, reason: str) -> LeaveGroupRequest:
        """Build the request that takes this member out of the group."""
        member_id = self.generation.member_id
        if version < 3:
            return LeaveGroupRequest(group_id=self._group_id, member_id=member_id)
        member = MemberIdentity(member_id=member_id, reason=reason[:_REASON_LENGTH_MAX])
        return LeaveGroupRequest(group_id=self._group_id, members=[member])

    @property
    def can_leave(self) -> bool:
        """Whether a LeaveGroup is due; static members stay until their session ends (KIP-345)."""
        return (
            not self.is_static and self.state is not MemberState.UNJOINED and bool(self.generation.member_id)
        )

    def left(self, reason: str) -> None:
        """Forget the membership; the next poll joins as another member."""
        self._reset(NO_GENERATION, reason)

    # Internals

    def _reset_after(self, code: ErrorCode, sent: Generation) -> None:
        """Leave the generation after an error, unless it has changed meanwhile.

        The member id stays valid after ILLEGAL_GENERATION; with it, the rebalance that follows need not wait
        for the session of the old id to end.
        """
        if self.generation == sent:
            keeps_id = code is ErrorCode.ILLEGAL_GENERATION
            self._reset(
                Generation(member_id=self.generation.member_id) if keeps_id else NO_GENERATION,
                f"encountered {code.name}",
            )

    def _reset(self, generation: Generation, reason: str) -> None:
        self.state = MemberState.UNJOINED
        self.generation = generation
        self.needs_prepare = True
        self.needs_rejoin = True
        self._rejoin_reason = reason
        logger.info("Group %s: this member is out of the group: %s.", self._group_id, reason)

    def _fatal(self, code: ErrorCode, request: str) -> ClientError:
        if code is ErrorCode.FENCED_INSTANCE_ID:
            return FencedInstanceIdError(
                f"{request} of {self._instance_id} in group {self._group_id} (another consumer has this "
                f"`group.instance.id`; give each its own)"
            )
        if code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return InconsistentGroupProtocolError(
                f"{request} in group {self._group_id} (its members have no assignor of "
                f"`partition.assignment.strategy` in common, or it is not a group of consumers)"
            )
        hint = ""
        if code is ErrorCode.INVALID_SESSION_TIMEOUT:
            hint = (
                f" (`session.timeout.ms`={self._session_timeout_ms} has to lie between the brokers' "
                f"`group.min.session.timeout.ms` and `group.max.session.timeout.ms`)"
            )
        elif code is ErrorCode.GROUP_MAX_SIZE_REACHED:
            hint = " (the brokers' `group.max.size` allows no more members)"
        return error_for(code, f"{request} in group {self._group_id}{hint}")
