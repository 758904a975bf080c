"""The partition state machine: the legal transitions, and who shall lead.

Elections are functions of the partition's state and of who lives; they return the state to write, with the
version it may replace, or None where nothing is to change.
"""

from collections.abc import Container
from dataclasses import replace
from enum import Enum
from typing import Final

from kalda.coordination.schema import NO_LEADER, PartitionState


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


def first_state(
    replicas: tuple[int, ...], live: Container[int], controller_epoch: int
) -> PartitionState | None:
    """Return the state of a new partition: its live replicas are the ISR, the first of them leads.

    None while no replica lives.

    Replicas (3, 1, 2) of which 1 and 2 live → leader 1, ISR (1, 2).
    """
    isr = tuple(replica for replica in replicas if replica in live)
    if not isr:
        return None
    return PartitionState(isr[0], 0, isr, controller_epoch)


def next_state(
    state: PartitionState,
    replicas: tuple[int, ...],
    live: Container[int],
    controller_epoch: int,
    *,
    is_unclean_allowed: bool,
) -> PartitionState | None:
    """Return the state that the death or return of brokers asks for, or None if this one will do.

    A live leader stays, and dead replicas leave the ISR. Without a live leader the first replica, in order
    of assignment, that lives and is in sync leads; failing that, where unclean election is allowed, the first
    that lives, alone in sync and recovering (KIP-704). Failing that too, the partition has no leader and its
    ISR is kept: each of its members has every committed record, so whichever returns first may lead.
    """
    isr = tuple(replica for replica in state.isr if replica in live)
    if state.leader in live and state.leader in isr:
        if isr == state.isr:
            return None
        return _changed(state, state.leader, isr, controller_epoch)
    for replica in replicas:
        if replica in isr:
            return _changed(state, replica, isr, controller_epoch)
    if is_unclean_allowed:
        for replica in replicas:
            if replica in live:
                unclean = _changed(state, replica, (replica,), controller_epoch)
                return replace(unclean, leader_recovering=True)
    if state.leader == NO_LEADER:
        return None
    return _changed(state, NO_LEADER, state.isr, controller_epoch)


def _changed(
    state: PartitionState, leader: int, isr: tuple[int, ...], controller_epoch: int
) -> PartitionState:
    return replace(
        state, leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr, controller_epoch=controller_epoch
    )
