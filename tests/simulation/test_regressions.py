"""Schedules that found a bug of Kalda hold; each file has the schedule as it was, and says what it found.

The moments of messages change with the code, so a schedule need not lead to the same state for ever: each bug
has a unit test as well.
"""

import subprocess
import sys
from pathlib import Path

import pytest

REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.yml"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("file", REGRESSIONS, ids=lambda file: file.stem)
def test_the_schedule_holds(file: Path) -> None:
    command = [sys.executable, "-m", "kalda", "simulate", "--plan", str(file)]
    ended = subprocess.run(command, capture_output=True, check=False)

    assert 0 == ended.returncode, ended.stdout.decode()[-4000:]
