"""Keeps the state of a consumer group, computed from its records.

Only replaying records changes a group; `heartbeats` and `consumer_groups` read it and decide. What must not
break: `owner_of` returns the owner of every partition that a member uses or has not revoked yet, because this
keeps two members from using one partition.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import UUID, ZERO_UUID
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.consumer.consumer_group_records import group_removal
from kalda.coordinator.group.consumer.member import (
    EMPTY_ASSIGNMENT,
    Assignment,
    ConsumerGroupState,
    Member,
    MemberState,
    RegularExpression,
    TopicMetadata,
    held_by_names,
)
from kalda.coordinator.group.consumer.topics import TopicsView
from kalda.coordinator.group.group import GroupType

PROTOCOL_TYPE: Final = "consumer"

_COMMIT_WITH_MEMBER_EPOCH: Final = 9
"""The first version of OffsetCommit whose generation field can carry a member epoch."""


class ConsumerGroup:
    """One group of the consumer protocol."""

    kind: Final = GroupType.CONSUMER
    protocol_type: Final = PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id: Final = group_id
        self.epoch = 0
        """The group epoch, which grows when members, subscriptions or subscribed topics change."""
        self.assignment_epoch = 0
        """The group epoch of the target assignment; never above `epoch`."""
        self.assigned_ms = 0
        """When the target assignment was made; 0: there was none, or an older broker made it."""
        self.members: Final[dict[str, Member]] = {}
        self.held_bytes = 0
        """The memory that members take, and the names of their topics, which members share."""
        self.static_members: Final[dict[str, str]] = {}
        """Member ids by instance id."""
        self.targets: Final[dict[str, Assignment]] = {}
        self.topics: Mapping[str, TopicMetadata] = {}
        """The subscribed topics as they were when the group epoch was last bumped."""
        self.regexes: Final[dict[str, RegularExpression]] = {}
        self.refreshed = (-1, 0)
        """Not in the log: the generation of `TopicsView` with which `topics` was last compared, and the group
        epoch then. A group epoch below it means that the write failed."""
        self._owners: Final[dict[UUID, dict[int, str]]] = {}
        self._names: Final[Counter[str]] = Counter()
        self._subscriptions: Final[dict[frozenset[str], tuple[frozenset[str], int]]] = {}
        """The names of each member, once for all members with the same, and how many these are. A thousand
        members of two thousand names would have 250 MB of them, compared name by name for each assignment.
        """
        self._regex_members: Final[Counter[str]] = Counter()
        self._assignors: Final[Counter[str]] = Counter()
        self._classic_protocols: Final[Counter[str]] = Counter()
        self.classic_count = 0
        """The number of members that use the classic protocol."""

    # The interface `Group`.

    @property
    def state(self) -> ConsumerGroupState:
        """The state, which follows from epochs and members."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

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
        """Whether the group has no members."""
        return not self.members

    @property
    def is_all_classic(self) -> bool:
        """Whether all members use the classic protocol."""
        return self.classic_count == len(self.members)

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic, by name or by expression."""
        return topic in self._names or any(topic in resolved.topics for resolved in self.regexes.values())

    # Members and their assignments.

    def member(self, member_id: str) -> Member:
        """Return a member.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID.
        """
        found = self.members.get(member_id)
        if found is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return found

    def static_member(self, instance_id: str | None) -> Member | None:
        """Return the member with that instance id, None if there is none."""
        member_id = self.static_members.get(instance_id) if instance_id is not None else None
        return self.members.get(member_id) if member_id is not None else None

    def target_of(self, member_id: str, instance_id: str | None = None) -> Assignment:
        """Return a member's target assignment; a member that takes over an instance id inherits it."""
        if instance_id is not None:
            member_id = self.static_members.get(instance_id, member_id)
        return self.targets.get(member_id, EMPTY_ASSIGNMENT)

    def owner_of(self, topic_id: UUID, partition: int) -> str | None:
        """Return the member that uses a partition or has not revoked it yet, None if it is free."""
        owners = self._owners.get(topic_id)
        return owners.get(partition) if owners is not None else None

    def regex_member_count(self, regex: str) -> int:
        """Return how many members subscribe by that expression."""
        return self._regex_members[regex]

    @property
    def regex_count(self) -> int:
        """By how many different expressions members subscribe."""
        return len(self._regex_members)

    @property
    def subscribed_regexes(self) -> list[str]:
        """The expressions by which members subscribe, in order."""
        return sorted(self._regex_members)

    def subscription_of(self, member: Member) -> frozenset[str]:
        """Return the topics that a member subscribes to, by name and by the last match of its expression."""
        resolved = self.regexes.get(member.subscribed_regex) if member.subscribed_regex else None
        return member.subscribed_names | resolved.topics if resolved is not None else member.subscribed_names

    def may_assign(self, now_ms: int, interval_ms: int) -> bool:
        """Return whether a target assignment may follow the last one already (KIP-1263)."""
        return self.assigned_ms == 0 or interval_ms == 0 or now_ms >= self.assigned_ms + interval_ms

    def _subscribed_names(
        self, known: Collection[str], without: Member | None, member: Member | None
    ) -> set[str]:
        """Return those of the `known` topics that members subscribe to, if `without` goes and `member` comes.

        The names of topics that do not exist cost nothing here: members may have hundreds of thousands.
        """
        topics = set(known)
        names = self._names.keys() & topics
        regexes = set(self._regex_members)
        if without is not None and without.member_id in self.members:
            names -= {name for name in names & without.subscribed_names if self._names[name] <= 1}
            regexes.difference_update(
                regex for regex in (without.subscribed_regex,) if regex and self._regex_members[regex] <= 1
            )
        if member is not None:
            names |= topics & member.subscribed_names
            if member.subscribed_regex:
                regexes.add(member.subscribed_regex)
        for regex in regexes:
            resolved = self.regexes.get(regex)
            if resolved is not None:
                names |= topics & resolved.topics
        return names

    def subscribed_topics(
        self, view: TopicsView, *, without: Member | None = None, member: Member | None = None
    ) -> Mapping[str, TopicMetadata]:
        """Return the subscribed topics that exist, by name in order, if one member goes and another comes.

        A topic without an id cannot be assigned and counts as missing.
        """
        found: dict[str, TopicMetadata] = {}
        for name in sorted(self._subscribed_names(view.names(), without, member)):
            topic = view.topic(name)
            if topic is not None and topic.topic_id != ZERO_UUID and topic.partition_count > 0:
                found[name] = TopicMetadata((topic.topic_id, topic.partition_count))
        return found

    def supports_classic_protocols(self, names: Sequence[str], *, without: str | None = None) -> bool:
        """Return whether all members that use the classic protocol support one of the names.

        The member `without`, which joins, does not count.
        """
        counts = self._classic_protocols
        others = self.classic_count
        if without is not None and (member := self.members.get(without)) is not None and member.classic:
            others -= 1
            counts = counts.copy()
            counts.subtract(offer.name for offer in member.classic.protocols)
        return any(counts[name] == others for name in names)

    def preferred_assignor(self, before: Member | None = None, after: Member | None = None) -> str | None:
        """Return the assignor that most members request, after the member `before` becomes `after`."""
        counts = self._assignors.copy()
        if before is not None and before.member_id in self.members and before.server_assignor is not None:
            counts[before.server_assignor] -= 1
        if after is not None and after.server_assignor is not None:
            counts[after.server_assignor] += 1
        wanted = [(-count, name) for name, count in counts.items() if count > 0]
        return min(wanted)[1] if wanted else None

    def growth_bytes(self, member: Member) -> int:
        """Return how much more memory the group takes with a member that is new or has changed."""
        before = self.members.get(member.member_id)
        growth = member.held_bytes - (before.held_bytes if before is not None else 0)
        if member.subscribed_names in self._subscriptions:
            return growth
        return growth + held_by_names(member.subscribed_names)

    # Replaying.

    def put_member(self, member: Member) -> None:
        """Add or replace a member."""
        before = self.members.get(member.member_id)
        if before is not None:
            self._forget(before)
        names, count = self._subscriptions.get(member.subscribed_names, (member.subscribed_names, 0))
        self._subscriptions[names] = names, count + 1
        self.held_bytes += member.held_bytes + (0 if count else held_by_names(names))
        if names is not member.subscribed_names:
            member = replace(member, subscribed_names=names)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._names.update(member.subscribed_names)
        if member.subscribed_regex:
            self._regex_members[member.subscribed_regex] += 1
        if member.server_assignor is not None:
            self._assignors[member.server_assignor] += 1
        if member.classic is not None:
            self.classic_count += 1
            self._classic_protocols.update(offer.name for offer in member.classic.protocols)
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assignment.items():
                owners = self._owners.setdefault(topic_id, {})
                for partition in partitions:
                    owners[partition] = member.member_id

    def remove_member(self, member_id: str) -> None:
        """Remove a member."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._forget(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]

    def _forget(self, member: Member) -> None:
        _discount(self._names, member.subscribed_names)
        names, count = self._subscriptions[member.subscribed_names]
        if count > 1:
            self._subscriptions[names] = names, count - 1
        else:
            del self._subscriptions[names]
        self.held_bytes -= member.held_bytes + (0 if count > 1 else held_by_names(names))
        if member.subscribed_regex:
            _discount(self._regex_members, (member.subscribed_regex,))
        if member.server_assignor is not None:
            _discount(self._assignors, (member.server_assignor,))
        if member.classic is not None:
            self.classic_count -= 1
            _discount(self._classic_protocols, [offer.name for offer in member.classic.protocols])
        for assignment in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assignment.items():
                owners = self._owners.get(topic_id)
                if owners is None:
                    continue
                for partition in partitions:
                    # A compacted log may have the next owner's record before the record of this revocation.
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    del self._owners[topic_id]

    # Invariants.

    def check_invariants(self) -> None:
        """Assert the order of epochs, one owner for each partition, and that counts of members are right."""
        members = self.members.values()
        name = f"group {self.group_id}"
        assert self.epoch >= self.assignment_epoch, (
            f"{name}: epoch {self.epoch} is below the assignment epoch {self.assignment_epoch}"
        )
        owners: dict[UUID, dict[int, str]] = {}
        for member in members:
            assert member.epoch <= self.assignment_epoch, (
                f"{name}: {member.member_id} is in epoch {member.epoch}, above the assignment epoch "
                f"{self.assignment_epoch}"
            )
            assert not member.pending_revocation or member.state is MemberState.UNREVOKED_PARTITIONS, (
                f"{name}: {member.member_id} must revoke {member.pending_revocation} in {member.state.name}"
            )
            for assignment in (member.assigned, member.pending_revocation):
                for topic_id, partitions in assignment.items():
                    taken = owners.setdefault(topic_id, {})
                    for partition in partitions:
                        other = taken.get(partition)
                        assert other is None, (
                            f"{name}: {member.member_id} and {other} own {topic_id}-{partition}"
                        )
                        taken[partition] = member.member_id
        assert owners == self._owners, f"{name}: owners are {owners}, recorded are {self._owners}"
        static = {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        assert static == self.static_members, f"{name}: static members {self.static_members}, not {static}"
        gone = self.targets.keys() - self.members.keys()
        assert not gone, f"{name}: {gone} have a target and are no members"
        unused = self.regexes.keys() - self._regex_members.keys()
        assert not unused, f"{name}: no member subscribes by {unused}"
        for what, counted, found in (
            ("topics", self._names, [topic for m in members for topic in m.subscribed_names]),
            ("expressions", self._regex_members, [m.subscribed_regex for m in members if m.subscribed_regex]),
            ("assignors", self._assignors, [m.server_assignor for m in members if m.server_assignor]),
            (
                "classic protocols",
                self._classic_protocols,
                [offer.name for m in members if m.classic is not None for offer in m.classic.protocols],
            ),
        ):
            assert Counter(found) == counted, f"{name}: {what} are {Counter(found)}, counted were {counted}"
        held = sum(m.held_bytes for m in members) + sum(map(held_by_names, self._subscriptions))
        assert held == self.held_bytes, f"{name}: {held} bytes are held, {self.held_bytes} were counted"
        shared = dict(self._subscriptions.values())
        assert shared == Counter(m.subscribed_names for m in members), f"{name}: subscriptions are {shared}"
        classic_count = sum(member.speaks_classic for member in members)
        assert classic_count == self.classic_count, (
            f"{name}: {classic_count} classic members, counted were {self.classic_count}"
        )

    # Offsets and deletion.

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, api_version: int
    ) -> None:
        """Check that a member of the current epoch commits, or any client while the group is empty.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH (ILLEGAL_GENERATION for a member that uses the
                classic protocol), UNSUPPORTED_VERSION: this version cannot carry a member epoch.
        """
        del instance_id
        if epoch < 0 and not self.members:
            return
        member = self.member(member_id)
        if not transactional and not member.speaks_classic and api_version < _COMMIT_WITH_MEMBER_EPOCH:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"OffsetCommit version {_COMMIT_WITH_MEMBER_EPOCH} or above must be used by members using "
                f"the modern group protocol",
            )
        _check_epoch(member, epoch)

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that a member of the current epoch fetches, or a client that names no member.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH or ILLEGAL_GENERATION.
        """
        if member_id is None and epoch < 0:
            return
        _check_epoch(self.member(member_id or ""), epoch)

    def validate_offset_delete(self) -> None:
        """Allow the deletion of offsets; `is_subscribed` excludes topics."""

    def validate_delete(self) -> None:
        """Check that the group is empty.

        Raises:
            ApiError: NON_EMPTY_GROUP.
        """
        if self.members:
            raise ApiError(
                ErrorCode.NON_EMPTY_GROUP, f"Group {self.group_id} has {len(self.members)} members."
            )

    def offsets_expire_since(self, commit_timestamp_ms: int) -> int | None:
        """Return the time of the commit: callers skip topics that the group subscribes to."""
        return commit_timestamp_ms

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """Return the records that delete the group, without its offsets."""
        return group_removal(self.group_id, self.members.keys() | self.targets.keys(), self.regexes)


def _check_epoch(member: Member, epoch: int) -> None:
    if epoch == member.epoch:
        return
    if member.speaks_classic:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The received generation id {epoch} does not match the expected member epoch {member.epoch}.",
        )
    raise ApiError(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}.",
    )


def _discount(counts: Counter[str], names: Sequence[str] | frozenset[str]) -> None:
    for name in names:
        if counts[name] <= 1:
            del counts[name]
        else:
            counts[name] -= 1
