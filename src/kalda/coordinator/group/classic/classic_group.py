"""Keeps the state of a classic group: members, generation, and rules that need nothing else.

`rebalance` decides when the state changes; this module defines which transitions are possible and keeps the
counts consistent. What must not break is in `ClassicGroup.check_invariants`.
"""

from collections import Counter
from enum import StrEnum
from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.coordinator_record import CoordinatorRecord, decode_value, encode_record
from kalda.coordinator.group.classic.classic_member import ClassicMember, subscribed_topics
from kalda.coordinator.group.group import GroupType
from kalda.coordinator.group.member_memory import MEMBER_BYTES
from kalda.protocol.codec import decode
from kalda.protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from kalda.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kalda.protocol.messages.sync_group import SyncGroupResponse
from kalda.protocol.protocol_errors import ProtocolError

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
UNKNOWN_MEMBER_ID: Final = ""
NO_TIMESTAMP: Final = -1

GROUP_METADATA_KEY_VERSION: Final = 2
_GROUP_METADATA_VALUE_VERSION: Final = 3
"""Version 4 differs in form only, and brokers before Kafka 3.5 cannot read it."""


class GroupState(StrEnum):
    """The states of a classic group; the values are their names in responses."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_PREVIOUS: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""The states from which each state may be entered."""


