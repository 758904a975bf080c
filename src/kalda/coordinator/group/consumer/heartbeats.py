"""Decides ConsumerGroupHeartbeat: members join, stay and leave (KIP-848).

A heartbeat goes through up to three steps, each of which may write records: the member's metadata, with a new
group epoch if subscriptions changed; a new target assignment for that epoch; the member's step towards its
target. Nothing is changed here: replaying the records changes the group.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.consumer_group_records import (
    current_record,
    group_epoch_record,
    member_record,
    member_removal,
    regex_record,
    target_record,
    topics_record,
)
from kalda.coordinator.group.consumer.consumer_groups import ConsumerGroups
from kalda.coordinator.group.consumer.current_assignment import reconcile, renounce
from kalda.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Assignment,
    Member,
    MemberState,
    TopicMetadata,
    assignment_of,
)
from kalda.coordinator.group.consumer.member_validation import (
    check_epoch,
    check_heartbeat,
    check_instance_is_released,
    check_not_fenced,
)
from kalda.coordinator.group.consumer.regular_expressions import MayDescribe, check_regex
from kalda.coordinator.group.consumer.target_assignment import compute_target, subscribed_ids
from kalda.coordinator.group.consumer.target_computation import is_long
from kalda.coordinator.group.group import GroupType
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.events.event import EventKind
from kalda.protocol.messages.consumer_group_heartbeat import (
    Assignment as AssignmentStruct,
)
from kalda.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

logger: Final = logging.getLogger(__name__)

REGEXES_MAX: Final = 16
"""The most regular expressions of one group. What each of them matches is kept and written again whenever
topics change: seventy that matched 5,000 topics took 0.15 s."""

SUBSCRIBED_NAMES_MAX: Final = 10_000
"""The most topics that one member names. Each takes some 5 us of the heartbeat that names it."""


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of the first step: the member before and after, the group epoch and the topics."""

    group: ConsumerGroup
    before: Member
    member: Member
    epoch: int
    topics: Mapping[str, TopicMetadata]


