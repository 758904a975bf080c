"""A short run of the rounds in `tests.chaos.connector_rounds`: old consumers, killed and migrated."""

import subprocess
import sys

import pytest


@pytest.mark.timeout(240)
@pytest.mark.parametrize("storage", ["zookeeper", "migrate"])
def test_no_record_is_lost_when_brokers_and_old_consumers_are_killed(storage: str) -> None:
    options = ["--rounds", "4", "--ids", "20000", "--seed", "5", "--storage", storage]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.connector_rounds", *options],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
