"""The process that is kept for the sources of streams, driven as Spark's virtual machine does."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from kalda.spark.startup.source_server import is_possible
from tests.integration.spark.virtual_machine import WAIT_SECONDS, lives, until

pytestmark = pytest.mark.skipif(not is_possible(), reason="the system has no descriptors of processes")


@pytest.fixture(scope="module")
def sources() -> dict[str, dict[str, Any]]:
    """What became of each source; the process that started them has ended."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.spark.virtual_machine"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=3 * WAIT_SECONDS,
    )
    return {each["name"]: each for each in map(json.loads, done.stdout.splitlines())}


def test_the_first_source_runs_itself_and_later_ones_are_forked(sources: dict[str, dict[str, Any]]) -> None:
    assert [False, True] == [sources[name]["is_fork"] for name in ("first", "second")]


def test_a_fork_ends_as_the_process_would_that_spark_started(sources: dict[str, dict[str, Any]]) -> None:
    """The virtual machine closed the connection, which is an error to the source."""
    assert 0 != sources["first"]["status"]
    assert sources["first"]["status"] == sources["second"]["status"]


def test_another_environment_gets_no_fork(sources: dict[str, dict[str, Any]]) -> None:
    """Imports read the environment, the time zone for one."""
    assert not sources["other environment"]["is_fork"]


def test_it_can_be_switched_off(sources: dict[str, dict[str, Any]]) -> None:
    assert not sources["switched off"]["is_fork"]


def test_a_source_ends_with_the_process_that_spark_knows(sources: dict[str, dict[str, Any]]) -> None:
    assert sources["ended"]["is_fork"]
    assert sources["ended"]["is_gone"]


def test_the_server_goes_on_after_requests_that_are_none(sources: dict[str, dict[str, Any]]) -> None:
    assert sources["behind junk"]["is_fork"]
    assert sources["second"]["parent"] == sources["behind junk"]["parent"]


def test_the_server_ends_with_the_virtual_machine(sources: dict[str, dict[str, Any]]) -> None:
    assert until(lambda: not lives(sources["second"]["parent"]))
