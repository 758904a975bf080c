"""Serves the share groups of one shard: heartbeats, descriptions, and which partitions have stored state.

A member that joins, leaves or subscribes to other topics bumps the group epoch; with it comes a target
assignment, which a member has with its next heartbeat. A partition that a group subscribes to gets state at
its share coordinator first: the result of a heartbeat names those that need it, and the caller reports what
became of it.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.steps import result_of
from kalda.common.types import UUID
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.consumer.member import (
    EMPTY_ASSIGNMENT,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    Assignment,
    TopicMetadata,
)
from kalda.coordinator.group.consumer.topics import TopicsView
from kalda.coordinator.group.group_shard_state import GroupShardState
from kalda.coordinator.group.offset_events import (
    NO_OFFSET,
    GetAuthor,
    note_deleted,
    note_reset,
    when_written,
)
from kalda.coordinator.group.share.share_group import ShareGroup, topics_hash
from kalda.coordinator.group.share.share_group_config import ASSIGNOR, ShareGroupConfig, ShareGroupTimes
from kalda.coordinator.group.share.share_group_records import (
    current_record,
    group_record,
    member_record,
    member_removal,
    stored_record,
    target_epoch_record,
)
from kalda.coordinator.group.share.share_group_replay import ShareReplay
from kalda.coordinator.group.share.share_member import ShareMember, StatePartitions, StoredPartitions
from kalda.coordinator.group.share.share_targets import is_long, sliced_targets, target_steps
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.coordinator.share.delivery_state import START_UNKNOWN
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.protocol.messages.share_group_describe import Assignment as DescribedAssignment
from kalda.protocol.messages.share_group_describe import DescribedGroup, Member, TopicPartitions
from kalda.protocol.messages.share_group_heartbeat import (
    Assignment as AssignmentStruct,
)
from kalda.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from kalda.protocol.messages.share_group_heartbeat import (
    TopicPartitions as AssignedPartitions,
)

logger: Final = logging.getLogger(__name__)

SUBSCRIBED_NAMES_MAX: Final = 10_000
"""Topics that one member may name: each of them costs some microseconds of each change of its group."""

_FIRST_OFFSET: Final = 0

CREATION_EPOCH: Final = 0
"""The state epoch of a share partition that begins at `_FIRST_OFFSET`. A reset has a later one, so a request
to create that comes again, because its answer was lost, resets nothing."""


class NewState(NamedTuple):
    """A share partition that needs state at its share coordinator."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int
    """-1: the leader of the partition chooses one."""


class Heartbeat(NamedTuple):
    """The response to a heartbeat, and the share partitions that need state."""

    response: ShareGroupHeartbeatResponse
    new_states: tuple[NewState, ...] = ()


