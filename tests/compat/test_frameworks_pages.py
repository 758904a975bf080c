"""The pages about tests of stream frameworks pass with the frameworks, which are installed from the index."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.compat.test_frameworks import FRAMEWORKS
from tests.integration.testing.test_pages import run_page

PACKAGES = {framework.name: framework.packages for framework in FRAMEWORKS}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("page", "framework"),
    [("faststream", "faststream-aiokafka"), ("quix-streams", "quix"), ("faust", "faust")],
)
def test_the_tests_of_a_page_pass(page: str, framework: str, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    done = subprocess.run(
        [*install, "--target", str(packages), *PACKAGES[framework]],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"{PACKAGES[framework]} cannot be installed: {done.stderr[-300:]}")
    directory = tmp_path / "page"
    directory.mkdir()

    assert "1 passed" in run_page(f"how-to/test/{page}.md", directory, packages=packages)
