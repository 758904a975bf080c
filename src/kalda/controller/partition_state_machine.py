"""The partition state machine: the legal transitions, and who shall lead.

Elections are functions of the partition's state and of who lives; they return the state to write, with the
version it may replace, or None where nothing is to change. Of two sets of replicas they are told: those
*online* may lead and be in sync; those *serving* may keep what they have, which adds the replicas whose
broker is shutting down. A replica on a dead broker or in a failed log directory is in neither.
"""

from collections.abc import Container
from dataclasses import replace
from enum import Enum
from typing import Final

from kalda.zk.client.schema import NO_LEADER, PartitionState


class PartitionStatus(Enum):
    """Where a partition stands."""

    NON_EXISTENT = "NonExistentPartition"
    """Never created, or deleted."""
    NEW = "NewPartition"
    """Has replicas, but no state in ZooKeeper yet."""
    ONLINE = "OnlinePartition"
    """Has a leader that lives."""
    OFFLINE = "OfflinePartition"
    """Had a leader; now there is none."""


VALID_PREVIOUS: Final = {
    PartitionStatus.NON_EXISTENT: frozenset({PartitionStatus.OFFLINE}),
    PartitionStatus.NEW: frozenset({PartitionStatus.NON_EXISTENT}),
    PartitionStatus.ONLINE: frozenset({PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}),
    PartitionStatus.OFFLINE: frozenset(
        {PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}
    ),
}


class ElectionStrategy(Enum):
    """Why a partition's state is written anew. A write that was refused is judged again by its strategy."""

    OFFLINE = "offline"
    """Leaders and in-sync replicas that are no longer online are replaced; controlled shutdown is a case."""
    UNCLEAN = "unclean"
    """As `OFFLINE`, and an operator allows a leader that is not in sync."""
    PREFERRED = "preferred"
    """The first replica of the assignment is to lead."""
    REASSIGNMENT = "reassignment"
    """All targets are in sync: the replicas to remove give up leadership and their place in the ISR."""
    NEW_EPOCH = "new epoch"
    """Brokers must be told of a changed assignment, which they take up with a new leader epoch only."""


def first_state(
    replicas: tuple[int, ...], online: Container[int], controller_epoch: int
) -> PartitionState | None:
    """Return the state of a new partition: its online replicas are the ISR, the first of them leads.

    None while no replica is online.

    Replicas (3, 1, 2) of which 1 and 2 are online → leader 1, ISR (1, 2).
    """
    isr = tuple(replica for replica in replicas if replica in online)
    if not isr:
        return None
    return PartitionState(isr[0], 0, isr, controller_epoch)


def next_state(
    state: PartitionState,
    replicas: tuple[int, ...],
    online: Container[int],
    serving: Container[int],
    controller_epoch: int,
    *,
    is_unclean_allowed: bool,
) -> PartitionState | None:
    """Return the state that the death, return or shutdown of brokers asks for, or None if this one will do.

    A leader that is online stays, and replicas that are not leave the ISR. One that shuts down hands over to
    the first replica, in order of assignment, that is online and in sync; it goes on alone where there is
    none. Without a leader that serves the same order decides; failing that, where unclean election is
    allowed, the first replica that is online leads, alone in sync and recovering (KIP-704). Failing that too,
    the partition has no leader and its ISR is kept: each of its members has every committed record, so
    whichever returns first may lead.
    """
    in_sync = first_in_sync(replicas, state.isr, online)
    if state.leader in state.isr and state.leader in serving:
        leader = state.leader if state.leader in online or in_sync is None else in_sync
        isr = tuple(replica for replica in state.isr if replica in online or replica == leader)
        if (leader, isr) == (state.leader, state.isr):
            return None
        return _changed(state, leader, isr, controller_epoch)
    if in_sync is not None:
        isr = tuple(replica for replica in state.isr if replica in online)
        return _changed(state, in_sync, isr, controller_epoch)
    if is_unclean_allowed:
        for replica in replicas:
            if replica in online:
                unclean = _changed(state, replica, (replica,), controller_epoch)
                return replace(unclean, leader_recovering=True)
    if state.leader == NO_LEADER:
        return None
    return _changed(state, NO_LEADER, state.isr, controller_epoch)


def preferred_state(
    state: PartitionState, replicas: tuple[int, ...], online: Container[int], controller_epoch: int
) -> PartitionState | None:
    """Return the state in which the first replica leads; None if it does already, or may not.

    It may if it is online and in sync.
    """
    preferred = replicas[0]
    if preferred == state.leader or preferred not in online or preferred not in state.isr:
        return None
    isr = tuple(replica for replica in state.isr if replica in online)
    return _changed(state, preferred, isr, controller_epoch)


def reassigned_state(
    state: PartitionState, target: tuple[int, ...], online: Container[int], controller_epoch: int
) -> PartitionState | None:
    """Return the state that completes a reassignment; None while not all targets are online and in sync.

    The ISR becomes the targets. The leader stays if it is one of them, else the first target leads.

    Leader 1, ISR (1, 2, 3, 4), targets (4, 2) → leader 4, ISR (2, 4).
    """
    if any(replica not in state.isr or replica not in online for replica in target):
        return None
    leader = state.leader if state.leader in target else target[0]
    isr = tuple(replica for replica in state.isr if replica in target)
    return _changed(state, leader, isr, controller_epoch)


def renewed_state(state: PartitionState, controller_epoch: int) -> PartitionState:
    """Return the same leadership under the next leader epoch."""
    return _changed(state, state.leader, state.isr, controller_epoch)


def first_in_sync(replicas: tuple[int, ...], isr: tuple[int, ...], online: Container[int]) -> int | None:
    """Return the first replica, in order of assignment, that is online and in sync."""
    return next((replica for replica in replicas if replica in isr and replica in online), None)


def _changed(
    state: PartitionState, leader: int, isr: tuple[int, ...], controller_epoch: int
) -> PartitionState:
    assert leader == NO_LEADER or leader in isr, f"{state} would be led by {leader}, outside the ISR {isr}"
    return replace(
        state, leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr, controller_epoch=controller_epoch
    )
