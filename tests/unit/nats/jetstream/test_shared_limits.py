"""What many users have together, and that none takes all of it."""

import pytest

from kalda.nats.jetstream.shared_limits import ClientShares, SharedLimit


def filled(limit: SharedLimit, own: int = 0) -> int:
    """Take all that one user may have; return how much that is."""
    while limit.has_room(own):
        limit.take(1)
        own += 1
    return own


@pytest.mark.parametrize(("parts", "expected"), [(1, 50), (2, 33), (4, 20)])
def test_one_user_leaves_the_rest_to_others(parts: int, expected: int) -> None:
    assert expected == filled(SharedLimit(100, parts))


def test_something_is_left_for_each_later_user() -> None:
    limit = SharedLimit(1_000, 2)
    owns = [filled(limit) for _ in range(5)]
    assert [333, 222, 148, 99, 66] == owns
    limit.give_back(333)
    assert 155 == filled(limit)


def test_what_is_restored_needs_no_room() -> None:
    limit = SharedLimit(10, 2)
    limit.take(20)
    assert not limit.has_room(0)
    limit.give_back(15)
    assert limit.has_room(0)


def test_a_client_without_anything_is_forgotten() -> None:
    shares = ClientShares(100, 2)
    assert shares.take("one", 30)
    assert not shares.take("one", 10)
    shares.give_back("one", 30)
    assert {} == shares._own
    assert shares.take("one", 30)
