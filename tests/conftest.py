"""How the tests are spread over xdist's workers."""

from typing import Any

import pytest

_ONE_WORKER = ("tests/spark/",)
"""Tests under each of these paths share what is dear to start (a JVM), so they go to the same worker."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Group tests by path under ``--dist loadgroup``.

    xdist's own groups mark a test by changing its node id, which pytest 9.2 no longer takes note of.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]  # it ships no types

    class PathGroupScheduling(LoadGroupScheduling):  # type: ignore[misc]  # for the same reason
        def _split_scope(self, nodeid: str) -> str:
            return next((path for path in _ONE_WORKER if nodeid.startswith(path)), nodeid)

    return PathGroupScheduling(config, log)
