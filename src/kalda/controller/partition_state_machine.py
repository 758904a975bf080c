"""Defines the partition state machine: legal transitions, and pure functions that elect leaders.

An election function takes a partition's state, its replicas, and which of them are online or serving. It
returns the state to write, with the version that it may replace, or None if the state needs no change.
*Online* replicas may be leader and in sync. *Serving* replicas may keep the leadership they have; they are
the online ones and those whose broker is shutting down. A replica on a dead broker or in a failed log
directory is neither.
"""

from collections.abc import Container
from dataclasses import replace
from enum import Enum
from typing import Final

from kalda.cluster.schema import NO_LEADER, PartitionState


class PartitionStatus(Enum):
    """The states of Kafka's partition state machine."""

    NON_EXISTENT = "NonExistentPartition"
    """Never created, or deleted."""
    NEW = "NewPartition"
    """Has replicas, but no state in ZooKeeper yet."""
    ONLINE = "OnlinePartition"
    """Has a live leader."""
    OFFLINE = "OfflinePartition"
    """Had a leader and has none now."""


VALID_PREVIOUS: Final = {
    PartitionStatus.NON_EXISTENT: frozenset({PartitionStatus.OFFLINE}),
    PartitionStatus.NEW: frozenset({PartitionStatus.NON_EXISTENT}),
    PartitionStatus.ONLINE: frozenset({PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}),
    PartitionStatus.OFFLINE: frozenset(
        {PartitionStatus.NEW, PartitionStatus.ONLINE, PartitionStatus.OFFLINE}
    ),
}


class ElectionStrategy(Enum):
    """Why a partition state is rewritten. A refused write is decided again with its strategy."""

    OFFLINE = "offline"
    """Leaders and in-sync replicas that are not online are replaced; controlled shutdown is such a case."""
    UNCLEAN = "unclean"
    """As `OFFLINE`, and an operator allows a leader that is not in sync."""
    PREFERRED = "preferred"
    """The first replica of the assignment becomes leader."""
    REASSIGNMENT = "reassignment"
    """All target replicas are in sync: the replicas to remove leave leadership and ISR."""
    NEW_EPOCH = "new epoch"
    """The assignment changed: brokers accept a changed assignment only with a new leader epoch."""


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
    """Return the state needed after a failure, return or shutdown of brokers, or None if it may stay.

    An online leader stays, and replicas that are not online leave the ISR. A leader that shuts down is
    replaced by the first replica, in assignment order, that is online and in sync; without one it stays
    leader, alone. Without a serving leader the same order decides. If no in-sync replica is online and
    unclean election is allowed, the first online replica leads, alone in sync and recovering (KIP-704).
    Otherwise the partition has no leader and keeps its ISR: each member has every committed record, so the
    first to return may lead. Members that are no longer assigned leave the ISR, unless that would empty it.
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
    isr = tuple(replica for replica in state.isr if replica in replicas) or state.isr
    if (state.leader, state.isr) == (NO_LEADER, isr):
        return None
    return _changed(state, NO_LEADER, isr, controller_epoch)


def preferred_state(
    state: PartitionState, replicas: tuple[int, ...], online: Container[int], controller_epoch: int
) -> PartitionState | None:
    """Return the state with the first replica as leader; None if it leads already.

    None too if the first replica is not online or not in sync.
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
