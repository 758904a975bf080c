"""The table of read leases: bounds, deadlines, and what deletion and the cleaner may do."""

import itertools

import pytest

from kalda.broker.leases.read_leases import LeaseLimits, LeaseRefusedError, ReadLease, ReadLeases
from kalda.common.types import TopicPartition

ORDERS = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


def table(leases_max: int = 100, lease_ms: int = 60_000, lifetime_ms: int = 300_000) -> ReadLeases:
    ids = itertools.count(1)
    return ReadLeases(LeaseLimits(leases_max, lease_ms, lifetime_ms), lambda: next(ids))


def grant(leases: ReadLeases, start: int, end: int, now: float = 0.0) -> ReadLease:
    return leases.grant(ORDERS, start, end, leader_epoch=3, now=now)


def test_deletion_stops_at_the_lowest_leased_offset() -> None:
    leases = table()
    grant(leases, 50, 100)
    grant(leases, 20, 60)

    assert 20 == leases.removable_below(ORDERS, 80, 1.0)
    assert 10 == leases.removable_below(ORDERS, 10, 1.0)
    assert 80 == leases.removable_below(OTHER, 80, 1.0)


def test_deletion_goes_on_after_the_release() -> None:
    leases = table()
    lease = grant(leases, 0, 100)
    assert 0 == leases.removable_below(ORDERS, 80, 1.0)

    assert lease is leases.release(lease.lease_id, 2.0)
    assert 80 == leases.removable_below(ORDERS, 80, 2.0)


def test_deletion_goes_on_when_the_reader_died() -> None:
    """Nobody releases the lease of a killed executor."""
    leases = table()
    grant(leases, 0, 100)

    assert 0 == leases.removable_below(ORDERS, 80, 59.9)
    assert 80 == leases.removable_below(ORDERS, 80, 60.0)
    assert (0, 1, 1) == (len(leases), leases.granted, leases.expired)


def test_a_waiting_deletion_closes_its_offsets_to_new_leases() -> None:
    """Readers that come one after the other would otherwise hold the deletion back for ever."""
    leases = table()
    lease = grant(leases, 0, 100)
    leases.removable_below(ORDERS, 80, 1.0)

    with pytest.raises(LeaseRefusedError, match="below 80 are about to be deleted"):
        grant(leases, 79, 100, now=2.0)
    grant(leases, 80, 100, now=2.0)

    leases.release(lease.lease_id, 3.0)
    assert 80 == leases.removable_below(ORDERS, 80, 3.0)
    grant(leases, 10, 100, now=4.0)


def test_a_deletion_that_never_comes_back_does_not_close_offsets_for_ever() -> None:
    """Retention may change its mind, e.g. after an operator raised `retention.ms`."""
    leases = table()
    grant(leases, 0, 100)
    leases.removable_below(ORDERS, 80, 1.0)

    grant(leases, 0, 100, now=602.0)


def test_the_cleaners_smaller_wish_does_not_open_what_retention_waits_for() -> None:
    leases = table()
    grant(leases, 50, 100)
    assert 50 == leases.removable_below(ORDERS, 80, 1.0)

    assert 40 == leases.removable_below(ORDERS, 40, 2.0)

    with pytest.raises(LeaseRefusedError, match="below 80"):
        grant(leases, 60, 100, now=3.0)
    assert 1 == leases.refused


def test_a_renewed_lease_holds_longer_but_not_for_ever() -> None:
    leases = table()
    lease = grant(leases, 0, 100)

    for now in range(30, 300, 30):
        assert lease is leases.renew(lease.lease_id, ORDERS, now)
        assert lease.deadline <= 300.0
    assert 0 == leases.removable_below(ORDERS, 80, 299.0)
    assert leases.renew(lease.lease_id, ORDERS, 300.0) is None
    assert 80 == leases.removable_below(ORDERS, 80, 300.0)


def test_only_a_lease_that_holds_can_be_renewed() -> None:
    leases = table()
    lease = grant(leases, 0, 100)

    assert leases.renew(lease.lease_id + 1, ORDERS, 1.0) is None
    assert leases.renew(lease.lease_id, OTHER, 1.0) is None
    assert leases.renew(lease.lease_id, ORDERS, 60.0) is None


def test_a_full_table_refuses() -> None:
    leases = table(leases_max=2)
    grant(leases, 0, 1)
    grant(leases, 1, 2, now=30.0)

    with pytest.raises(LeaseRefusedError, match=r"`kalda\.read\.lease\.max`=2"):
        grant(leases, 2, 3, now=59.0)
    grant(leases, 2, 3, now=60.0)


def test_a_truncation_breaks_the_leases_that_reach_behind_it() -> None:
    leases = table()
    cut, kept = grant(leases, 0, 100), grant(leases, 0, 40)

    leases.on_truncation(ORDERS, 40)

    assert (True, False) == (cut.is_broken, kept.is_broken)
    assert leases.renew(cut.lease_id, ORDERS, 1.0) is None
    assert cut is leases.release(cut.lease_id, 1.0)


def test_the_cleaner_waits_for_leases_and_gets_no_new_ones_while_it_works() -> None:
    leases = table()
    lease = grant(leases, 0, 100)
    assert not leases.begin_rewrite(ORDERS, 50, 1.0)

    leases.release(lease.lease_id, 2.0)
    assert leases.begin_rewrite(ORDERS, 50, 2.0)
    with pytest.raises(LeaseRefusedError, match="below 50"):
        grant(leases, 0, 100, now=3.0)
    grant(leases, 50, 100, now=3.0)

    leases.end_rewrite(ORDERS)
    grant(leases, 0, 100, now=4.0)


def test_a_deleted_log_has_no_leases() -> None:
    leases = table()
    lease = grant(leases, 0, 100)
    leases.removable_below(ORDERS, 80, 1.0)

    leases.forget(ORDERS)

    assert leases.release(lease.lease_id, 1.0) is None
    grant(leases, 0, 100, now=1.0)


def test_thousands_of_short_leases_leave_nothing_behind() -> None:
    leases = table(leases_max=10)
    for _ in range(5_000):
        lease = grant(leases, 0, 100)
        leases.release(lease.lease_id, 0.0)

    assert 0 == len(leases)
    assert len(leases._deadlines) <= 64
    assert not leases._by_partition
