"""Keeps a member's state, heartbeats and assignment in the consumer protocol (KIP-848). Pure.

The broker assigns; the member reconciles: it revokes, acknowledges with a heartbeat, gets more, and so on
until its partitions are the target. `ConsumerMembership` sends the heartbeats and calls the user's listener.

A heartbeat carries only the fields that have changed since the last one that was answered. After a failure it
carries all fields, because the broker may or may not have seen them. A partition that an unanswered heartbeat
left out of the owned ones is not used: the broker may have assigned it to another member on the strength of
that heartbeat.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kalda.clients.consumer.group.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
    StaleMemberEpochError,
)
from kalda.clients.errors import ClientError, UnsupportedApiError, error_for
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, TopicPartition
from kalda.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""A static member leaves for now: it keeps its partitions until its session ends (KIP-345)."""
_NOT_ASSIGNED: Final = -1
_FROM_CLIENT_IDS: Final = 1
"""The version in which the client makes its member id; before, the coordinator did."""

NOT_SUPPORTED: Final = (
    "the cluster does not support `group.protocol`=consumer; set it to classic until the cluster is upgraded"
)


class MemberState(Enum):
    """Where the member is."""

    UNSUBSCRIBED = "unsubscribed"
    """Not in the group and not to be in it."""
    JOINING = "joining"
    """Sends heartbeats with epoch 0 until it is answered."""
    RECONCILING = "reconciling"
    """Has a target that differs from what it owns."""
    ACKNOWLEDGING = "acknowledging"
    """Owns what it could of the target; the next heartbeat says so and is due now."""
    STABLE = "stable"
    FENCED = "fenced"
    """The coordinator has removed it; it gives up its partitions and joins again."""
    PREPARE_LEAVING = "preparing to leave"
    """Gives up its partitions before it leaves, and still sends heartbeats."""
    LEAVING = "leaving"
    """The next heartbeat, due now, leaves the group."""
    FATAL = "failed"
    """Cannot be in the group; does nothing more."""
    STALE = "stale"
    """Has left because poll was not called; joins again with the next poll."""


_S = MemberState
_BEFORE: Final[Mapping[MemberState, frozenset[MemberState]]] = {
    _S.STABLE: frozenset({_S.JOINING, _S.ACKNOWLEDGING, _S.RECONCILING}),
    _S.RECONCILING: frozenset({_S.STABLE, _S.JOINING, _S.ACKNOWLEDGING}),
    _S.ACKNOWLEDGING: frozenset({_S.RECONCILING}),
    _S.FATAL: frozenset(_S) - {_S.FENCED, _S.STALE},
    _S.FENCED: frozenset(
        {_S.JOINING, _S.STABLE, _S.RECONCILING, _S.ACKNOWLEDGING, _S.PREPARE_LEAVING, _S.LEAVING}
    ),
    _S.JOINING: frozenset({_S.FENCED, _S.UNSUBSCRIBED, _S.STALE}),
    _S.PREPARE_LEAVING: frozenset({_S.JOINING, _S.STABLE, _S.RECONCILING, _S.ACKNOWLEDGING}),
    _S.LEAVING: frozenset({_S.PREPARE_LEAVING}),
    _S.UNSUBSCRIBED: frozenset({_S.PREPARE_LEAVING, _S.LEAVING, _S.FENCED, _S.STALE}),
    _S.STALE: frozenset({_S.LEAVING}),
}
"""From which states each state is reached."""
_OUTSIDE: Final = frozenset({_S.UNSUBSCRIBED, _S.FENCED, _S.FATAL, _S.STALE})
_TAKES_ASSIGNMENTS: Final = frozenset({_S.STABLE, _S.JOINING, _S.ACKNOWLEDGING, _S.RECONCILING})

Partitions = Mapping[UUID, frozenset[int]]


@dataclass(frozen=True, slots=True)
class LocalAssignment:
    """Partitions by topic id, numbered: an equal assignment that came later is another one to acknowledge."""

    number: int = _NOT_ASSIGNED
    partitions: Partitions = field(default_factory=dict)


