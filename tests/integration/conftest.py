"""One real broker per test worker; every test uses topics of its own."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from kalda.testing.process import CommandProcess
from tests import forked_commands
from tests.shared_broker import shared_broker

CommandProcess._popen = forked_commands.Popen

LARGE_MESSAGE_BYTES = 12_000_000
"""What the broker of these tests accepts, so that 10 MB messages with their overhead fit."""


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the broker under test."""
    settings = {"message.max.bytes": str(LARGE_MESSAGE_BYTES)}
    with shared_broker(tmp_path_factory.mktemp("broker"), settings) as address:
        yield address


@pytest.fixture(scope="module")
def two_phase_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a broker that allows two-phase commit (KIP-939)."""
    settings = {"transaction.two.phase.commit.enable": "true"}
    with shared_broker(tmp_path_factory.mktemp("two-phase"), settings) as address:
        yield address


@pytest.fixture
def closed_readers() -> Iterator[None]:
    """Closes the log readers that a worker of Spark keeps open, behind the test."""
    yield
    # Imported where it is used: it needs pyarrow, and most tests here do not.
    from kalda.spark.worker import close_readers

    close_readers()


@pytest.fixture
def topic_name() -> Callable[[str], str]:
    """Makes topic names that no other test and no other run uses."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:10]}"
