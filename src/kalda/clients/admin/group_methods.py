"""Holds the admin client's methods on groups and their committed offsets."""

from collections.abc import Collection, Iterable, Mapping

from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.groups import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroupDescription,
    ConsumerGroupDescription,
    FetchedOffsets,
    GroupListing,
    GroupState,
    GroupType,
    MemberToRemove,
    PartitionOutcomes,
)
from kalda.clients.admin.outcomes import Listing, Outcomes
from kalda.clients.argument_checks import check_collection
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import TopicPartition


class GroupMethods(AdminMethods):
    """Lists, describes and deletes groups, removes members, and reads and changes committed offsets."""

    async def list_groups(
        self,
        *,
        states: Collection[GroupState] = (),
        types: Collection[GroupType] = (),
        protocol_types: Collection[str] = (),
        timeout_ms: int | None = None,
    ) -> Listing[GroupListing]:
        """List the groups of all brokers, of any protocol.

        Args:
            states: Only groups in one of these states (brokers 2.6 and newer, KIP-518); empty for all.
            types: Only groups of one of these types (KIP-848); empty for all. Brokers before 3.8 have classic
                groups only.
            protocol_types: Only groups with one of these protocol types, e.g. ``consumer``; empty for all.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            The groups, sorted by id, and the errors of brokers that did not answer.

        Raises:
            ClientError: no broker can be reached.
        """
        from kalda.clients.admin.group_calls import ListGroups

        brokers = await self._open_runner().broker_ids(timeout_ms)
        answers = await self._run(ListGroups(states, types), brokers, timeout_ms, outcomes=True)
        found = {
            each.group_id: each
            for listings in answers.results.values()
            for each in listings
            if not protocol_types or each.protocol_type in protocol_types
        }
        return Listing((found[group_id] for group_id in sorted(found)), answers.errors)

    async def list_consumer_groups(
        self,
        *,
        states: Collection[GroupState] = (),
        types: Collection[GroupType] = (),
        timeout_ms: int | None = None,
    ) -> Listing[GroupListing]:
        """List the groups of consumers, and groups that only store offsets.

        Args:
            states: Only groups in one of these states (brokers 2.6 and newer, KIP-518); empty for all.
            types: CLASSIC or CONSUMER for groups of that protocol only; empty for both.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            The groups, sorted by id, and the errors of brokers that did not answer.

        Raises:
            ClientError: no broker can be reached.
        """
        return await self.list_groups(
            states=states,
            types=types or (GroupType.CLASSIC, GroupType.CONSUMER),
            protocol_types=("", CONSUMER_PROTOCOL_TYPE),
            timeout_ms=timeout_ms,
        )

    async def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, ConsumerGroupDescription]:
        """Describe groups of consumers, of the classic and of the consumer protocol.

        Args:
            group_ids: The groups.
            include_authorized_operations: Whether to return what this client may do (brokers 2.3 and newer).
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By group id, the state, the members and what they consume, or the error: GROUP_ID_NOT_FOUND;
            INVALID_GROUP_ID for a group of another protocol type, see `describe_classic_groups`.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.group_description_calls import DescribeConsumerGroups

        operation = DescribeConsumerGroups(include_authorized_operations)
        return await self._run(operation, group_ids, timeout_ms, outcomes=outcomes)

    async def describe_classic_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, ClassicGroupDescription]:
        """Describe groups of the classic protocol with any protocol type (KIP-1043).

        Args:
            group_ids: The groups.
            include_authorized_operations: Whether to return what this client may do (brokers 2.3 and newer).
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By group id, the description or the error, e.g. GROUP_ID_NOT_FOUND.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.group_description_calls import DescribeClassicGroups

        operation = DescribeClassicGroups(include_authorized_operations)
        return await self._run(operation, group_ids, timeout_ms, outcomes=outcomes)

    async def delete_consumer_groups(
        self, group_ids: Iterable[str], *, outcomes: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, None]:
        """Delete groups without members, and their committed offsets (KIP-229).

        Args:
            group_ids: The groups, of any protocol.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By group id, None or the error: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.group_calls import DeleteGroups

        return await self._run(DeleteGroups(), group_ids, timeout_ms, outcomes=outcomes)

    async def remove_members_from_consumer_group(
        self,
        members: Mapping[str, Iterable[MemberToRemove] | None],
        *,
        reason: str | None = None,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, Outcomes[MemberToRemove, None]]:
        """Remove members from classic groups. A member that still runs joins again, unless it is static.

        Args:
            members: By group id, the members to remove; None removes all.
            reason: A text for the coordinator's log (brokers 3.2 and newer, KIP-800).
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for each round of requests; `default.api.timeout.ms` unless given.

        Returns:
            By group id, the outcome of each member, or the error of the group.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.group_calls import RemoveMembers

        named = {group_id: tuple(each) for group_id, each in members.items() if each is not None}
        whole = [group_id for group_id, each in members.items() if each is None]
        described = await self.describe_consumer_groups(whole, outcomes=True, timeout_ms=timeout_ms)
        for group_id, group in described.results.items():
            named[group_id] = tuple(
                MemberToRemove(group_instance_id=each.group_instance_id)
                if each.group_instance_id is not None
                else MemberToRemove(each.member_id)
                for each in group.members
            )
        operation = RemoveMembers({group_id: each for group_id, each in named.items() if each}, reason)
        removed = await self._run(operation, operation.members, timeout_ms, outcomes=True)
        nothing: dict[str, Outcomes[MemberToRemove, None]] = {
            group_id: Outcomes({}) for group_id, each in named.items() if not each
        }
        ended = Outcomes({**removed.results, **nothing}, {**removed.errors, **described.errors})
        if not outcomes:
            ended.raise_for_errors()
        return ended

    async def list_consumer_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, FetchedOffsets]:
        """Return the offsets that groups have committed.

        Args:
            groups: The groups; a mapping also names the partitions of each, None for all with an offset.
            require_stable: Whether to wait for transactions that commit offsets (brokers 2.5 and newer,
                KIP-447).
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By group id, the offsets by partition, or the error of the group. A partition that was named and
            has no committed offset is None. A group that does not exist has no offsets.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.group_offset_calls import ListGroupOffsets

        check_collection("groups", groups)
        partitions: Mapping[str, Iterable[TopicPartition] | None] = (
            groups if isinstance(groups, Mapping) else dict.fromkeys(groups)
        )
        operation = ListGroupOffsets(partitions, require_stable)
        return await self._run(operation, partitions, timeout_ms, outcomes=outcomes)

    async def alter_consumer_group_offsets(
        self,
        offsets: Mapping[str, Mapping[TopicPartition, int | OffsetAndMetadata]],
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, PartitionOutcomes]:
        """Commit offsets for groups that have no members; a group that does not exist is created.

        Args:
            offsets: By group id and partition, the offset of the next record to consume.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By group id, the outcome of each partition, e.g. UNKNOWN_MEMBER_ID where the group has members, or
            the error of the group.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.group_offset_calls import AlterGroupOffsets

        given = {
            group_id: {
                partition: each if isinstance(each, OffsetAndMetadata) else OffsetAndMetadata(each)
                for partition, each in of_group.items()
            }
            for group_id, of_group in offsets.items()
        }
        return await self._run(AlterGroupOffsets(given), given, timeout_ms, outcomes=outcomes)

    async def delete_consumer_group_offsets(
        self,
        partitions: Mapping[str, Iterable[TopicPartition]],
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, PartitionOutcomes]:
        """Delete committed offsets of partitions without a subscribed member (KIP-496, brokers from 2.4).

        Args:
            partitions: By group id, the partitions.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By group id, the outcome of each partition, e.g. GROUP_SUBSCRIBED_TO_TOPIC, or the error of the
            group: GROUP_ID_NOT_FOUND and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.group_offset_calls import DeleteGroupOffsets

        operation = DeleteGroupOffsets(partitions)
        return await self._run(operation, operation.partitions, timeout_ms, outcomes=outcomes)
