"""The programs on the documentation's home page run as they are printed, each with its own client."""

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda.testing import Cluster

HOME = Path(__file__).parents[2] / "docs/index.md"
TAB = re.compile(r'^=== "(?P<name>[^"]+)"\n\n    ```python\n(?P<code>.*?)^    ```$', re.MULTILINE | re.DOTALL)
PROGRAMS = {match["name"]: textwrap.dedent(match["code"]) for match in TAB.finditer(HOME.read_text())}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, settings={"group.initial.rebalance.delay.ms": "0"}) as cluster:
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
