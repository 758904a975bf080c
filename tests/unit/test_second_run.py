"""Which failures of `make test` have a second run."""

import pytest

from tests.second_run import TESTS_MAX, why_not

TIMED = "tests/integration/transactions/test_transactions.py::test_it"


@pytest.mark.parametrize("count", [1, TESTS_MAX])
def test_a_few_tests_with_real_brokers_have_one(count: int) -> None:
    assert why_not(1, [f"{TIMED}[{number}]" for number in range(count)]) is None


@pytest.mark.parametrize(
    ("status", "failed", "reason"),
    [
        (1, [f"{TIMED}[{number}]" for number in range(TESTS_MAX + 1)], "4 tests failed, and at most 3"),
        (
            1,
            [TIMED, "tests/unit/records/test_batch.py::test_it"],
            "tests/unit/records/test_batch.py::test_it",
        ),
        (1, [], "0 tests failed"),
        (2, [TIMED], "status 2"),
    ],
)
def test_all_else_has_none(status: int, failed: list[str], reason: str) -> None:
    """Many failures at once, or one of a test without sockets and time, have a cause in the code."""
    assert reason in (why_not(status, failed) or "")
