"""kazoo's own test suite, which ships in its wheel, against our server."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import kazoo.tests
import pytest

from tests.integration.zookeeper.kazoo_suite_exceptions import EXCEPTION_MARK, EXCEPTIONS, UNAVAILABLE

PASSED_MIN = 290
"""So that a suite that is not found, or skips itself, does not pass."""

WORKERS = 4
"""Most of the suite's time is waiting; each worker has a server of its own."""


@pytest.mark.timeout(400)
def test_kazoo_own_suite_passes(tmp_path: Path) -> None:
    """It holds recipes, watches, sessions and restarts to what kazoo's users rely on."""
    report, output = tmp_path / "report.xml", tmp_path / "output.txt"
    suite = Path(kazoo.tests.__path__[0])
    command = [sys.executable, "-m", "pytest", "--quiet", "-c", os.devnull, f"--rootdir={suite}"]
    command += ["-p", "tests.integration.zookeeper.kazoo_suite_plugin", "-p", "no:cacheprovider"]
    command += [
        f"--numprocesses={WORKERS}",
        "--timeout=90",
        f"--junitxml={report}",
        "--pyargs",
        "kazoo.tests",
    ]
    environment = {name: value for name, value in os.environ.items() if not _is_ours(name)}
    path = [str(Path(__file__).parents[3]), *environment.get("PYTHONPATH", "").split(os.pathsep)]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    # Not to a pipe, which a server that outlived its worker would keep open.
    with output.open("wb") as file:
        code = subprocess.run(
            command,
            # Not ours: what pytest finds there, `tests/conftest.py`, is not for kazoo's tests.
            cwd=tmp_path,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=360,
            check=False,
        ).returncode
    assert 0 == code, output.read_text(errors="replace")[-20_000:]
    cases = list(ElementTree.parse(report).iter("testcase"))
    skipped = {case: case.find("skipped") for case in cases}
    passed = sum(skip is None for skip in skipped.values())
    assert passed >= PASSED_MIN, f"only {passed} of {len(cases)} tests ran"
    excepted, unexplained = 0, []
    for case, skip in skipped.items():
        if skip is None:
            continue
        if (skip.get("message") or "").startswith(EXCEPTION_MARK):
            excepted += 1
        elif f"{case.get('classname', '').split('.')[0]}.py" not in UNAVAILABLE:
            unexplained.append(f"{case.get('classname')}::{case.get('name')}: {skip.get('message')}")
    assert not unexplained
    assert len(EXCEPTIONS) == excepted, "an exception names a test that kazoo does not have"


def _is_ours(name: str) -> bool:
    # What this run of pytest tells its children; and CI, which turns on tests of kazoo's own environment.
    return name.startswith(("PYTEST_", "COV_")) or name in ("CI", "ZOOKEEPER_VERSION")
