"""Computes a member's next step towards its target: first revoke partitions, then take free ones (KIP-848).

A pure function; Kafka's counterpart is ``CurrentAssignmentBuilder``. Example: A owns p0 and p1, and the
target of the new epoch gives p1 to B. A's response lacks p1, and A stays in its epoch
(UNREVOKED_PARTITIONS); B goes to the new epoch without partitions (UNRELEASED_PARTITIONS). When A's heartbeat
does not name p1 any more, A goes to the new epoch, and B's next heartbeat gets p1.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import UUID
from kalda.coordinator.group.consumer.member import Assignment, Member, MemberState, overlaps


def reconcile(
    member: Member,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    owner_of: Callable[[UUID, int], str | None],
) -> Member:
    """Return the member after the step, or the same object if there is no step.

    `owned` are the partitions that the member reports, None if it reports none; `owner_of` returns the
    current owner of a partition.

    Raises:
        ApiError: FENCED_MEMBER_EPOCH: a newer broker wrote a state that is unknown here.
    """
    match member.state:
        case MemberState.STABLE:
            if member.epoch == target_epoch:
                return member
            return _advance(member, member.epoch, target_epoch, target, owned, owner_of)
        case MemberState.UNREVOKED_PARTITIONS:
            if owned is None or overlaps(owned, member.pending_revocation):
                return member
            # Its epoch may be that of the target already, if it has renounced topics since.
            epoch = min(member.epoch + 1, target_epoch)
            return _advance(member, epoch, target_epoch, target, owned, owner_of)
        case MemberState.UNRELEASED_PARTITIONS:
            return _advance(member, member.epoch, target_epoch, target, owned, owner_of)
        case MemberState.UNKNOWN:
            if owned is None or owned:
                raise ApiError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return _advance(member, target_epoch, target_epoch, target, owned, owner_of)


def renounce(member: Member, subscribed: Collection[UUID]) -> Member:
    """Return the member with partitions of topics that it does not subscribe to any more to be revoked.

    For a member whose target is older than its subscription; the same object if there are no such partitions.
    """
    keep = {
        topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id in subscribed
    }
    if len(keep) == len(member.assigned):
        return member
    revoke = dict(member.pending_revocation)
    for topic_id in member.assigned.keys() - keep.keys():
        revoke[topic_id] = revoke.get(topic_id, frozenset()) | member.assigned[topic_id]
    return _changed(member, MemberState.UNREVOKED_PARTITIONS, member.epoch, keep, revoke)


def _advance(
    member: Member,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    owner_of: Callable[[UUID, int], str | None],
) -> Member:
    """Compute what the member keeps, revokes and gets; `epoch` is its epoch while it revokes."""
    keep: dict[UUID, frozenset[int]] = {}
    revoke: dict[UUID, frozenset[int]] = {}
    for topic_id, partitions in member.assigned.items():
        staying = partitions & target.get(topic_id, frozenset())
        if staying:
            keep[topic_id] = staying
        if len(staying) < len(partitions):
            revoke[topic_id] = partitions - staying
    if revoke and (owned is None or overlaps(owned, revoke)):
        return _changed(member, MemberState.UNREVOKED_PARTITIONS, epoch, keep, revoke)
    has_unreleased = False
    for topic_id, partitions in target.items():
        wanted = partitions - keep.get(topic_id, frozenset())
        # Partitions that this step revokes still have this member as owner: they become free with its record,
        # and only other members want them.
        free = frozenset(partition for partition in wanted if owner_of(topic_id, partition) is None)
        has_unreleased = has_unreleased or len(free) < len(wanted)
        if free:
            keep[topic_id] = keep.get(topic_id, frozenset()) | free
    state = MemberState.UNRELEASED_PARTITIONS if has_unreleased else MemberState.STABLE
    return _changed(member, state, target_epoch, keep, {})


def _changed(
    member: Member, state: MemberState, epoch: int, assigned: Assignment, pending_revocation: Assignment
) -> Member:
    """Return the changed member; its epoch becomes the previous epoch, even if it stays the same."""
    changed = replace(
        member,
        state=state,
        epoch=epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        pending_revocation=pending_revocation,
    )
    return member if changed == member else changed
