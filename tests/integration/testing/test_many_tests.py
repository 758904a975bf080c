"""Tests that share a cluster do not see each other, and those with clusters of their own get them in time."""

from pathlib import Path

import pytest

from benchmarks.pytest_sessions import FRESH_CLUSTERS, SHARED_CLUSTER, run_session

TESTS = 50


@pytest.mark.parametrize("suite", [SHARED_CLUSTER, FRESH_CLUSTERS], ids=["shared", "fresh"])
def test_tests_with_the_same_names_pass_on_two_workers(suite: str, tmp_path: Path) -> None:
    """`python -m benchmarks --only pytest_sessions` runs a thousand."""
    result = run_session(tmp_path, {"test_orders.py": suite.format(tests=TESTS)}, "-p", "xdist", "-n", "2")

    assert f"{TESTS} passed" in result.output, result.output
