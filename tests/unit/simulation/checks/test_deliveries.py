"""The checker of a share group's deliveries: what it calls wrong, and what a leader that moves may do."""

import pytest

from kalda.clients.share.acknowledgements import AcknowledgeType
from kalda.simulation.checks.deliveries import DeliveryCheck, Grant, Place, Violation

AT: Place = (0, 7)
LOCK_MS = 1_000
BACKOFF_MS = 200


class Leader:
    """A leader in one term, whose sessions stay open until they end."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.has_session = True
        self.gives_up = False

    def grant(self, now_ms: int) -> Grant:
        is_open, is_held = lambda: self.has_session, lambda: not self.gives_up
        return Grant(self, self.epoch, now_ms + LOCK_MS, is_open, is_held)


class Group:
    """Members, of which each report is checked at once."""

    def __init__(self, limit: int = 3) -> None:
        self.check = DeliveryCheck(limit, lambda deliveries: BACKOFF_MS)
        self.leader = Leader(4)

    def deliver(self, member: str, count: int, now_ms: int, leader: Leader | None = None) -> list[str]:
        grant = (leader or self.leader).grant(now_ms)
        return rules(self.check.acquired(member, AT, count, grant, now_ms))

    def acknowledge(self, member: str, kind: AcknowledgeType, now_ms: int, epoch: int = 4) -> None:
        self.check.sent(member, AT, kind, now_ms)
        self.check.answered(member, AT, is_stored=True, epoch=epoch)


def rules(found: list[Violation]) -> list[str]:
    return [each.rule for each in found]


def test_deliveries_after_a_release_are_right_once_the_back_off_is_over() -> None:
    group = Group()
    assert [] == group.deliver("a", 1, 0)
    group.acknowledge("a", AcknowledgeType.RELEASE, 10)
    assert [] == group.deliver("b", 2, 10 + BACKOFF_MS)


def test_a_delivery_during_the_back_off_is_wrong_unless_the_leader_is_another_one() -> None:
    group = Group()
    group.deliver("a", 1, 0)
    group.acknowledge("a", AcknowledgeType.RELEASE, 10)
    assert ["released records wait"] == group.deliver("b", 2, 9 + BACKOFF_MS)
    group = Group()
    group.deliver("a", 1, 0)
    group.acknowledge("a", AcknowledgeType.RELEASE, 10)
    assert [] == group.deliver("b", 2, 11, Leader(5))


def test_a_release_with_a_delay_waits_for_that_and_not_for_the_back_off() -> None:
    for delay_ms, at_ms, expected in (
        (0, 10, []),
        (5 * BACKOFF_MS, 9 + 5 * BACKOFF_MS, ["released records wait"]),
        (5 * BACKOFF_MS, 10 + 5 * BACKOFF_MS, []),
    ):
        group = Group()
        group.deliver("a", 1, 0)
        group.check.sent("a", AT, AcknowledgeType.RELEASE, 10, delay_ms=delay_ms)
        group.check.answered("a", AT, is_stored=True, epoch=4)
        assert expected == group.deliver("b", 2, at_ms)


@pytest.mark.parametrize("kind", [AcknowledgeType.ACCEPT, AcknowledgeType.REJECT])
def test_a_delivery_after_the_end_is_wrong_from_the_epoch_of_its_leader_on(kind: AcknowledgeType) -> None:
    group = Group()
    group.deliver("a", 1, 0)
    group.acknowledge("a", kind, 10, epoch=5)
    # A leader that has been replaced and does not know it.
    assert [] == group.deliver("b", 2, 20, Leader(4))
    assert ["no delivery after the end"] == group.deliver("c", 2, 20, Leader(5))
    # A response that arrives late: nobody knows which leader holds what it says.
    assert [] == group.check.acquired("d", AT, 2, None, 30)


def test_an_end_without_an_answer_may_not_have_been_stored() -> None:
    group = Group()
    group.deliver("a", 1, 0)
    group.check.sent("a", AT, AcknowledgeType.ACCEPT, 10)
    group.check.answered("a", AT, is_stored=False)
    assert [] == group.deliver("b", 2, 20)
    assert 1 == group.check.of(AT).ends_sent


def test_a_refused_end_was_not_stored() -> None:
    group = Group()
    group.deliver("a", 1, 0)
    group.check.sent("a", AT, AcknowledgeType.ACCEPT, 10)
    group.check.answered("a", AT, is_stored=False, is_refused=True)
    assert 0 == group.check.of(AT).ends_sent


def test_a_released_delivery_counts() -> None:
    group = Group()
    group.deliver("a", 1, 0)
    group.acknowledge("a", AcknowledgeType.RELEASE, 10)
    assert ["deliveries are counted"] == group.deliver("b", 1, 500, Leader(5))


def test_no_delivery_is_above_the_limit() -> None:
    group = Group(limit=2)
    assert ["no delivery above the limit"] == group.deliver("a", 3, 0)


def test_a_release_under_way_may_be_taken_for_one_of_the_next_delivery() -> None:
    """The member was given the record again, by the next leader, before its release arrived there."""
    group = Group()
    group.deliver("a", 1, 0)
    group.check.sent("a", AT, AcknowledgeType.RELEASE, 10)
    later = Leader(5)
    group.deliver("a", 1, 11, later)
    group.check.answered("a", AT, is_stored=True, epoch=5)
    assert [] == group.deliver("b", 2, 500, later)


def test_a_refused_release_was_not_taken_for_one_of_the_next_delivery() -> None:
    group = Group()
    group.deliver("a", 1, 0)
    group.check.sent("a", AT, AcknowledgeType.RELEASE, 10)
    later = Leader(5)
    group.deliver("a", 1, 11, later)
    group.check.answered("a", AT, is_stored=False, is_refused=True)
    assert ["one member at a time"] == group.deliver("b", 2, 500, later)


def test_a_refused_release_does_not_undo_that_of_the_next_delivery() -> None:
    group = Group()
    group.deliver("a", 1, 0)
    group.check.sent("a", AT, AcknowledgeType.RELEASE, 10)
    group.deliver("a", 2, 11 + BACKOFF_MS)
    group.check.sent("a", AT, AcknowledgeType.RELEASE, 300)
    group.check.answered("a", AT, is_stored=False, is_refused=True)
    assert [] == group.deliver("b", 3, 600)


def test_an_answered_release_is_not_taken_for_one_of_the_next_delivery() -> None:
    group = Group()
    group.deliver("a", 1, 0)
    group.acknowledge("a", AcknowledgeType.RELEASE, 10)
    group.deliver("a", 2, 600)
    assert ["one member at a time"] == group.deliver("b", 3, 700)


def test_a_record_belongs_to_one_member_until_its_lock_or_its_session_ends() -> None:
    group = Group()
    group.deliver("a", 1, 0)
    assert ["one member at a time"] == group.deliver("b", 2, LOCK_MS - 1)
    group = Group()
    group.deliver("a", 1, 0)
    assert [] == group.deliver("b", 2, LOCK_MS)
    group = Group()
    group.deliver("a", 1, 0)
    group.leader.has_session = False
    assert [] == group.deliver("b", 1, 10)


def test_a_leader_takes_nothing_away_from_a_member_before_its_lock_or_its_session_ends() -> None:
    group = Group()
    group.deliver("a", 1, 0)
    assert [] == group.check.taken_away(LOCK_MS - 1)
    group.leader.gives_up = True
    assert ["records stay with their member"] == rules(group.check.taken_away(LOCK_MS - 1))
    assert [] == group.check.taken_away(LOCK_MS - 1), "it is reported once"
    group.deliver("a", 2, 0)
    assert [] == group.check.taken_away(LOCK_MS)
    group.deliver("a", 3, 0)
    group.leader.has_session = False
    assert [] == group.check.taken_away(1)


def test_what_a_member_has_acknowledged_may_be_taken_away() -> None:
    group = Group()
    group.deliver("a", 1, 0)
    group.leader.gives_up = True
    group.check.sent("a", AT, AcknowledgeType.ACCEPT, 10)
    assert [] == group.check.taken_away(11)


def test_an_acknowledgement_that_is_under_way_may_be_taken_for_one_of_the_next_delivery() -> None:
    group = Group()
    group.deliver("a", 1, 0)
    group.check.sent("a", AT, AcknowledgeType.ACCEPT, LOCK_MS)
    group.deliver("a", 2, LOCK_MS)
    group.leader.gives_up = True
    assert [] == group.check.taken_away(LOCK_MS + 1)


@pytest.mark.parametrize("kind", [AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.RELEASE])
def test_a_later_leader_knows_of_each_end_that_was_acknowledged(kind: AcknowledgeType) -> None:
    group = Group()
    group.deliver("a", 1, 0)
    group.check.sent("a", AT, kind, 10)
    later = group.check.answered(
        "a", AT, is_stored=True, epoch=5, forgotten_by=lambda place, epoch: f"a leader above {epoch}"
    )
    expected = [] if kind is AcknowledgeType.RELEASE else ["what is stored stays"]
    assert expected == rules(later)


def test_a_rejection_after_the_lock_may_be_of_a_record_that_was_given_up_since() -> None:
    """The broker takes acknowledgements below the start of the share partition, and they change nothing."""
    group = Group()
    group.deliver("a", 1, 0)
    group.deliver("b", 2, LOCK_MS)
    group.acknowledge("b", AcknowledgeType.RELEASE, LOCK_MS + 1)
    group.acknowledge("a", AcknowledgeType.REJECT, LOCK_MS + 2)
    assert 0 == group.check.of(AT).rejected_count


def test_a_delivery_may_be_reported_after_the_rejection_of_one_before() -> None:
    group = Group()
    group.deliver("a", 1, 0)
    group.acknowledge("a", AcknowledgeType.REJECT, LOCK_MS + 2)
    assert 1 == group.check.of(AT).rejected_count
    group.check.acquired("b", AT, 2, None, LOCK_MS + 3)
    assert 0 == group.check.of(AT).rejected_count


def test_an_answer_may_arrive_after_the_next_delivery_to_the_same_member() -> None:
    """A ShareFetch acknowledges and acquires in one request."""
    group = Group()
    group.deliver("a", 1, 0)
    group.check.sent("a", AT, AcknowledgeType.RELEASE, 10)
    assert [] == group.deliver("a", 2, 10 + BACKOFF_MS)
    group.check.answered("a", AT, is_stored=True, epoch=4)
    group.acknowledge("a", AcknowledgeType.ACCEPT, 300)
    assert 4 == group.check.of(AT).accepted_epoch


def test_two_leaders_answer_a_member_in_any_order() -> None:
    """The first answer is to the renewal; that of the leader that was replaced comes later, or never."""
    group = Group()
    group.deliver("a", 1, 0)
    group.check.sent("a", AT, AcknowledgeType.ACCEPT, 10)
    group.deliver("a", 1, 20, Leader(6))
    group.check.sent("a", AT, AcknowledgeType.RENEW, 30)
    assert [] == group.check.answered(
        "a", AT, is_stored=True, epoch=6, forgotten_by=lambda place, epoch: "the leader in epoch 6"
    )
    group.check.sent("a", AT, AcknowledgeType.ACCEPT, 40)
    group.check.answered("a", AT, is_stored=True, epoch=6)
    group.check.answered("a", AT, is_stored=False)
    assert -1 == group.check.of(AT).end_epoch


@pytest.mark.parametrize("is_answered_first", [True, False])
def test_a_late_rejection_may_be_one_of_the_next_delivery_to_the_same_member(is_answered_first: bool) -> None:
    """The lock of the first has ended; the leader cannot tell of which delivery the member speaks."""
    group = Group()
    group.deliver("a", 1, 0)
    group.check.sent("a", AT, AcknowledgeType.REJECT, LOCK_MS - 1)
    if is_answered_first:
        group.check.answered("a", AT, is_stored=True, epoch=4)
        group.check.acquired("a", AT, 2, None, LOCK_MS + 1)
    else:
        group.deliver("a", 2, LOCK_MS + 1)
        group.check.answered("a", AT, is_stored=True, epoch=4)
    assert (4, 0) == (group.check.of(AT).rejected_epoch, group.check.of(AT).rejected_count)


def test_a_rejection_counts_as_its_delivery() -> None:
    group = Group()
    group.deliver("a", 1, 0)
    group.deliver("b", 2, LOCK_MS)
    group.acknowledge("b", AcknowledgeType.REJECT, LOCK_MS + 1)
    assert 2 == group.check.of(AT).rejected_count


def hand_out(group: Group, offset: int, now_ms: int, *, is_done: bool = False) -> list[str]:
    group.check.acquired("a", (0, offset), 1, group.leader.grant(now_ms), now_ms)
    return rules(group.check.handed_out("a", (0, offset), b"k", lambda place: is_done))


def test_a_record_waits_for_those_of_its_key_before_it() -> None:
    group = Group()
    assert [] == hand_out(group, 1, 0)
    assert ["keys keep their order"] == hand_out(group, 2, 10)
    assert [] == hand_out(group, 3, 20, is_done=True)


def test_a_record_follows_those_of_its_key_that_somebody_has_ended() -> None:
    group = Group()
    hand_out(group, 1, 0)
    group.check.sent("a", (0, 1), AcknowledgeType.ACCEPT, 5)
    assert [] == hand_out(group, 2, 10)


def test_a_record_that_comes_after_a_later_one_of_its_key_is_wrong() -> None:
    group = Group()
    assert [] == hand_out(group, 2, 0)
    assert ["keys keep their order"] == hand_out(group, 1, 10)