NO_ASSIGNMENT: Final = LocalAssignment()


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """The fields that a member sends when it joins."""

    group_id: str
    group_instance_id: str | None
    rack: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None


@dataclass(frozen=True, slots=True)
class SubscribedTopics:
    """The subscription: topic names, or a regular expression that the broker evaluates."""

    names: frozenset[str] = frozenset()
    regex: str | None = None


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The part of the target that the member can own now, with topic names."""

    resolved: LocalAssignment
    """The part of the target whose topics have names."""
    assigned: frozenset[TopicPartition]
    unresolved: frozenset[UUID]
    """Topics whose names the metadata does not have yet."""


class HeartbeatResult(Enum):
    """The consequence of a heartbeat's response."""

    PROCEED = "proceed"
    RETRY = "retry after a back-off"
    FIND_COORDINATOR = "find the coordinator, after a back-off"
    FENCED = "fenced"


class ConsumerMember:
    """One member of one group."""

    def __init__(self, options: MemberOptions, member_id: str) -> None:
        """`member_id` is unique; the member keeps it for its life (KIP-1082)."""
        self._options: Final = options
        self.member_id = member_id
        self.epoch = JOIN_EPOCH
        self.last_epoch = -1
        """The last epoch in the group, -1 before. It stays when the member is removed from the group, so that
        the coordinator refuses the offsets of records that were read in it."""
        self.state = MemberState.UNSUBSCRIBED
        self.current = NO_ASSIGNMENT
        """The partitions that the member owns."""
        self.target = NO_ASSIGNMENT
        """The partitions that the coordinator has assigned to it."""
        self._sent: dict[str, object] = {}
        self._has_stated_id = False
        self._has_stated_regex = False
        self._last_number = _NOT_ASSIGNED
        # Whether a heartbeat that said what the member owns has no answer yet.
        self._is_statement_open = False

    @property
    def is_in_group(self) -> bool:
        """Whether the member assumes that the coordinator has it in the group."""
        return self.state not in _OUTSIDE

    @property
    def is_heartbeat_urgent(self) -> bool:
        """Whether the next heartbeat does not wait for its interval."""
        return self.state in (MemberState.ACKNOWLEDGING, MemberState.JOINING)

    @property
    def has_lost_partitions(self) -> bool:
        """Whether other members may own this member's partitions."""
        return self.epoch <= 0

    # What the application does

    def join(self) -> None:
        """Join with the next heartbeat, from outside the group."""
        self.epoch = JOIN_EPOCH
        self.current = self.target = NO_ASSIGNMENT
        self._sent.clear()
        self._go(MemberState.JOINING)

    def prepare_leaving(self) -> None:
        """Begin to leave: partitions are released first."""
        if self.is_in_group:
            self._go(MemberState.PREPARE_LEAVING)
        elif self.state in (MemberState.FENCED, MemberState.STALE):
            self._go(MemberState.UNSUBSCRIBED)

    def leave_request(self) -> ConsumerGroupHeartbeatRequest | None:
        """Leave; return the heartbeat to send, None if the member is not in the group."""
        if self.state is not MemberState.PREPARE_LEAVING:
            return None
        self._go(MemberState.LEAVING)
        self._leave_epoch()
        request = self._request(self.member_id)
        self._go(MemberState.UNSUBSCRIBED)
        self.epoch = JOIN_EPOCH
        return request

    def expire_poll(self) -> ConsumerGroupHeartbeatRequest:
        """Leave because poll was not called; return the heartbeat to send. The partitions are lost."""
        self._go(MemberState.PREPARE_LEAVING)
        self._go(MemberState.LEAVING)
        self._leave_epoch()
        request = self._request(self.member_id)
        self._go(MemberState.STALE)
        self.epoch = JOIN_EPOCH
        return request

    # Heartbeats

    def heartbeat_request(self, version: int, topics: SubscribedTopics) -> ConsumerGroupHeartbeatRequest:
        """Build the next heartbeat, with what has changed."""
        options = self._options
        has_id = version >= _FROM_CLIENT_IDS or self._has_stated_id
        request = self._request(self.member_id if has_id else "")
        joins = self.state is MemberState.JOINING
        if joins:
            self._sent.clear()
            request.rack_id = options.rack
        if self._is_new("rebalance timeout", options.rebalance_timeout_ms):
            request.rebalance_timeout_ms = options.rebalance_timeout_ms
        if self._is_new("names", topics.names):
            request.subscribed_topic_names = sorted(topics.names)
        if self._is_new("regex", topics.regex) and (topics.regex is not None or self._has_stated_regex):
            # An empty one takes the earlier one back.
            self._has_stated_regex = True
            request.subscribed_topic_regex = topics.regex or ""
        if options.server_assignor is not None and self._is_new("assignor", options.server_assignor):
            request.server_assignor = options.server_assignor
        if self._is_new("assignment", self.current):
            self._is_statement_open = True
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
                for topic_id, numbers in self.current.partitions.items()
            ]
        if self.state is MemberState.ACKNOWLEDGING:
            is_done = self.current == self.target
            self._go(MemberState.STABLE if is_done else MemberState.RECONCILING)
        return request

    def heartbeat_failed(self) -> None:
        """Make the next heartbeat carry all fields, because the last one got no response."""
        self._sent.clear()

    def has_unsent(self, topics: SubscribedTopics) -> bool:
        """Whether the subscription differs from what the last heartbeat said."""
        return self._sent.get("names") != topics.names or self._sent.get("regex") != topics.regex

    def on_heartbeat_response(self, response: ConsumerGroupHeartbeatResponse) -> HeartbeatResult:
        """Process the answer to a heartbeat.

        Raises:
            ClientError: the member cannot be in the group; its state is FATAL.
        """
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            self._on_success(response)
            return HeartbeatResult.PROCEED
        self._sent.clear()
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            return HeartbeatResult.FIND_COORDINATOR
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return HeartbeatResult.RETRY
        if code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self._fence(code)
            return HeartbeatResult.FENCED
        raise self.fail(self._fatal(code, response.error_message))

    def fail(self, error: ClientError) -> ClientError:
        """End the membership for good because of an error; return the error."""
        if self.state is not MemberState.FATAL and self.state in _BEFORE[MemberState.FATAL]:
            self._go(MemberState.FATAL)
        self.epoch = JOIN_EPOCH
        return error

    # Assignment

    def reconcile(self, names: Mapping[UUID, str]) -> Reconciliation:
        """Return the part of the target that the member can own now."""
        known = {topic_id: each for topic_id, each in self.target.partitions.items() if topic_id in names}
        return Reconciliation(
            LocalAssignment(self.target.number, known),
            frozenset(
                TopicPartition(names[topic_id], number)
                for topic_id, numbers in known.items()
                for number in numbers
            ),
            frozenset(self.target.partitions.keys() - known.keys()),
        )

    def is_reconciling(self, reconciliation: Reconciliation) -> bool:
        """Whether the reconciliation still makes sense: the member has the same target."""
        return (
            self.state is MemberState.RECONCILING
            and reconciliation.resolved.number == self.target.number
            and not self._is_taken(reconciliation)
        )

    def take(self, reconciliation: Reconciliation) -> bool:
        """Start to own the partitions of a reconciliation; return False if that is not allowed.

        It is not allowed once the reconciliation is outdated, nor while a heartbeat that lists other
        partitions has no response.
        """
        if not self.is_reconciling(reconciliation) or self._is_statement_open:
            return False
        self.current = reconciliation.resolved
        return True

    def taken(self, reconciliation: Reconciliation) -> None:
        """Acknowledge the owned partitions in the next heartbeat; called when the listener has returned."""
        if self.state is MemberState.RECONCILING and self._is_taken(reconciliation):
            self._go(MemberState.ACKNOWLEDGING)

    # Commits

    def check_commit(self) -> None:
        """Check that offsets can be committed in this member's name.

        Raises:
            RebalanceInProgressError: the member is joining.
            CommitFailedError: the member is not in the group.
        """
        if self.epoch > 0:
            return
        if self.state is MemberState.JOINING:
            raise RebalanceInProgressError("offsets cannot be committed while the consumer joins its group")
        raise CommitFailedError(
            f"the consumer is not part of group {self._options.group_id} (it is {self.state.value})"
        )

    def on_commit_refused(self, code: ErrorCode) -> ClientError:
        """Process an error of OffsetCommit or OffsetFetch that concerns the member; return what to raise."""
        group_id = self._options.group_id
        if code is ErrorCode.STALE_MEMBER_EPOCH and self.epoch > 0:
            return StaleMemberEpochError(f"epoch {self.epoch} of group {group_id} is over")
        return CommitFailedError(f"{code.name}: {code.message.rstrip('.')}")

    # Internals

    def _is_taken(self, reconciliation: Reconciliation) -> bool:
        return self.current is reconciliation.resolved

    def _on_success(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self._is_statement_open = False
        if self.state in _OUTSIDE or self.state is MemberState.LEAVING:
            return
        self._has_stated_id = True
        if response.member_id:
            self.member_id = response.member_id
        self.epoch = response.member_epoch
        if self.epoch > 0:
            self.last_epoch = self.epoch
        if response.assignment is None or self.state not in _TAKES_ASSIGNMENTS:
            return
        partitions = {
            each.topic_id: frozenset(each.partitions)
            for each in response.assignment.topic_partitions
            if each.partitions
        }
        if self.target is NO_ASSIGNMENT or self.target.partitions != partitions:
            self._last_number += 1
            self.target = LocalAssignment(self._last_number, partitions)
        if self.target != self.current:
            if self.state is not MemberState.RECONCILING:
                self._go(MemberState.RECONCILING)
        elif self.state in (MemberState.RECONCILING, MemberState.JOINING):
            self._go(MemberState.STABLE)

    def _fence(self, code: ErrorCode) -> None:
        if self.state in (MemberState.PREPARE_LEAVING, MemberState.LEAVING):
            # It is out already; there is nothing to send any more.
            self._go(MemberState.UNSUBSCRIBED)
        elif self.is_in_group:
            logger.info(
                "Group %s: this member was removed from the group: %s.", self._options.group_id, code.name
            )
            self._go(MemberState.FENCED)
        self.epoch = JOIN_EPOCH

    def _request(self, member_id: str) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self._options.group_id,
            member_id=member_id,
            member_epoch=self.epoch,
            instance_id=self._options.group_instance_id,
        )

    def _is_new(self, name: str, value: object) -> bool:
        if name in self._sent and self._sent[name] == value:
            return False
        self._sent[name] = value
        return True

    def _leave_epoch(self) -> None:
        self.epoch = LEAVE_EPOCH if self._options.group_instance_id is None else LEAVE_STATIC_EPOCH
        self.current = self.target = NO_ASSIGNMENT

    def _go(self, state: MemberState) -> None:
        assert self.state in _BEFORE[state], f"a member that is {self.state.value} became {state.value}"
        logger.debug(
            "Group %s: member %s of epoch %d is %s, was %s.",
            self._options.group_id,
            self.member_id,
            self.epoch,
            state.value,
            self.state.value,
        )
        self.state = state

    def _fatal(self, code: ErrorCode, message: str | None) -> ClientError:
        group_id, instance_id = self._options.group_id, self._options.group_instance_id
        what = f"ConsumerGroupHeartbeat in group {group_id}"
        if code is ErrorCode.UNSUPPORTED_VERSION:
            return UnsupportedApiError(f"{what}: {NOT_SUPPORTED}")
        if code is ErrorCode.FENCED_INSTANCE_ID:
            return FencedInstanceIdError(f"{what} as {instance_id} (another consumer took its place)")
        if code is ErrorCode.UNRELEASED_INSTANCE_ID:
            what += f" as {instance_id} (another consumer with this `group.instance.id` is in the group)"
        return error_for(code, f"{what} ({message})" if message else what)
