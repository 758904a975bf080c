"""Peers that need Maven, Go or Node; behind `make compat`, never in the gate."""

import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.apache_kafka import KAFKA_VERSION, NotAvailableError, maven_jars
from kalda.testing import KaldaProcess
from tests.shared_broker import shared_broker

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
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def kalda(tmp_path: Path) -> Iterator[KaldaProcess]:
    """A broker of the test's own, with small segments."""
    with KaldaProcess(tmp_path / "data", settings={"log.segment.bytes": "1048576"}) as process:
        yield process


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of one broker that all clients share, each test with topics of its own."""
    with shared_broker(tmp_path_factory.mktemp("shared")) as address:
        yield address


@pytest.fixture
def topic_name() -> Callable[[str], str]:
    """Makes topic names that no other test and no other run uses."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:10]}"
