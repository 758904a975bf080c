"""Expectations of rows."""

import pickle

import pyarrow as pa
import pytest

from kalda.pipelines.expectations import ExpectationFailedError, Expectations
from kalda.pipelines.spec.model import Expectation, OnFail

ROWS = pa.RecordBatch.from_pydict({"amount": [1, -2, None, 4, -5], "b": ["x", None, "y", None, "z"]})


def expectations(**checks: tuple[str, OnFail]) -> Expectations:
    made = Expectations([Expectation(name=n, check=c, on_fail=f) for n, (c, f) in checks.items()])
    loaded: Expectations = pickle.loads(pickle.dumps(made))
    return loaded


def test_each_row_is_good_dead_or_dropped() -> None:
    """A row that fails two expectations counts once, as a dead letter before a dropped one."""
    checked = expectations(named=("b is not null", OnFail.DROP), positive=("amount > 0", OnFail.DLQ)).check(
        ROWS
    )

    assert [True, False, False, False, False] == checked.good.to_pylist()
    assert [(1, "positive"), (2, "positive"), (4, "positive")] == [
        (d.row, d.expectation) for d in checked.dead
    ]
    assert "positive: amount > 0 is not true" == checked.dead[0].message
    assert 1 == checked.dropped
    assert ROWS.num_rows == checked.good.true_count + len(checked.dead) + checked.dropped


def test_exempt_rows_are_good() -> None:
    """A tombstone has no values: an expectation would keep it from deleting its row."""
    checks = expectations(positive=("amount > 0", OnFail.DLQ), named=("b is not null", OnFail.DROP))
    checked = checks.check(ROWS, pa.array([False, True, True, False, False]))

    assert [True, True, True, False, False] == checked.good.to_pylist()
    assert ([4], 1) == ([each.row for each in checked.dead], checked.dropped)


def test_an_expectation_that_must_hold_stops_the_batch() -> None:
    with pytest.raises(ExpectationFailedError) as caught:
        expectations(positive=("amount > 0", OnFail.FAIL)).check(ROWS)

    assert "3 of 5 rows fail the expectation positive (amount > 0), first {'amount': -2, 'b': None}" in str(
        caught.value
    )


def test_without_expectations_all_rows_are_good() -> None:
    assert not expectations()
    assert 5 == expectations().check(ROWS).good.true_count
