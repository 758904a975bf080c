"""Peers that need Maven; behind `make compat`, never in the gate."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.apache_kafka import KAFKA_VERSION, NotAvailableError, maven_jars
from kalda.testing import KaldaProcess

JavaTool = Callable[..., str]


@pytest.fixture(scope="session")
def java_tool() -> JavaTool:
    """Runs a main class of Apache Kafka's tools and returns what it printed; fails on a non-zero exit."""
    try:
        jars = maven_jars(
            f"kafka-tools-{KAFKA_VERSION}",
            (
                f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
                f"org.apache.kafka:kafka-tools:{KAFKA_VERSION}",
                "org.slf4j:slf4j-nop:1.7.36",
            ),
        )
    except NotAvailableError as error:
        pytest.skip(str(error))

    def run(main_class: str, *arguments: str, text: str = "") -> str:
        done = subprocess.run(
            ["java", "-cp", f"{jars}/*", main_class, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def kalda(tmp_path: Path) -> Iterator[KaldaProcess]:
    """A broker of the test's own, with small segments."""
    with KaldaProcess(tmp_path / "data", settings={"log.segment.bytes": "1048576"}) as process:
        yield process
