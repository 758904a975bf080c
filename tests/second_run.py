"""Runs the tests that failed in `make test` a second time, one after the other on a machine that is idle.

A test with real brokers, browsers or Spark depends on the time that other work leaves it. As in the build of
Apache Kafka (``maxTestRetries``, ``maxTestRetryFailures``), a few such tests have a second run. A test that
passes in the second run is a defect to mend, of the test or of the code: the output lists it, and the gate
passes. Tests without sockets and time have one run.
"""

import json
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

FAILED = Path(".pytest_cache/v/cache/lastfailed")
TIMED = ("tests/integration/", "tests/behaviour/", "tests/system/", "tests/spark/")
TESTS_MAX = 3


def why_not(status: int, failed: Collection[str]) -> str | None:
    """Return why the tests have no second run; None if they have one.

    Args:
        status: the exit status of the first run.
        failed: the ids of the tests that failed.
    """
    if status != pytest.ExitCode.TESTS_FAILED:
        return f"pytest ended with status {status}"
    if untimed := sorted(each for each in failed if not each.startswith(TIMED)):
        return f"{untimed[0]} depends on no time"
    if not 0 < len(failed) <= TESTS_MAX:
        return f"{len(failed)} tests failed, and at most {TESTS_MAX} have one"
    return None


def main(status: int) -> int:
    """Run the failed tests again; return the exit status of `make test`."""
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if (reason := why_not(status, failed)) is not None:
        print(f"No second run: {reason}.", flush=True)
        return status
    print(f"Second run of what failed ({len(failed)}).", flush=True)
    second = pytest.main(["-n", "0", "--last-failed", "--last-failed-no-failures=none"])
    if second == pytest.ExitCode.OK:
        print("Failed in the first run and passed in the second:", *failed, sep="\n  ", flush=True)
    return int(second)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
