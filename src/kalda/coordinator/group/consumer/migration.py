"""A live group changes its protocol: up when its first consumer member joins, down when the last one leaves.

Up: the generation becomes the epoch, the leader's last assignment what members have and shall have; they stay
members and speak the classic protocol on (see `classic_members`). Down: the other way round, and the members
are told to join again, because what the last consumer member had is free. Until they have, the record says
what they hold, not what they were to get (as in Kafka): a group that goes up again goes by it.

What must not break: the record of a group that went down has members and no leader, which no generation has.
Whoever reads it, now or after a failover, knows by that that the members must be told.
"""

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from struct import Struct
from typing import Final
from uuid import UUID

from kalda.common.errors import ErrorCode
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.classic.classic_group import ClassicGroup, GroupState
from kalda.coordinator.group.classic.classic_member import ClassicMember
from kalda.coordinator.group.classic.rebalance import Rebalance
from kalda.coordinator.group.consumer.consumer_group import PROTOCOL_TYPE, ConsumerGroup
from kalda.coordinator.group.consumer.consumer_groups import ConsumerGroups
from kalda.coordinator.group.consumer.embedded_protocol import (
    assignment_bytes,
    owned_assignment,
    read_assignment,
    read_subscription,
)
from kalda.coordinator.group.consumer.member import (
    Assignment,
    ClassicProtocolOffer,
    ClassicSide,
    Member,
)
from kalda.coordinator.group.consumer.records import (
    current_record,
    group_epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from kalda.coordinator.group.group import Group
from kalda.coordinator.group.records import GROUP_METADATA_KEY_VERSION, read_group_metadata_key
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.protocol.messages.join_group import JoinGroupResponse
from kalda.protocol.messages.sync_group import SyncGroupResponse
from kalda.protocol.protocol_errors import ProtocolError

__all__ = ["Migration"]

logger: Final = logging.getLogger(__name__)

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_RIGID_VERSION_MAX: Final = 3
_TIMESTAMP_FROM: Final = 2


class Migration:
    """Both ways, as far as `group.consumer.migration.policy` allows."""

    def __init__(self, groups: ConsumerGroups, rebalance: Rebalance) -> None:
        """`rebalance` is the classic protocol's, of the same shard."""
        self._groups: Final = groups
        self._rebalance: Final = rebalance
        self._leaderless: Final[set[str]] = set()
        shard = groups.shard
        self._read_group: Final = shard.readers[GROUP_METADATA_KEY_VERSION]
        shard.readers[GROUP_METADATA_KEY_VERSION] = self._read_and_watch

    # Up.

    def upgrade(self, group: Group, records: list[CoordinatorRecord]) -> ConsumerGroup | None:
        """The consumer group that a classic one becomes when `records` are replayed; None if it may not."""
        config = self._groups.config
        if (
            not isinstance(group, ClassicGroup)
            or group.protocol_type != PROTOCOL_TYPE
            or not config.migration_policy.may_upgrade
            or len(group.members) > config.group_consumer_max_size
        ):
            return None
        try:
            members = [self._upgraded(group, member) for member in group.members.values()]
        except ProtocolError as error:
            logger.warning("group %s cannot become a consumer group: %s", group.group_id, error)
            return None
        logger.info("group %s becomes a consumer group with %d members", group.group_id, len(members))
        self._end_waits(group)
        upgraded = ConsumerGroup(group.group_id)
        upgraded.epoch = upgraded.assignment_epoch = group.generation_id
        for member in _without_conflicts(members):
            upgraded.put_member(member)
            upgraded.targets[member.member_id] = member.assigned
            self._groups.touch_session(group.group_id, member)
        records += group.tombstones()
        records += _group_records(upgraded)
        return upgraded

    def _upgraded(self, group: ClassicGroup, member: ClassicMember) -> Member:
        """A member as the last generation left it."""
        name = group.protocol_name
        metadata = member.protocols.get(name or "") or next(iter(member.protocols.values()), b"")
        subscription = read_subscription(metadata)
        return Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_names=frozenset(subscription.topics),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicSide(
                member.session_timeout_ms,
                tuple(ClassicProtocolOffer(each, bytes(data)) for each, data in member.protocols.items()),
            ),
            epoch=group.generation_id,
            previous_epoch=group.generation_id,
            # While a rebalance is repeated nobody has an assignment, but cooperative members have partitions.
            assigned=(
                read_assignment(member.assignment, self._groups.topics)
                or owned_assignment(subscription.owned_partitions, self._groups.topics)
            ),
        )

    def _end_waits(self, group: ClassicGroup) -> None:
        """Have members that wait for a generation or an assignment join again."""
        code = ErrorCode.REBALANCE_IN_PROGRESS
        for member in group.members.values():
            waiting = JoinGroupResponse(error_code=code, member_id=member.member_id)
            self._rebalance.answer_join(group, member, waiting)
            if member.awaiting_sync is not None:
                self._rebalance.answers.add(member.awaiting_sync, SyncGroupResponse(error_code=code))
                member.awaiting_sync = None
        self._rebalance.answers.give()

    # Down.

    def downgrade(self, group: ConsumerGroup, leaving: Collection[Member]) -> list[CoordinatorRecord] | None:
        """The records that make it a classic group without those who leave; None if it is to stay."""
        going = {member.member_id for member in leaving}
        staying = [member for member_id, member in group.members.items() if member_id not in going]
        if (
            not staying
            or any(member.speaks_classic for member in leaving)
            or not all(member.speaks_classic for member in staying)
            or not self._groups.config.migration_policy.may_downgrade
            or len(staying) > self._groups.shard.config.group_max_size
        ):
            return None
        logger.info("group %s becomes a classic group with %d members", group.group_id, len(staying))
        return [*group.tombstones(), self._downgraded(group, staying).record()]

    def check(self, group_id: str) -> None:
        """See soon whether only classic members are left: one may have taken the place of the last other."""
        self._groups.shard.context.schedule(
            f"consumer-downgrade/{group_id}", 0, partial(self._check, group_id)
        )

    def _check(self, group_id: str) -> Result[None]:
        group = self._groups.find(group_id)
        if group is None or not group.is_all_classic:
            return Result((), None)
        return Result(self.downgrade(group, ()) or (), None)

    def _downgraded(self, group: ConsumerGroup, members: Collection[Member]) -> ClassicGroup:
        classic = ClassicGroup(group.group_id, self._groups.shard.context.time_ms())
        classic.generation_id = group.epoch
        for member in members:
            assert member.classic is not None, f"{member.member_id} does not speak the classic protocol"
            classic.add(
                ClassicMember(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.classic.session_timeout_ms,
                    protocol_type=PROTOCOL_TYPE,
                    protocols={offer.name: offer.metadata for offer in member.classic.protocols},
                    assignment=assignment_bytes(member, _held(member), self._groups.topics),
                ),
                None,
            )
        classic.protocol_name = classic.select_protocol()
        classic.leader_id = None
        classic.state = GroupState.STABLE
        return classic

    def on_loaded(self) -> None:
        """Tell the members of groups whose coordinator was lost before it could."""
        for group_id in sorted(self._leaderless):
            self._rebalance_soon(group_id)

    def on_unloaded(self) -> None:
        """Another broker tells them."""
        self._leaderless.clear()

    def _read_and_watch(self, key: bytes, value: bytes | None) -> None:
        """Take in the record of a classic group, and see whether it was a consumer group until now."""
        self._read_group(key, value)
        if value is not None and _is_leaderless(value):
            group_id = read_group_metadata_key(key)
            self._leaderless.add(group_id)
            if self._groups.shard.is_loaded:
                self._rebalance_soon(group_id)
        elif self._leaderless:
            self._leaderless.discard(read_group_metadata_key(key))

    def _rebalance_soon(self, group_id: str) -> None:
        self._groups.shard.context.schedule(
            f"consumer-downgraded/{group_id}", 0, partial(self._rebalance_downgraded, group_id)
        )

    def _rebalance_downgraded(self, group_id: str) -> Result[None]:
        """The record made a group; now its members are watched, and told to join again."""
        group = self._groups.shard.groups.get(group_id)
        if not isinstance(group, ClassicGroup) or group.state is not GroupState.STABLE:
            return Result((), None)
        for member in group.members.values():
            self._rebalance.schedule_heartbeat(group, member)
        records = self._rebalance.prepare(group, "it was a consumer group")
        self._rebalance.answers.give()
        return Result(records, None)


