"""Distributes the tests over xdist's workers, and fails a test that leaves threads or sockets behind."""

import gc
import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from kalda.common import invariants
from tests import core_only
from tests.leftovers import Belongings
from tests.worker_groups import SPARK

_HAS_FAILED = pytest.StashKey[bool]()

invariants.enable_by_default()

# How long an example takes is the machine's doing: a busy one takes a second for some milliseconds of work.
# What gates a change chooses the same examples each time, so that it fails only for what the change did;
# `make explore` finds the rest.
hypothesis.settings.register_profile("kalda", hypothesis.settings.default, deadline=None, derandomize=True)
hypothesis.settings.register_profile(
    "explore", hypothesis.settings.default, deadline=None, derandomize=False, max_examples=1_000
)
hypothesis.settings.load_profile("kalda")


_WORKERS_MAX = 8
_TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--targets`, which must be known before the arguments are read."""
    parser.addoption(
        "--targets",
        default="kalda-1,kalda-3",
        help="the clusters of tests/behaviour: kalda-1, kalda-3, namespace-1, namespace-3, "
        "apache-3.9.1, apache-4.1.0, apache-4.4.0",
    )


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A command that runs in the test's process configures logging for all tests after it."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from the tests themselves: 31,000 stay for the whole run, in each worker.

    Each full collection would look at all of them, and tests that look for what they leave behind collect
    again and again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Start two workers a core under ``-n auto``, at most 8 unless there are more cores.

    Most tests with clusters wait, for sessions to expire and for elections: with one worker a core, 2 cores
    are idle for half of the time. ``-n logical`` is one a core, for tests that only compute.
    """
    if config.getoption("numprocesses") != "auto":
        return None
    cores = len(os.sched_getaffinity(0))
    return max(cores, min(2 * cores, _WORKERS_MAX))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Group tests by what they share under ``--dist loadgroup``.

    xdist's own groups mark a test by changing its node id, which pytest 9.2 no longer takes note of.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.group_scheduling import SharedGroupScheduling

    return SharedGroupScheduling(config, log)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the directories that need pyarrow, where it is not installed."""
    if core_only.IS_CORE_ONLY and collection_path.is_relative_to(_TESTS):
        return collection_path.relative_to(_TESTS).as_posix() in core_only.TABLES or None
    return None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a module that needs a library which `make install-core` leaves out."""
    report = yield
    if core_only.IS_CORE_ONLY and (call := getattr(report, "call", None)) is not None:
        core_only.as_skipped(report, str(collector.path), call)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember that a test failed."""
    report = yield
    if core_only.IS_CORE_ONLY:
        core_only.as_skipped(report, str(item.path), call)
    if report.failed:
        item.stash[_HAS_FAILED] = True
    return report


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves threads or sockets behind.

    It is set up before the test's other fixtures and torn down after them. It ignores the tests of Spark,
    whose session opens connections to its JVM at any time, and failed tests, whose traceback keeps objects.
    """
    before = Belongings.now()
    yield
    if request.node.nodeid.startswith(SPARK) or request.node.stash.get(_HAS_FAILED, False):
        return
    if left := before.added():
        pytest.fail(f"the test leaves behind: {'; '.join(left)}", pytrace=False)
