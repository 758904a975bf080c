"""Which records fail in a step, and with how many jobs of Spark that is found."""

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.pipelines.engine.failing_search import (
    FAILING_MAX,
    Breaker,
    Part,
    TooManyFailingError,
    find_failing,
)


class Trials:
    """Counts the trials of records of which some fail."""

    def __init__(self, fails: Callable[[int, int], bool]) -> None:
        self.fails = fails
        self.count = 0

    def __call__(self, part: int, start: int, end: int) -> str | None:
        self.count += 1
        return next((f"{part}:{each}" for each in range(start, end) if self.fails(part, each)), None)


def some(places: Iterable[tuple[int, int]]) -> Trials:
    found = set(places)
    return Trials(lambda part, offset: (part, offset) in found)


@given(st.sets(st.tuples(st.integers(0, 1), st.integers(0, 299)), max_size=20), st.booleans())
def test_each_failing_record_is_found(places: set[tuple[int, int]], has_breaker: bool) -> None:
    """Whatever the order, and with a breaker that stays closed as without one."""
    parts = [Part(0, 0, 300), Part(1, 0, 300)]
    expected: dict[int, dict[int, str]] = {}
    for part, offset in places:
        expected.setdefault(part, {})[offset] = f"{part}:{offset}"

    assert expected == find_failing(parts, some(places), Breaker(0.05, 600) if has_breaker else None)


def test_few_failing_records_take_some_twenty_trials_each() -> None:
    trials = some([(0, 77), (0, 900_000), (1, 5)])

    found = find_failing([Part(0, 0, 1_000_000), Part(1, 0, 10)], trials, Breaker(0.05, 1_000_010))

    assert {0: {77: "0:77", 900_000: "0:900000"}, 1: {5: "1:5"}} == found
    assert trials.count <= 100


@pytest.mark.parametrize("bad_max", [0.0, 0.05, 0.5])
def test_a_batch_in_which_everything_fails_takes_a_few_trials(bad_max: float) -> None:
    """Hundreds of jobs before the breaker opens would be minutes without a word."""
    trials = Trials(lambda part, offset: True)

    with pytest.raises(TooManyFailingError) as many:
        find_failing([Part(0, 0, 1), Part(1, 50, 100_000)], trials, Breaker(bad_max, 99_951))

    assert many.value.tried == many.value.found == trials.count <= 30
    assert f"{many.value.part}:{many.value.offset}" == many.value.reason


def test_a_sample_without_a_failure_costs_one_trial() -> None:
    trials = some([(0, 3)])

    assert {0: {3: "0:3"}} == find_failing([Part(0, 0, 64)], trials, Breaker(0.05, 64))
    assert trials.count <= 1 + 13


def test_the_search_ends_when_the_breaker_is_sure_to_open() -> None:
    """The first records of the batch fail, so that a sample does not show it."""
    trials = Trials(lambda part, offset: offset < 50)

    with pytest.raises(TooManyFailingError, match="11 records fail") as many:
        find_failing([Part(0, 0, 200)], trials, Breaker(0.05, 200))

    assert (None, 10) == (many.value.tried, many.value.offset)
    assert trials.count <= 40


def test_records_of_replays_open_no_breaker() -> None:
    parts = [Part(0, 0, 60, is_counted=False), Part(1, 0, 200)]
    trials = Trials(lambda part, offset: part == 0)

    assert 60 == len(find_failing(parts, trials, Breaker(0.05, 200))[0])


@pytest.mark.parametrize("breaker", [None, Breaker(1.0, 5_000), Breaker(0.99, 5_000)])
def test_no_more_than_a_hundred_are_looked_for(breaker: Breaker | None) -> None:
    trials = Trials(lambda part, offset: True)

    with pytest.raises(TooManyFailingError) as many:
        find_failing([Part(0, 0, 5_000)], trials, breaker)

    assert FAILING_MAX + 1 == many.value.found
    assert trials.count <= 150


def test_a_small_batch_in_which_everything_fails_is_tried_record_by_record() -> None:
    """Below the breaker's smallest batch each record becomes a dead letter with its own reason."""
    trials = Trials(lambda part, offset: True)

    assert 64 == len(find_failing([Part(0, 0, 64)], trials, None)[0])
    assert trials.count <= 90
