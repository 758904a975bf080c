"""Schedules that found a bug of Kalda hold, and the tests that guard its mend fail without it.

The moments of messages change with the code, so a schedule with its seed leads to another state after some
time. What guards a mend for good are therefore unit tests of the code itself: here they are run with the mend
reverted, and each must fail. `python -m tests.simulation.reverted` shows what the schedules still find.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.reverted import MENDS, PLANS

REGRESSIONS = sorted(PLANS.glob("*.yml"))
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("file", REGRESSIONS, ids=lambda file: file.stem)
def test_the_schedule_holds(file: Path) -> None:
    command = [sys.executable, "-m", "kalda", "simulate", "--plan", str(file)]
    ended = subprocess.run(command, capture_output=True, check=False)

    assert 0 == ended.returncode, ended.stdout.decode()[-4000:]


def test_each_schedule_has_a_mend_that_can_be_reverted() -> None:
    assert {file.stem for file in REGRESSIONS} <= set(MENDS)


@pytest.mark.timeout(600)
def test_the_tests_of_each_mend_fail_without_it() -> None:
    command = [sys.executable, "-m", "tests.simulation.reverted", "--guards"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)

    assert 0 == ended.returncode, ended.stderr.decode()
    assert {name: sorted(mend.tests) for name, mend in MENDS.items()} == json.loads(ended.stdout)