class ShareProtocol:
    """The operations of share groups, called by requests and by the shard."""

    def __init__(
        self, shard: GroupShardState, config: ShareGroupConfig, topics: TopicsView, times: ShareGroupTimes
    ) -> None:
        self._shard: Final = shard
        self._config: Final = config
        self._topics: Final = topics
        self._times: Final = times
        self.readers: Final = ShareReplay(shard.groups, self._on_removed, self.not_initialized).readers()
        self._targets: Final = sliced_targets(shard, topics)
        self._asked: Final[dict[str, int]] = {}
        """By group: when state for its partitions was last asked for, in monotonic milliseconds."""

    # Loading.

    def on_loaded(self) -> None:
        """Give every member a full session to come back."""
        for group in list(self._shard.groups.values()):
            if isinstance(group, ShareGroup):
                for member_id in group.members:
                    self._touch(group.group_id, member_id)

    def on_unloaded(self) -> None:
        """Drop everything that is not in the log."""
        self._asked.clear()
        self._targets.clear()

    # Groups.

    def group(self, group_id: str) -> ShareGroup:
        """Return a share group.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND: no group has that id, or the group is of another type.
        """
        found = self._shard.group(group_id)
        if not isinstance(found, ShareGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        return found

    def empty_group(self, group_id: str) -> ShareGroup:
        """Return a share group without members.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP.
        """
        group = self.group(group_id)
        group.validate_delete()
        return group

    def describe(self, group_id: str) -> DescribedGroup:
        """Describe a group; assignments leave out topics that do not exist any more.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND.
        """
        group = self.group(group_id)
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=ASSIGNOR,
            members=[
                Member(
                    member_id=member.member_id,
                    rack_id=member.rack_id,
                    member_epoch=member.epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=sorted(member.subscribed_names),
                    assignment=self._described(member.assigned),
                )
                for _, member in sorted(group.members.items())
            ],
        )

    def _described(self, assignment: Assignment) -> DescribedAssignment:
        named = (
            (self._topics.topic_name(each), each, sorted(numbers)) for each, numbers in assignment.items()
        )
        return DescribedAssignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
                for name, topic_id, numbers in sorted(each for each in named if each[0] is not None)
                if name is not None
            ]
        )

    # Heartbeats.

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> Result[Heartbeat]:
        """Decide a ShareGroupHeartbeat.

        Raises:
            ApiError: the request is refused, with the code and text of the response.
        """
        _check(request)
        if request.member_epoch == LEAVE_EPOCH:
            return self._leave(request)
        records: list[CoordinatorRecord] = []
        joins = request.member_epoch == JOIN_EPOCH
        group = self._joined(request.group_id) if joins else self.group(request.group_id)
        before = self._member(group, request)
        names = request.subscribed_topic_names
        member = replace(
            before,
            rack_id=before.rack_id if request.rack_id is None else request.rack_id,
            client_id=client_id,
            client_host=client_host,
            subscribed_names=before.subscribed_names if names is None else frozenset(names),
        )
        is_new = before.member_id not in group.members
        if is_new or member != before:
            growth_bytes = member.held_bytes - (0 if is_new else before.held_bytes)
            now_ms = self._shard.context.time_ms()
            self._shard.memory.require(group.group_id, group.held_bytes, growth_bytes, now_ms)
            records.append(member_record(group.group_id, member))
        bumps = is_new or member.subscribed_names != before.subscribed_names
        epoch, topics = self._epoch(group, member, bumps, records)
        member = self._assigned(group, member, epoch, topics, records)
        if member.epoch != before.epoch or member.assigned != before.assigned or is_new:
            records.append(current_record(group.group_id, member))
        new_states = self._new_states(group, epoch, topics, records)
        self._touch(group.group_id, member.member_id)
        response = ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._times.heartbeat_interval_ms(group.group_id),
        )
        if joins or member.assigned != before.assigned:
            response.assignment = AssignmentStruct(
                topic_partitions=[
                    AssignedPartitions(topic_id=topic_id, partitions=sorted(member.assigned[topic_id]))
                    for topic_id in sorted(member.assigned, key=lambda each: each.int)
                ]
            )
        return Result(records, Heartbeat(response, new_states))

    def _joined(self, group_id: str) -> ShareGroup:
        if group_id in self._shard.groups:
            return self.group(group_id)
        return ShareGroup(group_id)

    def _member(self, group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
        """Return the member before the heartbeat."""
        member_id, epoch = request.member_id, request.member_epoch
        if epoch == JOIN_EPOCH:
            found = group.members.get(member_id)
            if found is not None:
                return found
            size_max = self._config.group_share_max_size
            if len(group.members) >= size_max:
                raise ApiError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The share group has reached its maximum capacity of {size_max} members.",
                )
            logger.info("share group %s: member %s joins", group.group_id, member_id)
            return ShareMember(member_id)
        member = group.member(member_id)
        # The response to the last heartbeat may be lost.
        if epoch not in (member.epoch, member.previous_epoch):
            raise ApiError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"Member epoch {epoch} of {member_id} is not {member.epoch}. The member must rejoin.",
            )
        return member

    def _epoch(
        self, group: ShareGroup, member: ShareMember, bumps: bool, records: list[CoordinatorRecord]
    ) -> tuple[int, Mapping[str, TopicMetadata]]:
        """Return the group epoch after a heartbeat, and the subscribed topics."""
        topics = group.subscribed_topics(self._topics, without=member.member_id, member=member)
        found = topics_hash(topics)
        if not bumps and found == group.topics_hash:
            return group.epoch, topics
        epoch = group.epoch + 1
        records.append(group_record(group.group_id, epoch, found))
        logger.info("share group %s: epoch %d", group.group_id, epoch)
        return epoch, topics

    def _assigned(
        self,
        group: ShareGroup,
        member: ShareMember,
        epoch: int,
        topics: Mapping[str, TopicMetadata],
        records: list[CoordinatorRecord],
    ) -> ShareMember:
        """Return the member with its target, which is computed for a new epoch; write what changes.

        Until the assignment interval has passed, and the target of a large group is computed, the last one
        stays.
        """
        now_ms = self._shard.context.time_ms()
        interval_ms = self._times.assignment_interval_ms(group.group_id)
        # The last one may be of the future: another broker made it, or the clock was set back.
        may_assign = not group.assigned_ms <= now_ms < group.assigned_ms + interval_ms
        is_due = epoch > group.assignment_epoch and may_assign
        is_later = is_due and is_long(group, topics)
        if is_later:
            self._targets.start(group.group_id)
        if is_due and not is_later:
            members = {**group.members, member.member_id: member}
            target = result_of(target_steps(group, members.values(), topics))
            records += [record for _, record in target.records]
            records.append(target_epoch_record(group.group_id, epoch, now_ms))
            target_epoch, assigned = epoch, target.assignments[member.member_id]
        else:
            target_epoch = group.assignment_epoch
            assigned = group.targets.get(member.member_id, EMPTY_ASSIGNMENT)
        previous = member.epoch if target_epoch != member.epoch else member.previous_epoch
        return replace(member, epoch=target_epoch, previous_epoch=previous, assigned=assigned)

    def _leave(self, request: ShareGroupHeartbeatRequest) -> Result[Heartbeat]:
        group = self.group(request.group_id)
        member = group.member(request.member_id)
        logger.info("share group %s: member %s leaves", group.group_id, member.member_id)
        response = ShareGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVE_EPOCH)
        return Result(self._removal(group, member.member_id), Heartbeat(response))

    def _removal(self, group: ShareGroup, member_id: str) -> list[CoordinatorRecord]:
        topics = group.subscribed_topics(self._topics, without=member_id)
        return [
            *member_removal(group.group_id, member_id),
            group_record(group.group_id, group.epoch + 1, topics_hash(topics)),
        ]

    # Sessions.

    def _touch(self, group_id: str, member_id: str) -> None:
        """Start or prolong a member's session."""
        self._shard.context.schedule(
            _session_key(group_id, member_id),
            self._times.session_timeout_ms(group_id),
            partial(self._on_expired, group_id, member_id),
        )

    def _on_expired(self, group_id: str, member_id: str) -> Result[None]:
        group = self._shard.groups.get(group_id)
        if not isinstance(group, ShareGroup) or member_id not in group.members:
            return Result((), None)
        logger.info("share group %s: member %s is fenced because its session expired", group_id, member_id)
        return Result(self._removal(group, member_id), None)

    def _on_removed(self, group_id: str, member_id: str) -> None:
        if self._shard.is_loaded:
            self._shard.context.cancel(_session_key(group_id, member_id))

    # State at share coordinators.

    def _new_states(
        self,
        group: ShareGroup,
        epoch: int,
        topics: Mapping[str, TopicMetadata],
        records: list[CoordinatorRecord],
    ) -> tuple[NewState, ...]:
        """Return the subscribed partitions that need state, and note that it is asked for."""
        stored = group.stored
        missing: dict[UUID, tuple[str, frozenset[int]]] = {}
        for name, (topic_id, count) in topics.items():
            _, present = stored.initialized.get(topic_id, (name, frozenset()))
            if len(present) < count:
                missing[topic_id] = name, frozenset(range(count)) - present
        if not missing:
            return ()
        context = self._shard.context
        asked_ms = self._asked.get(group.group_id)
        is_known = all(
            numbers <= stored.initializing.get(topic_id, ("", frozenset()))[1]
            for topic_id, (_, numbers) in missing.items()
        )
        retry_ms = self._config.group_share_initialize_retry_interval_ms
        if is_known and asked_ms is not None and context.monotonic_ms() < asked_ms + retry_ms:
            return ()
        self._asked[group.group_id] = context.monotonic_ms()
        if not is_known:
            records.append(stored_record(group.group_id, replace(stored, initializing=missing)))
        return tuple(
            # A partition that a topic gets later has no records that the group was not to see.
            NewState(
                SharePartitionKey(group.group_id, topic_id, number),
                *(
                    (CREATION_EPOCH, _FIRST_OFFSET)
                    if topic_id in stored.initialized
                    else (epoch, START_UNKNOWN)
                ),
            )
            for topic_id, (_, numbers) in missing.items()
            for number in sorted(numbers)
        )

    def initialized(self, group_id: str, keys: Iterable[SharePartitionKey]) -> Result[None]:
        """Note that share partitions have state."""
        group = self._shard.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return Result((), None)
        stored = group.stored
        initializing, done = dict(stored.initializing), dict(stored.initialized)
        for key in keys:
            topic_id = key.topic_id
            name, asked = initializing.get(topic_id, ("", frozenset()))
            name = name or done.get(topic_id, ("", frozenset()))[0] or self._topics.topic_name(topic_id) or ""
            done[topic_id] = name, done.get(topic_id, ("", frozenset()))[1] | {key.partition}
            rest = asked - {key.partition}
            if rest:
                initializing[topic_id] = name, rest
            else:
                initializing.pop(topic_id, None)
        after = replace(stored, initializing=initializing, initialized=done)
        if after == stored:
            return Result((), None)
        return Result([stored_record(group_id, after)], None)

    def not_initialized(self, group_id: str) -> None:
        """Note that state could not be created, or the group is gone: the next heartbeat asks again."""
        self._asked.pop(group_id, None)

    def reset(
        self, group_id: str, topics: Mapping[str, Mapping[int, int]], author: GetAuthor | None = None
    ) -> Result[list[NewState]]:
        """Give share partitions of an empty group other start offsets: topics by name, offsets by partition.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP; UNKNOWN_TOPIC_OR_PARTITION.
        """
        group = self.empty_group(group_id)
        epoch = group.epoch + 1
        initializing = dict(group.stored.initializing)
        states: list[NewState] = []
        for name, offsets in topics.items():
            topic = self._topics.topic(name)
            if topic is None or any(not 0 <= number < topic.partition_count for number in offsets):
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            _, asked = initializing.get(topic.topic_id, (name, frozenset()))
            initializing[topic.topic_id] = name, asked | offsets.keys()
            states += [
                NewState(SharePartitionKey(group_id, topic.topic_id, number), epoch, offset)
                for number, offset in offsets.items()
            ]

        def note() -> None:
            for name, offsets in topics.items():
                changes = [(number, NO_OFFSET, offset) for number, offset in offsets.items()]
                note_reset(self._shard.events, group_id, name, changes, author)

        records = [
            group_record(group_id, epoch, group.topics_hash),
            stored_record(group_id, replace(group.stored, initializing=initializing)),
        ]
        return Result(records, states, when_written(note))

    def begin_delete(
        self,
        group_id: str,
        topic_ids: Collection[UUID] | None,
        *,
        must_be_empty: bool = True,
        author: GetAuthor | None = None,
    ) -> Result[list[SharePartitionKey]]:
        """Note that the state of topics is to be deleted, None for all; return their share partitions.

        State that could not be deleted before is among them. It would fence a later group of the same name.
        If a client asks for it, an event names the `author`.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP.
        """
        group = self.empty_group(group_id) if must_be_empty else self.group(group_id)
        stored = group.stored
        keys: list[SharePartitionKey] = []
        deleting = dict(stored.deleting)
        kept: list[StatePartitions] = []
        for partitions in (stored.initializing, stored.initialized):
            rest: dict[UUID, tuple[str, frozenset[int]]] = {}
            for topic_id, (name, numbers) in partitions.items():
                if topic_ids is not None and topic_id not in topic_ids:
                    rest[topic_id] = name, numbers
                    continue
                deleting[topic_id] = name
                keys += [SharePartitionKey(group_id, topic_id, number) for number in sorted(numbers)]
            kept.append(rest)
        for topic_id, name in stored.deleting.items():
            topic = self._topics.topic(name)
            if (
                topic is not None
                and topic.topic_id == topic_id
                and (topic_ids is None or topic_id in topic_ids)
            ):
                count = topic.partition_count
                keys += [SharePartitionKey(group_id, topic_id, number) for number in range(count)]
        if not keys:
            return Result((), [])
        after = StoredPartitions(kept[0], kept[1], deleting)
        keys = list(dict.fromkeys(keys))

        def note() -> None:
            if author is not None:
                reason = "a client deleted them (DeleteShareGroupOffsets)"
                deleted = ((group_id, deleting[key.topic_id]) for key in keys)
                note_deleted(self._shard.events, deleted, reason, author)

        return Result([stored_record(group_id, after)], keys, when_written(note))

    def end_delete(self, group_id: str, topic_ids: Collection[UUID]) -> Result[None]:
        """Note that the state of topics was deleted."""
        group = self._shard.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            return Result((), None)
        deleting = {each: name for each, name in group.stored.deleting.items() if each not in topic_ids}
        if deleting == group.stored.deleting:
            return Result((), None)
        return Result([stored_record(group_id, replace(group.stored, deleting=deleting))], None)


def _check(request: ShareGroupHeartbeatRequest) -> None:
    """Check what the fields of a heartbeat allow by themselves.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    problem = None
    if not request.group_id:
        problem = "GroupId can't be empty."
    elif not request.member_id:
        problem = "MemberId can't be empty."
    elif request.rack_id == "":
        problem = "RackId can't be empty."
    elif request.member_epoch < LEAVE_EPOCH:
        problem = f"MemberEpoch is {request.member_epoch}, but must be greater than or equal to -1."
    elif request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        problem = "SubscribedTopicNames must be set in first request."
    elif len(request.subscribed_topic_names or ()) > SUBSCRIBED_NAMES_MAX:
        problem = f"A member may subscribe to {SUBSCRIBED_NAMES_MAX} topics."
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)


def _session_key(group_id: str, member_id: str) -> str:
    # With the length, because both ids may have slashes.
    return f"share-session/{len(group_id)}/{group_id}/{member_id}"
