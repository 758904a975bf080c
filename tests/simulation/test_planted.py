"""The simulation finds bugs that are planted in the brokers; five of the quickest, on every change."""

import pytest

from tests.simulation.planted import BUGS, find

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")

QUICK = (
    "high watermark from the leader alone",
    "high watermark from the wrong replica",
    "acks=all acknowledged by the leader alone",
    "uncommitted records visible",
    "sequence unchecked",
)
"""Each found within a few schedules."""
SCHEDULES_MAX = 30


def test_there_are_twenty_bugs() -> None:
    assert len(BUGS) >= 20


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_found_and_replays_from_its_seed(name: str) -> None:
    found = find(name, 1, schedules_max=SCHEDULES_MAX)
    assert found is not None, f"{SCHEDULES_MAX} schedules did not find it"

    seed, outcome = found
    again = find(name, seed, schedules_max=1)

    assert again is not None
    assert (outcome.violations, outcome.digest) == (again[1].violations, again[1].digest)
