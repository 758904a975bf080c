"""Who shall lead: each strategy as a table of small cases."""

import pytest

from kalda.cluster.schema import NO_LEADER, PartitionState
from kalda.controller.partition_state_machine import (
    first_state,
    next_state,
    preferred_state,
    reassigned_state,
    renewed_state,
)

Ids = tuple[int, ...]


def state(leader: int, *isr: int) -> PartitionState:
    return PartitionState(leader, 7, isr, 1, version=4)


def outcome(found: PartitionState | None) -> tuple[int, Ids, bool] | None:
    """What was decided; a decision always raises the leader epoch and names our own epoch."""
    if found is None:
        return None
    assert (8, 2, 4) == (found.leader_epoch, found.controller_epoch, found.version)
    return found.leader, found.isr, found.leader_recovering


@pytest.mark.parametrize(
    ("before", "online", "shutting_down", "is_unclean_allowed", "after"),
    [
        (state(1, 1, 2, 3), (1, 2, 3), (), False, None),
        (state(1, 1, 2, 3), (1, 3), (), False, (1, (1, 3), False)),
        (state(1, 1, 2, 3), (2, 3), (), False, (2, (2, 3), False)),
        (state(1, 1, 3), (2, 3), (), False, (3, (3,), False)),
        (state(1, 1), (2, 3), (), False, (NO_LEADER, (1,), False)),
        (state(1, 1), (2, 3), (), True, (2, (2,), True)),
        (state(1, 1, 2), (3,), (), False, (NO_LEADER, (1, 2), False)),
        (state(NO_LEADER, 1, 2), (3,), (), False, None),
        (state(NO_LEADER, 1, 2), (3, 2), (), False, (2, (2,), False)),
        (state(NO_LEADER, 1, 2), (), (), True, None),
        # A leader that shuts down hands over, a follower leaves, and who is alone goes on.
        (state(1, 1, 2, 3), (2, 3), (1,), False, (2, (2, 3), False)),
        (state(1, 1, 2, 3), (1, 3), (2,), False, (1, (1, 3), False)),
        (state(1, 1), (2, 3), (1,), False, None),
        (state(1, 1), (2, 3), (1,), True, None),
        (state(1, 1, 2), (3,), (1, 2), False, (1, (1,), False)),
        # Shutting down is no reason to elect a replica.
        (state(1, 1, 2), (3,), (2,), False, (NO_LEADER, (1, 2), False)),
        # A leader that is not in the ISR, or not assigned any more, does not stay.
        (state(1, 2), (1, 2), (), False, (2, (2,), False)),
        (state(4, 4, 2), (1, 2), (), False, (2, (2,), False)),
        # A broker that is no replica leaves the ISR even if no replica is online, unless it is alone there.
        (state(1, 1, 4), (3,), (), False, (NO_LEADER, (1,), False)),
        (state(NO_LEADER, 4, 1), (3,), (), False, (NO_LEADER, (1,), False)),
        (state(4, 4), (1, 2), (), False, (NO_LEADER, (4,), False)),
        (state(NO_LEADER, 4), (1, 2), (), False, None),
    ],
)
def test_deaths_returns_and_shutdowns(
    before: PartitionState,
    online: Ids,
    shutting_down: Ids,
    is_unclean_allowed: bool,
    after: tuple[int, Ids, bool] | None,
) -> None:
    serving = (*online, *shutting_down)
    found = next_state(before, (1, 2, 3), online, serving, 2, is_unclean_allowed=is_unclean_allowed)
    assert after == outcome(found)


@pytest.mark.parametrize(
    ("before", "online", "after"),
    [
        (state(2, 2, 1, 3), (1, 2, 3), (1, (2, 1, 3), False)),
        (state(2, 2, 1, 3), (1, 2), (1, (2, 1), False)),
        (state(NO_LEADER, 1), (1,), (1, (1,), False)),
        (state(1, 1, 2), (1, 2), None),
        (state(2, 2, 3), (1, 2, 3), None),
        (state(2, 2, 1), (2,), None),
    ],
)
def test_preferred_replica_leads_if_it_may(
    before: PartitionState, online: Ids, after: tuple[int, Ids, bool] | None
) -> None:
    assert after == outcome(preferred_state(before, (1, 2, 3), online, 2))


@pytest.mark.parametrize(
    ("before", "online", "after"),
    [
        (state(1, 1, 2, 3, 4), (1, 2, 3, 4), (4, (2, 4), False)),
        (state(2, 1, 2, 3, 4), (1, 2, 3, 4), (2, (2, 4), False)),
        (state(1, 1, 2, 4), (2, 4), (4, (2, 4), False)),
        (state(1, 1, 2, 3), (1, 2, 3, 4), None),
        (state(1, 1, 2, 4), (1, 2), None),
        (state(NO_LEADER, 2, 4), (2, 4), (4, (2, 4), False)),
    ],
)
def test_move_is_complete_when_all_targets_are_in_sync(
    before: PartitionState, online: Ids, after: tuple[int, Ids, bool] | None
) -> None:
    """From (1, 2, 3) to (4, 2): replicas are removed only when nothing depends on them."""
    assert after == outcome(reassigned_state(before, (4, 2), online, 2))


def test_first_state_is_of_those_online() -> None:
    assert PartitionState(1, 0, (1, 2), 2) == first_state((3, 1, 2), (1, 2), 2)
    assert first_state((3, 1, 2), (), 2) is None


def test_new_epoch_changes_nothing_else() -> None:
    assert (1, (1, 2), False) == outcome(renewed_state(state(1, 1, 2), 2))
