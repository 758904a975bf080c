"""Schedules that found faults of Kalda, and fail without their fixes; unit tests show each fault as well."""

import pytest

from tests.simulation.test_simulation import _simulate


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "workload", "seconds"),
    [
        pytest.param(101, "transactions", 60, id="the cleaner removed records that were fetched again"),
        pytest.param(108, "exactly-once", 60, id="a removed member's offsets were accepted"),
    ],
)
def test_a_schedule_that_found_a_fault_holds(seed: int, workload: str, seconds: int) -> None:
    """The seed was drawn with this workload alone."""
    code, trace = _simulate("--seed", str(seed), "--workloads", workload, "--seconds", str(seconds))

    assert 0 == code, trace[-4000:]
