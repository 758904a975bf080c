"""The programs of the pages about tests pass as a reader runs them, in a session of pytest of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
FILE = re.compile(r'^```python title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
WAIT_SECONDS = 100
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
"""What the pages show is printed without options of the outer run."""
OPTIONS = ["-q", "-p", "no:cacheprovider", "-p", "kalda", "-p", "asyncio", "-p", "xdist", "--rootdir=."]
"""Only the plug-ins that the pages need: those of this project's own tests change how tests run."""


def run_page(page: str, directory: Path, *options: str, packages: Path | None = None) -> str:
    """Write the files of a page into a directory, run their tests, and return what pytest printed.

    `packages` is a directory of libraries that the page needs beside those of this environment.
    """
    for path, code in FILE.findall((DOCS / page).read_text()):
        (directory / path).write_text(code)
    python_path = os.pathsep.join(map(str, [directory, *([] if packages is None else [packages])]))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, *options],
        cwd=directory,
        env={**ENVIRONMENT, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": python_path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert 0 == run.returncode, run.stdout
    return run.stdout


@pytest.mark.parametrize(
    ("page", "passed"),
    [
        ("tutorial/test-with-pytest.md", 10),
        ("how-to/use-in-pytest.md", 3),
        ("how-to/test/confluent-kafka.md", 3),
        ("how-to/test/aiokafka.md", 1),
        ("how-to/test/kafka-python.md", 3),
        ("how-to/test/celery.md", 1),
        ("how-to/test/coming-from-testcontainers.md", 1),
    ],
)
def test_the_tests_of_a_page_pass(page: str, passed: int, tmp_path: Path) -> None:
    assert f"{passed} passed" in run_page(page, tmp_path)


def test_the_tests_of_a_page_pass_on_several_workers(tmp_path: Path) -> None:
    """Each worker process has a cluster, and the tests of one share it without seeing each other."""
    assert "3 passed" in run_page("how-to/use-in-pytest.md", tmp_path, "-n", "2")


def test_the_failure_that_the_tutorial_shows_is_what_pytest_prints(tmp_path: Path) -> None:
    """The factor of the program is changed, as the page says."""
    text = (DOCS / "tutorial/test-with-pytest.md").read_text()
    run_page("tutorial/test-with-pytest.md", tmp_path, "test_billing.py")
    (tmp_path / "billing.py").write_text((tmp_path / "billing.py").read_text().replace("1.2", "1.3"))
    printed = subprocess.run(
        [sys.executable, "-m", "pytest", *OPTIONS, "test_billing.py"],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    ).stdout
    error, report = re.findall(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert error in re.sub(r"^E {7}", "", printed, flags=re.MULTILINE)
    assert re.sub(r"orders-\d", "orders-N", report) in re.sub(r"orders-\d", "orders-N", printed)