class Heartbeats:
    """Decides the requests of members that use the consumer protocol."""

    def __init__(self, groups: ConsumerGroups) -> None:
        self._groups: Final = groups

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        api_version: int,
        client_id: str,
        client_host: str,
        may_describe: MayDescribe,
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        """Decide a heartbeat.

        Raises:
            ApiError: the request is refused, with the code and text of the response.
        """
        check_heartbeat(request, api_version, self._groups.assignors)
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(request)
        return self._stay(request, client_id, client_host, may_describe)

    # Joining and staying.

    def _stay(
        self,
        request: ConsumerGroupHeartbeatRequest,
        client_id: str,
        client_host: str,
        may_describe: MayDescribe,
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        groups = self._groups
        records: list[CoordinatorRecord] = []
        joins = request.member_epoch == JOIN_EPOCH
        group = self._group(request.group_id, joins, records)
        member_id = request.member_id or groups.make_member_id()
        size_max = groups.config.group_consumer_max_size
        if len(group.members) >= size_max and member_id not in group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {size_max} members.",
            )
        owned = None if request.topic_partitions is None else assignment_of(request.topic_partitions)
        newcomer = replace(Member(member_id), client_id=client_id, client_host=client_host)
        before = self._member(group, newcomer, request, owned, joins, records)
        updated = _changed(before, request, client_id, client_host)
        step = self.update(group, before, updated, records)
        groups.regexes.maybe_start(group, updated.subscribed_regex, may_describe)
        member = self.assign(step, owned, records)
        groups.touch_session(group.group_id, member)
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=groups.times.heartbeat_interval_ms(group.group_id),
        )
        is_full = joins or (
            request.rebalance_timeout_ms != -1
            and owned is not None
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        )
        if is_full or member.assigned != before.assigned:
            response.assignment = _assignment(member.assigned)
        return Result(records, response)

    def _group(self, group_id: str, joins: bool, records: list[CoordinatorRecord]) -> ConsumerGroup:
        if not joins:
            return self._groups.group(group_id)
        present = self._groups.shard.groups.get(group_id)
        if isinstance(present, ConsumerGroup):
            return present
        if present is None:
            return ConsumerGroup(group_id)
        if present.is_empty and present.kind is not GroupType.SHARE:
            records += present.tombstones()
            return ConsumerGroup(group_id)
        upgraded = self._groups.migration.upgrade(present, records)
        if upgraded is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        for member in upgraded.members.values():
            self._groups.touch_session(group_id, member)
        return upgraded

    def _member(
        self,
        group: ConsumerGroup,
        newcomer: Member,
        request: ConsumerGroupHeartbeatRequest,
        owned: Assignment | None,
        joins: bool,
        records: list[CoordinatorRecord],
    ) -> Member:
        """Return the member before the heartbeat: known, new, or about to take over an instance id."""
        instance_id, member_id = request.instance_id, newcomer.member_id
        if instance_id is None:
            member = group.members.get(member_id) if joins else group.member(member_id)
            if member is None:
                logger.info("group %s: member %s joins", group.group_id, member_id)
                self._groups.note_member(EventKind.MEMBER_JOINED, group, newcomer, "a new member")
                return Member(member_id)
            check_epoch(member, request.member_epoch, owned)
            return member
        present = group.static_member(instance_id)
        if not joins:
            if present is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
            check_not_fenced(present, member_id, instance_id)
            check_epoch(present, request.member_epoch, owned)
            return present
        if present is None:
            logger.info("group %s: static member %s joins as %s", group.group_id, instance_id, member_id)
            known = group.members.get(member_id)
            if known is None:
                static = replace(newcomer, instance_id=instance_id)
                self._groups.note_member(EventKind.MEMBER_JOINED, group, static, "a new static member")
            return Member(member_id) if known is None else known
        if (
            present.member_id == member_id
            and present.epoch != LEAVE_STATIC_EPOCH
            and not present.speaks_classic
        ):
            # The response to its first request may be lost, so that it sends the request again.
            check_epoch(present, request.member_epoch, owned)
            return present
        if not present.speaks_classic:
            try:
                check_instance_is_released(present, member_id, instance_id)
            except ApiError:
                self._groups.note_refusal(group, newcomer, instance_id, present)
                raise
        logger.info(
            "group %s: static member %s is back as %s, before it was %s",
            group.group_id,
            instance_id,
            member_id,
            present.member_id,
        )
        return takeover(group, present, member_id, records)

    # The three steps, which members of the classic protocol take as well.

    def update(
        self, group: ConsumerGroup, before: Member, updated: Member, records: list[CoordinatorRecord]
    ) -> Step:
        """Take the first step: write the member's metadata, bump the group epoch if subscriptions change.

        Raises:
            ApiError: what the member adds to the group has no place, or it names too many topics.
        """
        groups = self._groups
        count = len(updated.subscribed_names)
        if count > SUBSCRIBED_NAMES_MAX and updated is not before:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Member {updated.member_id} names {count} topics, and {SUBSCRIBED_NAMES_MAX} are allowed; "
                "use a regular expression.",
            )
        bumps = group.is_empty
        if updated is not before:
            now_ms = groups.shard.context.time_ms()
            growth_bytes = group.growth_bytes(updated)
            groups.shard.memory.require(group.group_id, group.held_bytes, growth_bytes, now_ms)
        if updated != before:
            records.append(member_record(group.group_id, updated))
            bumps = bumps or updated.subscribed_names != before.subscribed_names
            bumps = self._update_regex(group, before, updated, records) or bumps
        replaced = group.static_member(updated.instance_id) or before
        generation, at_epoch = group.refreshed
        epoch, topics = group.epoch, group.topics
        if bumps or generation != groups.topics.generation or group.epoch < at_epoch:
            topics = group.subscribed_topics(groups.topics, without=replaced, member=updated)
            if topics != group.topics:
                bumps = True
                records.append(topics_record(group.group_id, topics))
            if bumps:
                epoch += 1
                records.append(group_epoch_record(group.group_id, epoch))
                logger.info("group %s: epoch %d", group.group_id, epoch)
            group.refreshed = (groups.topics.generation, epoch)
        elif group.epoch > group.assignment_epoch:
            topics = group.subscribed_topics(groups.topics, without=replaced, member=updated)
            if topics != group.topics:
                records.append(topics_record(group.group_id, topics))
        return Step(group, before, updated, epoch, topics)

    def assign(self, step: Step, owned: Assignment | None, records: list[CoordinatorRecord]) -> Member:
        """Take the other steps: compute a target for a new epoch, and move the member towards its target.

        Until the assignment interval has passed, and the target of a large group is computed, the last one
        stays, and members lose only partitions of topics that they do not subscribe to any more (KIP-1263).
        """
        group, member = step.group, step.member
        is_stale = step.epoch > group.assignment_epoch
        now_ms = self._groups.shard.context.time_ms()
        is_due = is_stale and group.may_assign(
            now_ms, self._groups.times.assignment_interval_ms(group.group_id)
        )
        is_later = is_due and is_long(group, step.topics)
        if is_later:
            self._groups.targets.start(group.group_id)
        if is_due and not is_later:
            replaced = group.static_member(member.instance_id) or step.before
            assignor = self._groups.assignor_of(group, replaced, member)
            target = compute_target(group, step.epoch, assignor, step.topics, member, now_ms)
            records += target.records
            target_epoch, wanted = step.epoch, target.assignments[member.member_id]
        else:
            target_epoch = group.assignment_epoch
            wanted = group.target_of(member.member_id, member.instance_id)
            if is_stale:
                subscribed = subscribed_ids(group, member, step.topics)
                wanted = {each: partitions for each, partitions in wanted.items() if each in subscribed}
                if member.is_reconciled_to(target_epoch) or member.state is MemberState.UNREVOKED_PARTITIONS:
                    member = renounce(member, subscribed)
        reconciled = reconcile(member, target_epoch, wanted, owned, group.owner_of)
        if reconciled is not step.member:
            records.append(current_record(group.group_id, reconciled))
            if not member.speaks_classic:
                if reconciled.state is MemberState.UNREVOKED_PARTITIONS:
                    self._groups.watch_revocation(group.group_id, reconciled)
                else:
                    self._groups.unwatch_revocation(group.group_id, reconciled.member_id)
        return reconciled

    def _update_regex(
        self, group: ConsumerGroup, before: Member, updated: Member, records: list[CoordinatorRecord]
    ) -> bool:
        """Delete an unused expression, check a new one; return whether this changes subscriptions now."""
        old, new = before.subscribed_regex, updated.subscribed_regex
        if old == new:
            return False
        if old and old in group.regexes and group.regex_member_count(old) == 1:
            records.append(regex_record(group.group_id, old, None))
        if new:
            if group.regex_member_count(new) == 0:
                others = group.regex_count - (bool(old) and group.regex_member_count(old or "") == 1)
                if others >= REGEXES_MAX:
                    raise ApiError(
                        ErrorCode.INVALID_REQUEST,
                        f"The members of group {group.group_id} subscribe by {others} different regular "
                        f"expressions, and {REGEXES_MAX} are allowed.",
                    )
                check_regex(new)
            return new in group.regexes
        return bool(old)

    # Leaving.

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> Result[ConsumerGroupHeartbeatResponse]:
        group = self._groups.group(request.group_id)
        member_id, instance_id = request.member_id, request.instance_id
        if instance_id is None:
            member = group.member(member_id)
        else:
            found = group.static_member(instance_id)
            if found is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
            check_not_fenced(found, member_id, instance_id)
            member = found
        response = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            logger.info("group %s: static member %s leaves for now", group.group_id, instance_id)
            away = replace(member, epoch=LEAVE_STATIC_EPOCH, pending_revocation={})
            return Result([current_record(group.group_id, away)], response)
        logger.info("group %s: member %s leaves", group.group_id, member_id)
        self._groups.note_member(EventKind.MEMBER_LEFT, group, member, "it left the group")
        return Result(self._groups.remove(group, [member]), response)