class ClassicGroup:
    """One group. A simple group, which only commits offsets, has no protocol type and no members."""

    __slots__ = (
        "_checked_generation_id",
        "_supporters",
        "generation_id",
        "group_id",
        "held_bytes",
        "leader_id",
        "members",
        "members_awaiting_join",
        "new_member_added",
        "pending_join",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "topics",
    )

    kind: Final = GroupType.CLASSIC

    def __init__(self, group_id: str, state_timestamp_ms: int = NO_TIMESTAMP) -> None:
        self.group_id: Final = group_id
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = state_timestamp_ms
        """When the state was entered; -1 if the record is from before Kafka 2.1 (KIP-211)."""
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        """None without members, and in a group that was a consumer group until its members join again."""
        self.members: dict[str, ClassicMember] = {}
        self.held_bytes = 0
        """The memory that members and pending member ids take, as `ClassicMember.held_bytes`."""
        self.static_members: dict[str, str] = {}
        """The member ids of static members, by instance id."""
        self.pending_join: set[str] = set()
        """Member ids that were sent with MEMBER_ID_REQUIRED and have not joined yet; never in `members`."""
        self.pending_sync: set[str] = set()
        """Members of this generation that have not sent SyncGroup yet."""
        self.members_awaiting_join = 0
        self.new_member_added = False
        """During the initial delay: whether a member has joined since the delay was last extended."""
        self.topics: frozenset[str] | None = None
        """The topics that the members subscribe to; None if a subscription cannot be read."""
        self._supporters: dict[str, int] = {}
        self._checked_generation_id = 0
        """The generation of the last `check_invariants`."""

    # The interface `Group`.

    @property
    def state_name(self) -> str:
        """The name of the state in responses."""
        return self.state.value

    @property
    def member_count(self) -> int:
        """The number of members."""
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members and no member is joining."""
        return self.state is GroupState.EMPTY

    @property
    def is_consumer_group(self) -> bool:
        """Whether the members are consumers, whose subscriptions have a known format."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic; a subscription that cannot be read matches all."""
        return topic in self.topics if self.topics is not None else self.is_consumer_group

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, api_version: int
    ) -> None:
        """Check that a member may commit: of this generation, or any client while the group is empty.

        Raises:
            ApiError: the member may not commit.
        """
        del api_version  # The classic protocol has the same rules in every version.
        if self.state is GroupState.DEAD:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if epoch < 0 and self.state is GroupState.EMPTY:
            return
        if epoch >= 0 or member_id or instance_id is not None:
            self.validate_member(member_id, instance_id)
            if epoch != self.generation_id:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        elif not transactional and self.state is not GroupState.EMPTY:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not transactional and self.state is GroupState.COMPLETING_REBALANCE:
            # A member of the new generation has revoked its partitions, and must sync before it commits.
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that offsets may be fetched, which is always so.

        Raises:
            ApiError: the shard was unloaded.
        """
        del member_id, epoch
        if self.state is GroupState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)

    def validate_offset_delete(self) -> None:
        """Check that offsets may be deleted: if there are members, these must be consumers.

        Raises:
            ApiError: no offset may be deleted.
        """
        if self.state is GroupState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state is not GroupState.EMPTY and not self.is_consumer_group:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def validate_delete(self) -> None:
        """Check that the group may be deleted: only while it is empty.

        Raises:
            ApiError: the group may not be deleted.
        """
        if self.state is GroupState.DEAD:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.state is not GroupState.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def offsets_expire_since(self, commit_timestamp_ms: int) -> int | None:
        """Return the time from which the retention of an offset counts (KIP-211), None if it does not expire.

        In a simple group this is the commit. In an empty group it is the time the group became empty, or a
        later commit (by an administrator; Kafka expires such an offset at once). In a stable group of
        consumers it is the commit, for topics without a subscriber. Other groups' offsets do not expire.
        """
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.state is GroupState.EMPTY:
            return max(self.state_timestamp_ms, commit_timestamp_ms)
        if self.state is GroupState.STABLE and self.is_consumer_group and self.topics is not None:
            return commit_timestamp_ms
        return None

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the record that deletes the group."""
        return [group_metadata_record(self.group_id, None)]

    # Members.

    def validate_member(self, member_id: str, instance_id: str | None) -> None:
        """Check that a request comes from a member.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member took over its instance id.
        """
        if instance_id is not None:
            present = self.static_members.get(instance_id)
            if present is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if present != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)

    def supports(self, protocol_type: str, protocols: "dict[str, bytes]") -> bool:
        """Return whether a client with these protocols could be a member: all members must share one."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and any(
            self._supporters.get(name, 0) == len(self.members) for name in protocols
        )

    def add(self, member: ClassicMember, answer: Pending[JoinGroupResponse] | None) -> None:
        """Add a member, which waits for a generation if there is an `answer`; the first member leads."""
        assert member.member_id not in self.members, f"{member} is in {self}"
        if not self.members:
            self.protocol_type = member.protocol_type
        assert self.protocol_type == member.protocol_type, f"{member} does not fit {self}"
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, f"{member} is in {self}"
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        self.remove_pending(member.member_id)
        self.set_awaiting_join(member, answer)

    def add_pending(self, member_id: str) -> None:
        """Expect a member to join with an id that it was given."""
        assert member_id not in self.pending_join, f"{member_id} is pending in {self}"
        self.pending_join.add(member_id)
        self.held_bytes += MEMBER_BYTES + len(member_id)

    def remove_pending(self, member_id: str) -> None:
        """Expect a member no more; nothing happens to an id that is not pending."""
        if member_id in self.pending_join:
            self.pending_join.remove(member_id)
            self.held_bytes -= MEMBER_BYTES + len(member_id)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member or a pending id; if the leader goes, the member that joined first leads."""
        self.remove_pending(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count_protocols(member, -1)
        if member.awaiting_join is not None:
            self.members_awaiting_join -= 1
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace_static(self, old: ClassicMember, new_member_id: str) -> ClassicMember:
        """Give a static member a new id; the caller has answered what the old one waited for."""
        assert old.awaiting_join is None, f"{old} still waits in {self}"
        assert old.awaiting_sync is None, f"{old} still waits in {self}"
        assert old.instance_id is not None, f"{old} is not static"
        new = ClassicMember(
            member_id=new_member_id,
            instance_id=old.instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocol_type=old.protocol_type,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        del self.members[old.member_id]
        self.members[new_member_id] = new
        self.held_bytes += len(new_member_id) - len(old.member_id)
        self.static_members[old.instance_id] = new_member_id
        if self.leader_id == old.member_id:
            self.leader_id = new_member_id
        if old.member_id in self.pending_sync:
            self.pending_sync.remove(old.member_id)
            self.pending_sync.add(new_member_id)
        return new

    def update(
        self,
        member: ClassicMember,
        protocols: "dict[str, bytes]",
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Replace the protocols and timeouts of a member that joins again."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def set_awaiting_join(self, member: ClassicMember, answer: Pending[JoinGroupResponse] | None) -> None:
        """Set or clear the response that a member waits for until the next generation begins."""
        self.members_awaiting_join += (answer is not None) - (member.awaiting_join is not None)
        member.awaiting_join = answer

    # Generations.

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Whether all members wait for the next generation and no member id is pending."""
        return len(self.members) == self.members_awaiting_join and not self.pending_join

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin in this state."""
        return self.state in _PREVIOUS[GroupState.PREPARING_REBALANCE]

    def elect_joined_leader(self) -> bool:
        """Make a member lead that waits for the next generation; return false if no member waits."""
        leader = self.members.get(self.leader_id or "")
        if leader is None or leader.awaiting_join is None:
            leader = next((each for each in self.members.values() if each.awaiting_join is not None), None)
        if leader is None:
            return False
        self.leader_id = leader.member_id
        return True

    def begin_generation(self, now_ms: int) -> None:
        """Start the next generation and select its protocol; without members the group becomes empty."""
        self.generation_id += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.topics = self._subscribed_topics()
            self.enter(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.topics = self._subscribed_topics()
            self.enter(GroupState.EMPTY, now_ms)

    def enter(self, state: GroupState, now_ms: int) -> None:
        """Change the state."""
        assert self.state in _PREVIOUS[state], f"{self} cannot become {state.value}"
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    def select_protocol(self) -> str:
        """Return the protocol that most members prefer among those that all members support."""
        candidates = frozenset(name for name, count in self._supporters.items() if count == len(self.members))
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = member.vote(candidates)
            votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def joined_members(self) -> list[JoinGroupResponseMember]:
        """Return the metadata of all members, by which the leader assigns."""
        name = self.protocol_name
        assert name is not None, f"{self} has no protocol"
        return [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(name),
            )
            for member in self.members.values()
        ]

    def assignment_of(self, member: ClassicMember) -> SyncGroupResponse:
        """Return the response to a SyncGroup of this generation."""
        return SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    # The record.

    def record(self, assignments: "dict[str, bytes] | None" = None) -> CoordinatorRecord:
        """Return the record of this generation, with `assignments` or the assignments in force."""
        members = []
        for member in self.members.values():
            assert self.protocol_name is not None, f"{self} has no protocol"
            members.append(
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=(
                        member.assignment if assignments is None else assignments.get(member.member_id, b"")
                    ),
                )
            )
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp=self.state_timestamp_ms,
            members=members,
        )
        return group_metadata_record(self.group_id, value)

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> "ClassicGroup":
        """Make the group that a record describes: stable if it has members, otherwise empty.

        Raises:
            ProtocolError: the record contradicts itself.
        """
        ids = [member.member_id for member in value.members]
        instances = [m.group_instance_id for m in value.members if m.group_instance_id is not None]
        if len(set(ids)) != len(ids) or len(set(instances)) != len(instances):
            raise ProtocolError(f"group {group_id}: a member id is repeated in one generation")
        if ids and value.protocol is None:
            raise ProtocolError(f"group {group_id}: it has members and no protocol")
        group = cls(group_id, value.current_state_timestamp)
        group.generation_id = value.generation
        group.protocol_name = value.protocol
        group.protocol_type = value.protocol_type or None
        group.leader_id = value.leader if value.leader in ids else None
        for member in value.members:
            rebalance_timeout_ms = member.rebalance_timeout
            if rebalance_timeout_ms < 0:
                rebalance_timeout_ms = member.session_timeout
            loaded = ClassicMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout,
                protocol_type=value.protocol_type,
                protocols={value.protocol or "": bytes(member.subscription)},
                assignment=bytes(member.assignment),
            )
            group.add(loaded, None)
        if value.leader is None:
            group.leader_id = None
        if group.members:
            group.state = GroupState.STABLE
        group.topics = group._subscribed_topics()
        return group

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self.is_consumer_group:
            return None
        if not self.members:
            return frozenset()
        name = self.protocol_name
        if name is None:
            return None
        return subscribed_topics(member.metadata(name) for member in self.members.values())

    def _count_protocols(self, member: ClassicMember, by: int) -> None:
        self.held_bytes += by * member.held_bytes
        for name in member.protocols:
            count = self._supporters.get(name, 0) + by
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]

    def check_invariants(self) -> None:
        """Assert that the state, the members and the counts of members agree."""
        members, state = self.members, self.state
        waiting = sum(member.awaiting_join is not None for member in members.values())
        assert waiting == self.members_awaiting_join, (
            f"{self}: {waiting} members wait to join, {self.members_awaiting_join} were counted"
        )
        supporters = Counter(name for member in members.values() for name in member.protocols)
        assert supporters == self._supporters, (
            f"{self}: {self._supporters} supporters instead of {supporters}"
        )
        static = {m.instance_id: m.member_id for m in members.values() if m.instance_id is not None}
        assert static == self.static_members, f"{self}: static members {self.static_members}, not {static}"
        both = self.pending_join & members.keys()
        assert not both, f"{self}: {both} are members and have yet to join"
        held = sum(member.held_bytes for member in members.values())
        held += sum(MEMBER_BYTES + len(member_id) for member_id in self.pending_join)
        assert held == self.held_bytes, f"{self}: {held} bytes are held, {self.held_bytes} were counted"
        gone = self.pending_sync - members.keys()
        assert not gone, f"{self}: {gone} are to sync and are no members"
        assert self.generation_id >= self._checked_generation_id, (
            f"{self}: the generation goes back from {self._checked_generation_id}"
        )
        self._checked_generation_id = self.generation_id
        assert self.leader_id is None or self.leader_id in members, (
            f"{self}: {self.leader_id} leads, no member"
        )
        if state is GroupState.EMPTY:
            assert not members, f"{self} has the members {sorted(members)}"
        elif state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            assert members, f"{self} has no members"
            assert supporters[self.protocol_name or ""] == len(members), (
                f"{self}: its protocol {self.protocol_name} has {supporters} supporters"
            )
            assert state is GroupState.STABLE or self.leader_id is not None, f"{self} has no leader"
        for member in members.values():
            assert member.protocol_type == self.protocol_type, f"{self}: {member} is a {member.protocol_type}"
            # In a stable group only a static member that returned waits, until its new id is committed.
            assert (
                member.awaiting_join is None
                or state is GroupState.PREPARING_REBALANCE
                or (state is GroupState.STABLE and member.is_static)
            ), f"{self}: {member} waits for a generation"
            assert member.awaiting_sync is None or state is GroupState.COMPLETING_REBALANCE, (
                f"{self}: {member} waits for an assignment"
            )

    def __repr__(self) -> str:
        return (
            f"ClassicGroup({self.group_id!r}, {self.state.value}, generation={self.generation_id}, "
            f"{len(self.members)} members)"
        )


def group_metadata_record(group_id: str, value: GroupMetadataValue | None) -> CoordinatorRecord:
    """Return the record of a classic group; without a value it is the group's tombstone."""
    key = GroupMetadataKey(group=group_id)
    return encode_record(key, GROUP_METADATA_KEY_VERSION, value, _GROUP_METADATA_VALUE_VERSION)


def read_group_metadata_key(data: bytes) -> str:
    """Return the group id in the key of a classic group's record.

    Raises:
        ProtocolError: the bytes are not such a key.
    """
    return decode(GroupMetadataKey, GROUP_METADATA_KEY_VERSION, data, 2).group


def read_group_metadata_value(data: bytes) -> GroupMetadataValue:
    """Decode the value of a classic group's record, of any version.

    Raises:
        ProtocolError: the bytes are not such a value.
    """
    return decode_value(GroupMetadataValue, data)
