"""The programs in the documentation run as they are printed."""

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda.testing import Cluster

DOCS = Path(__file__).parents[2] / "docs"
HOME = DOCS / "index.md"
TAB = re.compile(r'^=== "(?P<name>[^"]+)"\n\n    ```python\n(?P<code>.*?)^    ```$', re.MULTILINE | re.DOTALL)
PROGRAMS = {match["name"]: textwrap.dedent(match["code"]) for match in TAB.finditer(HOME.read_text())}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, settings={"transaction.two.phase.commit.enable": "true"}) as cluster:
        yield cluster


@pytest.mark.parametrize("name", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_the_home_page_reads_back_what_it_produced(name: str, cluster: Cluster) -> None:
    """A stranger's first program is copied from this page."""
    program = PROGRAMS[name].replace("127.0.0.1:9092", cluster.bootstrap)

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert (0, "b'en' b'hello'\n") == (run.returncode, run.stdout), run.stderr


def test_the_home_page_tests_an_application_with_a_cluster() -> None:
    """The block is a whole test: it starts and ends its own brokers."""
    program = PROGRAMS["In a test"] + "\n\ntest_my_application()\n"

    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert 0 == run.returncode, run.stderr


BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["produce", "consume", "transactions", "arrow", "asyncio", "administer"])
def test_a_pages_programs_run_one_after_another(page: str, cluster: Cluster) -> None:
    """A reader copies the blocks of a page from the first to the last."""
    blocks = BLOCK.findall((DOCS / "how-to" / f"{page}.md").read_text())
    assert blocks
    program = "\n".join(blocks).replace("127.0.0.1:9092", cluster.bootstrap)

    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=100
    )

    assert 0 == run.returncode, run.stderr
