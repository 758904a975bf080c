"""Skips what needs a library that `make install-core` leaves out.

Only with ``KALDA_CORE_ONLY=1``: elsewhere a library that is missing is a fault of the installation, and the
test that needs it fails.
"""

import os
from importlib.util import find_spec
from typing import Final

import pytest

IS_CORE_ONLY: Final = os.environ.get("KALDA_CORE_ONLY") == "1"
TABLES: Final = ("unit/pipelines/tables", "property/pipelines")
"""Directories whose `conftest.py` needs pyarrow: pytest takes no skip from one."""

_OWN: Final = ("kalda", "tests", "benchmarks", "examples")


def missing_library(error: BaseException | None) -> str | None:
    """Return the library that an error, or one that led to it, did not find; None if none is missing."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name is not None:
            library = error.name.partition(".")[0]
            if library not in _OWN and find_spec(library) is None:
                return library
        error = error.__cause__ or error.__context__
    return None


def as_skipped(
    report: pytest.TestReport | pytest.CollectReport, path: str, call: pytest.CallInfo[object]
) -> None:
    """Make a skip of a failure whose cause is a missing library."""
    library = missing_library(call.excinfo.value) if call.excinfo is not None else None
    if report.failed and library is not None:
        report.outcome = "skipped"
        report.longrepr = (path, 0, f"Skipped: {library} is not installed")
