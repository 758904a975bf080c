import pytest

from kalda.common.backoff import ExponentialBackoff


def middle(low: float, high: float) -> float:
    return (low + high) / 2


def test_waits_double_up_to_the_maximum() -> None:
    backoff = ExponentialBackoff(100, 1000, middle)

    waits = [round(backoff.seconds(failures), 6) for failures in range(1, 7)]

    assert [0.1, 0.2, 0.4, 0.8, 1.0, 1.0] == waits
    assert 1.0 == backoff.seconds(10_000)


def test_jitter_is_a_fifth_to_either_side() -> None:
    assert [0.08, 0.12] == [
        pytest.approx(ExponentialBackoff(100, 1000, pick).seconds(1)) for pick in (min, max)
    ]


def test_an_initial_wait_above_the_maximum_is_kept() -> None:
    assert [5.0, 5.0] == [ExponentialBackoff(5000, 1000, middle).seconds(each) for each in (1, 9)]


def test_no_wait_is_allowed() -> None:
    assert 0.0 == ExponentialBackoff(0, 0).seconds(3)
