"""Assigns partitions from the members' subscriptions, as the leader of a classic group does. Pure."""

from collections.abc import Mapping, Sequence

from kalda.clients.consumer.assignors.cooperative_sticky_assignor import CooperativeStickyAssignor
from kalda.clients.consumer.assignors.partition_assignor import (
    Assignment,
    PartitionAssignor,
    RebalanceProtocol,
    Subscription,
)
from kalda.clients.consumer.group.classic_subscription import read_assignment, read_subscription
from kalda.clients.consumer.group.errors import AssignorError
from kalda.common.types import TopicPartition
from kalda.protocol.messages.join_group import JoinGroupResponse
from kalda.protocol.protocol_errors import ProtocolError


def read_members(response: JoinGroupResponse) -> dict[str, Subscription]:
    """Return the subscriptions of all members, by member id, in the coordinator's order.

    Raises:
        AssignorError: a member sent something else.
    """
    members: dict[str, Subscription] = {}
    for each in response.members:
        try:
            members[each.member_id] = read_subscription(each.metadata, each.group_instance_id)
        except ProtocolError as error:
            raise AssignorError(
                f"the subscription of member {each.member_id} cannot be read: {error}"
            ) from error
    return members


def run_assignor(
    assignor: PartitionAssignor,
    topics: Mapping[str, Sequence[frozenset[str]]],
    subscriptions: Mapping[str, Subscription],
    protocol: RebalanceProtocol,
) -> dict[str, Assignment]:
    """Return the assignment of every member.

    Raises:
        AssignorError: the assignor raised, left a member out or, under the cooperative protocol, gave a
            partition to a member while another one owns it.
    """
    try:
        assigned = assignor.assign(topics, subscriptions)
    except Exception as error:
        # It may be the application's code; the group must know that this member cannot lead.
        raise AssignorError(
            f"the assignor {assignor.name} failed: {type(error).__name__}: {error}"
        ) from error
    if assigned.keys() != subscriptions.keys():
        differing = ", ".join(sorted(assigned.keys() ^ subscriptions.keys()))
        raise AssignorError(
            f"the assignor {assignor.name} has to assign to every member once; see {differing}"
        )
    # The built-in one weighs the generations of owners that contradict each other, and may reassign those.
    if protocol is RebalanceProtocol.COOPERATIVE and not isinstance(assignor, CooperativeStickyAssignor):
        _check_cooperative(assignor.name, subscriptions, assigned)
    return assigned


def read_own_assignment(data: bytes, group_id: str) -> Assignment:
    """Return the assignment that this member got.

    Raises:
        AssignorError: it cannot be read; the leader's assignor left this member out, or is not one for
            consumers.
    """
    try:
        return read_assignment(data)
    except ProtocolError as error:
        raise AssignorError(
            f"the leader of group {group_id} sent an assignment that cannot be read: {error}"
        ) from error


def _check_cooperative(
    name: str, subscriptions: Mapping[str, Subscription], assigned: Mapping[str, Assignment]
) -> None:
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member_id, assignment in assigned.items():
        owned = set(subscriptions[member_id].owned_partitions)
        added |= set(assignment.partitions) - owned
        revoked |= owned.difference(assignment.partitions)
    if both := added & revoked:
        partitions = ", ".join(map(str, sorted(both)))
        raise AssignorError(
            f"the assignor {name} reassigned {partitions}, which other members still own; a cooperative "
            f"assignor first leaves such partitions out, and assigns them in the next rebalance"
        )
