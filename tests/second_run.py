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


class Passed:
    """A plug-in of pytest that notes the tests of which every phase passed."""

    def __init__(self) -> None:
        self.tests: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test whose call passed, and forget it if its teardown does not."""
        if report.when == "call" and report.passed:
            self.tests.add(report.nodeid)
        elif report.failed:
            self.tests.discard(report.nodeid)


def main(status: int) -> int:
    """Run the failed tests again; return the exit status of `make test`."""
    failed = sorted(json.loads(FAILED.read_text())) if FAILED.exists() else []
    if (reason := why_not(status, failed)) is not None:
        print(f"No second run: {reason}.", flush=True)
        return status
    print(f"Second run of what failed ({len(failed)}).", flush=True)
    passed = Passed()
    second = pytest.main(["-n", "0", *failed], plugins=[passed])
    if second != pytest.ExitCode.OK or passed.tests != set(failed):
        print("Not passed in the second run:", *sorted(set(failed) - passed.tests), sep="\n  ", flush=True)
        return int(second) or status
    print("Failed in the first run and passed in the second:", *failed, sep="\n  ", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
