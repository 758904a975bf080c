"""The judge of copiers under faults finds what is wrong, and excuses what a client is known to do."""

import pytest

from tests.chaos.copier import HANG_SECONDS
from tests.chaos.copies import (
    EXCUSED_CALL,
    RETURN_SECONDS,
    STABLE_SECONDS,
    STANDSTILL_SECONDS,
    Standstill,
    hangs_in,
    is_stable,
)

ALL = ["copier-0-1", "copier-1-1"]
LOG = f"""\
10:05:39.141 copier 1 (307): aborts: UNKNOWN_MEMBER_ID (25): no hang
10:05:41.000 copier 1 (307): hangs in {EXCUSED_CALL}: begins anew
  File "copier.py", line 182 in _watch
10:06:41.000 copier 1 (307): hangs in close: begins anew
10:07:41.000 copier 1 (307): hangs in {EXCUSED_CALL}: begins anew
"""


def test_hangs_are_counted_by_call() -> None:
    assert {EXCUSED_CALL: 2, "close": 1} == hangs_in(LOG)
    assert not hangs_in("")


@pytest.mark.parametrize("has_hung", [False, True])
def test_a_whole_group_in_time_is_stable(has_hung: bool) -> None:
    assert is_stable("Stable", ALL, ALL, STABLE_SECONDS, has_hung=has_hung)


@pytest.mark.parametrize(
    ("state", "members"),
    [
        ("Empty", []),
        ("PreparingRebalance", ALL),
        ("Stable", ALL[:1]),
        ("Stable", ["copier-0-0", "copier-0-1", "copier-1-1"]),
        ("Stable", ["copier-0-0", "copier-1-1"]),
        ("nobody coordinates it", []),
    ],
)
def test_a_group_that_is_not_whole_is_waited_for_and_then_late(state: str, members: list[str]) -> None:
    """Also one with a member whose copier was killed, or without anybody."""
    assert not is_stable(state, members, ALL, STABLE_SECONDS, has_hung=False)
    assert not is_stable(state, members, ALL, STABLE_SECONDS + HANG_SECONDS, has_hung=False)
    with pytest.raises(TimeoutError, match="no client hung"):
        is_stable(state, members, ALL, STABLE_SECONDS + HANG_SECONDS + 2, has_hung=False)
    assert not is_stable(state, members, ALL, RETURN_SECONDS, has_hung=True)
    with pytest.raises(TimeoutError, match="a client hung"):
        is_stable(state, members, ALL, RETURN_SECONDS + 1, has_hung=True)


def test_late_is_late_unless_a_client_hung() -> None:
    with pytest.raises(TimeoutError):
        is_stable("Stable", ALL, ALL, STABLE_SECONDS + 0.1, has_hung=False)
    assert is_stable("Stable", ALL, ALL, STABLE_SECONDS + 0.1, has_hung=True)


def test_a_copy_that_stands_still_is_found_and_one_that_waits_for_records_is_not() -> None:
    standstill = Standstill(3)
    assert not standstill.look([5, 5, 5], [9, 5, 9], 0.0)
    assert not standstill.look([5, 5, 6], [9, 5, 9], STANDSTILL_SECONDS)
    (found,) = standstill.look([5, 5, 6], [9, 5, 9], STANDSTILL_SECONDS + 1)
    assert "partition 0 stands at 5 of 9 for 31 s" in found
    assert not standstill.look([6, 5, 7], [9, 5, 9], STANDSTILL_SECONDS + 2)
    assert not standstill.look([6, 5, 7], [9, 6, 9], STANDSTILL_SECONDS + 3)