def _held(member: Member) -> Assignment:
    """What a member uses or has not given back."""
    held = dict(member.assigned)
    for topic_id, partitions in member.pending_revocation.items():
        held[topic_id] = held.get(topic_id, frozenset()) | partitions
    return held


def _without_conflicts(members: Iterable[Member]) -> Iterator[Member]:
    """The members, each without what one before has: leaders make mistakes, and claims grow old."""
    taken: set[tuple[UUID, int]] = set()
    for member in members:
        assigned: dict[UUID, frozenset[int]] = {}
        for topic_id, partitions in member.assigned.items():
            free = frozenset(number for number in partitions if (topic_id, number) not in taken)
            if free:
                assigned[topic_id] = free
                taken.update((topic_id, number) for number in free)
        yield replace(member, assigned=assigned)


def _is_leaderless(value: bytes) -> bool:
    """Whether a record of a classic group says who is in it and not who leads.

    Looked at byte by byte, as every group is loaded through here; version 4 is never written by us.
    """
    version: int = _INT16.unpack_from(value)[0]
    if version > _RIGID_VERSION_MAX:
        return False
    position: int = 4 + _INT16.unpack_from(value, 2)[0] + 4
    for _ in ("protocol", "leader"):
        size: int = _INT16.unpack_from(value, position)[0]
        position += 2 + max(size, 0)
    position += 8 if version >= _TIMESTAMP_FROM else 0
    member_count: int = _INT32.unpack_from(value, position)[0]
    return size < 0 < member_count


def _group_records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """All that makes a group from nothing."""
    group_id = group.group_id
    members = [member for _, member in sorted(group.members.items())]
    return [
        *(member_record(group_id, member) for member in members),
        group_epoch_record(group_id, group.epoch),
        *(target_record(group_id, member.member_id, group.targets[member.member_id]) for member in members),
        target_epoch_record(group_id, group.assignment_epoch),
        *(current_record(group_id, member) for member in members),
    ]