def takeover(
    group: ConsumerGroup, present: Member, member_id: str, records: list[CoordinatorRecord]
) -> Member:
    """Return a member that replaces the one with its instance id and inherits its assignment."""
    taken = replace(present, member_id=member_id, epoch=0, previous_epoch=0)
    if present.member_id != member_id:
        records += member_removal(group.group_id, present.member_id)
    records += [
        member_record(group.group_id, taken),
        target_record(group.group_id, member_id, group.target_of(present.member_id)),
        current_record(group.group_id, taken),
    ]
    return taken


def _changed(
    member: Member, request: ConsumerGroupHeartbeatRequest, client_id: str, client_host: str
) -> Member:
    """Return the member with the fields of the request; fields that are null stay."""
    names = request.subscribed_topic_names
    updated = replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=client_id,
        client_host=client_host,
        subscribed_names=member.subscribed_names if names is None else frozenset(names),
        subscribed_regex=(
            member.subscribed_regex
            if request.subscribed_topic_regex is None
            else request.subscribed_topic_regex
        ),
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms
            if request.rebalance_timeout_ms == -1
            else request.rebalance_timeout_ms
        ),
        server_assignor=(
            member.server_assignor if request.server_assignor is None else request.server_assignor
        ),
        classic=None,
    )
    return member if updated == member else updated


def _assignment(assigned: Assignment) -> AssignmentStruct:
    return AssignmentStruct(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(assigned[topic_id]))
            for topic_id in sorted(assigned, key=lambda topic_id: topic_id.int)
        ]
    )
