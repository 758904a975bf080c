"""Changes the protocol of a live group, when its first consumer member joins or its last one leaves.

An upgrade turns the generation into the epoch, and the leader's last assignment into the current and the
target assignment of the members, which go on with the classic protocol (see `classic_members`). A downgrade
does the reverse and has the members join again, because the partitions of the last consumer member are free.
Until they have joined, the record holds the partitions that they own, not their target: a group that is
upgraded again starts from it.

What must not break: the record of a downgraded group has members and no leader, which no generation has. A
broker that replays it, live or after a failover, finds by this that the members must join again.
"""

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from kalda.common.errors import ErrorCode
from kalda.common.types import UUID
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.classic.classic_group import ClassicGroup, GroupState
from kalda.coordinator.group.classic.classic_member import ClassicMember
from kalda.coordinator.group.classic.rebalance import Rebalance
from kalda.coordinator.group.consumer.consumer_group import PROTOCOL_TYPE, ConsumerGroup
from kalda.coordinator.group.consumer.consumer_group_config import ConsumerGroupConfig
from kalda.coordinator.group.consumer.consumer_group_records import (
    current_record,
    group_epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
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
from kalda.coordinator.group.consumer.topics import TopicsView
from kalda.coordinator.group.group import Group
from kalda.coordinator.group.group_shard_state import GroupShardState
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.protocol.protocol_errors import ProtocolError

logger: Final = logging.getLogger(__name__)


class Migration:
    """Upgrades and downgrades groups, as far as `group.consumer.migration.policy` allows."""

    def __init__(
        self,
        shard: GroupShardState,
        config: ConsumerGroupConfig,
        topics: TopicsView,
        rebalance: Rebalance,
    ) -> None:
        """`rebalance` is that of the shard's classic protocol."""
        self._shard: Final = shard
        self._config: Final = config
        self._topics: Final = topics
        self._rebalance: Final = rebalance

    # Up.

    def upgrade(self, group: Group, records: list[CoordinatorRecord]) -> ConsumerGroup | None:
        """Add the records of an upgrade to `records` and return the group, None if it is not allowed."""
        config = self._config
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
        records += group.tombstones()
        records += _group_records(upgraded)
        return upgraded

    def _upgraded(self, group: ClassicGroup, member: ClassicMember) -> Member:
        """Return a member as it is in the last generation."""
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
            # During a rebalance members have no assignment, but cooperative members still own partitions.
            assigned=(
                read_assignment(member.assignment, self._topics)
                or owned_assignment(subscription.owned_partitions, self._topics)
            ),
        )

    def _end_waits(self, group: ClassicGroup) -> None:
        """Have members join again that wait for a generation or an assignment."""
        for member in group.members.values():
            self._rebalance.answer_both(group, member, ErrorCode.REBALANCE_IN_PROGRESS)
        self._rebalance.answers.give()

    # Down.

    def downgrade(self, group: ConsumerGroup, leaving: Collection[Member]) -> list[CoordinatorRecord] | None:
        """Return the records that downgrade a group when members leave, None if it stays a consumer group."""
        going = {member.member_id for member in leaving}
        staying = [member for member_id, member in group.members.items() if member_id not in going]
        if (
            not staying
            or any(member.speaks_classic for member in leaving)
            or not all(member.speaks_classic for member in staying)
            or not self._config.migration_policy.may_downgrade
            or len(staying) > self._shard.config.group_max_size
        ):
            return None
        logger.info("group %s becomes a classic group with %d members", group.group_id, len(staying))
        return [*group.tombstones(), self._downgraded(group, staying).record()]

    def check(self, group_id: str) -> None:
        """Soon downgrade the group if all members are classic: one may have replaced the last other."""
        self._shard.context.schedule(f"consumer-downgrade/{group_id}", 0, partial(self._check, group_id))

    def _check(self, group_id: str) -> Result[None]:
        group = self._shard.groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or not group.is_all_classic:
            return Result((), None)
        return Result(self.downgrade(group, ()) or (), None)

    def _downgraded(self, group: ConsumerGroup, members: Collection[Member]) -> ClassicGroup:
        classic = ClassicGroup(group.group_id, self._shard.context.time_ms())
        classic.generation_id = group.epoch
        for member in members:
            assert member.classic is not None, f"{member.member_id} does not use the classic protocol"
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
                    assignment=assignment_bytes(member, _held(member), self._topics),
                ),
                None,
            )
        classic.protocol_name = classic.select_protocol()
        classic.leader_id = None
        classic.state = GroupState.STABLE
        return classic


def _held(member: Member) -> Assignment:
    """Return the partitions that a member uses or has not revoked."""
    held = dict(member.assigned)
    for topic_id, partitions in member.pending_revocation.items():
        held[topic_id] = held.get(topic_id, frozenset()) | partitions
    return held


def _without_conflicts(members: Iterable[Member]) -> Iterator[Member]:
    """Yield the members without partitions of a member before: leaders make mistakes, reports get stale."""
    taken: set[tuple[UUID, int]] = set()
    for member in members:
        assigned: dict[UUID, frozenset[int]] = {}
        for topic_id, partitions in member.assigned.items():
            free = frozenset(number for number in partitions if (topic_id, number) not in taken)
            if free:
                assigned[topic_id] = free
                taken.update((topic_id, number) for number in free)
        yield replace(member, assigned=assigned)


def _group_records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Return all records of a group."""
    group_id = group.group_id
    members = [member for _, member in sorted(group.members.items())]
    return [
        *(member_record(group_id, member) for member in members),
        group_epoch_record(group_id, group.epoch),
        *(target_record(group_id, member.member_id, group.targets[member.member_id]) for member in members),
        target_epoch_record(group_id, group.assignment_epoch),
        *(current_record(group_id, member) for member in members),
    ]
