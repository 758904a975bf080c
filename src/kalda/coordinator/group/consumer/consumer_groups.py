"""Holds the consumer groups of one shard: finds them, runs their timers, removes members.

Sessions that expire, revocations that take too long and joins of classic members have timers here. An
operation sets timers while it decides, before its records are written; a timer of a change that was not
written finds nothing to do.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.consumer.assignors.partition_assignor import Assignor
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.consumer_group_config import ConsumerGroupConfig, GroupTimes
from kalda.coordinator.group.consumer.consumer_group_records import (
    group_epoch_record,
    member_removal,
    regex_record,
    topics_record,
)
from kalda.coordinator.group.consumer.member import Member, MemberState
from kalda.coordinator.group.consumer.migration import Migration
from kalda.coordinator.group.consumer.regular_expressions import RegexRefresh
from kalda.coordinator.group.consumer.target_computation import sliced_targets
from kalda.coordinator.group.consumer.topics import TopicsView
from kalda.coordinator.group.group_shard_state import GroupShardState
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.events.event import EventKind

logger: Final = logging.getLogger(__name__)

_JOIN: Final = "join"


class ConsumerGroups:
    """Finds the consumer groups of one shard, runs their timers and removes their members."""

    def __init__(
        self,
        shard: GroupShardState,
        config: ConsumerGroupConfig,
        topics: TopicsView,
        make_member_id: Callable[[], str],
        migration: Migration,
        times: GroupTimes,
    ) -> None:
        self.shard: Final = shard
        self.config: Final = config
        self.topics: Final = topics
        self.make_member_id: Final = make_member_id
        self.times: Final = times
        self.assignors: Final = config.assignors()
        self.regexes: Final = RegexRefresh(shard, topics)
        self.targets: Final = sliced_targets(shard, self.assignor_of)
        self.migration: Final = migration
        self._join_required: Final[set[str]] = set()

    # Groups.

    def group(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND: no group has that id, or the group is of another type.
        """
        found = self.shard.group(group_id)
        if not isinstance(found, ConsumerGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return found

    def find(self, group_id: str) -> ConsumerGroup | None:
        """Return a consumer group, None if there is none of that id."""
        found = self.shard.groups.get(group_id)
        return found if isinstance(found, ConsumerGroup) else None

    def assignor_of(
        self, group: ConsumerGroup, before: Member | None = None, after: Member | None = None
    ) -> Assignor:
        """Return the assignor of a group, after the member `before` becomes `after`."""
        name = group.preferred_assignor(before, after)
        return self.assignors.get(name or "") or next(iter(self.assignors.values()))

    # Loading.

    def on_loaded(self) -> None:
        """Give every member a full session to come back, and a rebalance timeout to revoke partitions."""
        for group in list(self.shard.groups.values()):
            if not isinstance(group, ConsumerGroup):
                continue
            for member in group.members.values():
                self.touch_session(group.group_id, member)
                if member.state is MemberState.UNREVOKED_PARTITIONS and not member.speaks_classic:
                    self.watch_revocation(group.group_id, member)

    def on_unloaded(self) -> None:
        """Drop everything that is not in the log."""
        self.regexes.clear()
        self.targets.clear()
        self._join_required.clear()

    # Timers.

    def touch_session(self, group_id: str, member: Member) -> None:
        """Start or prolong a member's session."""
        timeout_ms = self.times.session_timeout_ms(group_id)
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.shard.context.schedule(
            _session_key(group_id, member.member_id),
            timeout_ms,
            partial(self._on_expired, group_id, member.member_id, "its session expired"),
        )

    def watch_revocation(self, group_id: str, member: Member) -> None:
        """Start the timer that fences a member if it stays in its epoch for its rebalance timeout."""
        self.shard.context.schedule(
            _revocation_key(group_id, member.member_id),
            member.rebalance_timeout_ms,
            partial(self._on_revocation_timeout, group_id, member.member_id, member.epoch),
        )

    def unwatch_revocation(self, group_id: str, member_id: str) -> None:
        """Cancel the timer: the member has revoked its partitions."""
        self.shard.context.cancel(_revocation_key(group_id, member_id))

    def watch_classic(self, group_id: str, member: Member, phase: str) -> None:
        """Give a classic member its rebalance timeout to join again or to sync (`phase` join or sync).

        The time for joining counts from the first response that required it.
        """
        key = _classic_key(group_id, member.member_id, phase)
        if phase == _JOIN:
            if key in self._join_required:
                return
            self._join_required.add(key)
        self.shard.context.schedule(
            key,
            member.rebalance_timeout_ms,
            partial(self._on_expired, group_id, member.member_id, f"it did not {phase} in time"),
        )

    def unwatch_classic(self, group_id: str, member_id: str, phase: str) -> None:
        """Cancel the timer: the classic member has joined or synced."""
        key = _classic_key(group_id, member_id, phase)
        self._join_required.discard(key)
        self.shard.context.cancel(key)

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        """Cancel a member's timers, once its removal is replayed: until then the write may still fail."""
        if not self.shard.is_loaded:
            return
        context = self.shard.context
        context.cancel(_session_key(group_id, member_id))
        context.cancel(_revocation_key(group_id, member_id))
        self.unwatch_classic(group_id, member_id, _JOIN)
        self.unwatch_classic(group_id, member_id, "sync")

    def _on_expired(self, group_id: str, member_id: str, reason: str) -> Result[None]:
        group = self.find(group_id)
        member = group.members.get(member_id) if group is not None else None
        self._join_required.discard(_classic_key(group_id, member_id, _JOIN))
        if group is None or member is None:
            return Result((), None)
        logger.info("group %s: member %s is fenced because %s", group_id, member_id, reason)
        self.note_member(EventKind.MEMBER_FAILED, group, member, reason)
        return Result(self.remove(group, [member]), None)

    def _on_revocation_timeout(self, group_id: str, member_id: str, epoch: int) -> Result[None]:
        group = self.find(group_id)
        member = group.members.get(member_id) if group is not None else None
        if group is None or member is None or member.epoch != epoch:
            return Result((), None)
        logger.info(
            "group %s: member %s is fenced because it did not leave epoch %d within %d ms",
            group_id,
            member_id,
            epoch,
            member.rebalance_timeout_ms,
        )
        self.note_member(
            EventKind.MEMBER_FAILED,
            group,
            member,
            f"it did not give up its partitions within max.poll.interval.ms={member.rebalance_timeout_ms}",
        )
        return Result(self.remove(group, [member]), None)

    def note_member(self, kind: str, group: ConsumerGroup, member: Member, reason: str) -> None:
        """Emit what a member did, which makes the group assign its partitions again."""
        events = self.shard.events
        cause = events.emit(
            kind,
            {"group": group.group_id, "member": member.member_id, "client": member.client_id},
            {"reason": reason, "host": member.client_host, "instance_id": member.instance_id},
        )
        events.emit(
            EventKind.GROUP_REBALANCING,
            {"group": group.group_id},
            {
                "reason": f"{member.member_id}: {reason}",
                "generation": group.epoch,
                "members": len(group.members),
                "protocol": "consumer",
            },
            cause=cause,
        )

    def note_refusal(self, group: ConsumerGroup, member: Member, instance_id: str, present: Member) -> None:
        """Emit an event for a client that tries to join with the instance id of a present member."""
        self.shard.events.emit_seldom(
            EventKind.MEMBER_REFUSED,
            {"group": group.group_id, "client": member.client_id},
            {
                "reason": f"group.instance.id={instance_id} is that of member {present.member_id} (client id "
                f"{present.client_id}, at {present.client_host})",
                "host": member.client_host,
            },
        )

    # Removing members.

    def remove(self, group: ConsumerGroup, members: Sequence[Member]) -> list[CoordinatorRecord]:
        """Return the records that remove members, of which there is at least one.

        They bump the group epoch, or downgrade the group if only classic members stay.
        """
        assert members, f"no member leaves group {group.group_id}"
        downgraded = self.migration.downgrade(group, members)
        if downgraded is not None:
            return downgraded
        records: list[CoordinatorRecord] = []
        for member in members:
            records += member_removal(group.group_id, member.member_id)
        going = {member.member_id for member in members}
        regexes = {member.subscribed_regex for member in members if member.subscribed_regex}
        for regex in sorted(regexes & group.regexes.keys()):
            if not any(
                one.subscribed_regex == regex for one in group.members.values() if one.member_id not in going
            ):
                records.append(regex_record(group.group_id, regex, None))
        if len(members) == 1:
            topics = group.subscribed_topics(self.topics, without=members[0])
            if topics != group.topics:
                records.append(topics_record(group.group_id, topics))
        records.append(group_epoch_record(group.group_id, group.epoch + 1))
        return records


def _session_key(group_id: str, member_id: str) -> str:
    return _member_key("consumer-session", group_id, member_id)


def _revocation_key(group_id: str, member_id: str) -> str:
    return _member_key("consumer-revocation", group_id, member_id)


def _classic_key(group_id: str, member_id: str, phase: str) -> str:
    return _member_key(f"consumer-{phase}", group_id, member_id)


def _member_key(kind: str, group_id: str, member_id: str) -> str:
    # Members choose their ids; without the length, `b/c` of group `a` would be `c` of group `a/b`.
    return f"{kind}/{len(group_id)}/{group_id}/{member_id}"
