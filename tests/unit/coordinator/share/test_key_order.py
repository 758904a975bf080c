"""The order of records with the same key, apart from share partitions."""

from kalda.coordinator.share.key_order import KeyOrder


def order(*keys: int | None) -> tuple[KeyOrder, list[bool]]:
    found = KeyOrder()
    return found, [found.add(offset, key) for offset, key in enumerate(keys)]


def test_all_but_the_first_record_of_a_key_are_blocked() -> None:
    found, blocked = order(7, 8, 7, None, 7)
    assert [False, False, True, False, True] == blocked
    assert blocked == [found.is_blocked(offset) for offset in range(5)]


def test_the_next_record_of_a_key_is_free_when_those_before_it_are_done() -> None:
    found, _ = order(7, 7, 8, 8, 7)
    assert [3] == list(found.remove(2, 2))
    assert [4] == list(found.remove(0, 1))
    assert [] == list(found.remove(3, 4))
    assert not found


def test_a_blocked_record_that_is_done_frees_none() -> None:
    found, _ = order(7, 7, 7)
    assert [] == list(found.remove(1, 1))
    assert found.is_blocked(2)
    assert [2] == list(found.remove(0, 0))


def test_a_wide_range_costs_no_more_than_there_are_keys() -> None:
    found, _ = order(7, None, 7)
    assert [2] == list(found.remove(0, 1))
    assert [] == list(found.remove(0, 10**15))
    assert not found
    found.add(5, 7)
    found.clear()
    assert not found.add(6, 7)
