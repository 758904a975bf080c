"""One real broker per test worker; every test uses topics of its own."""

import os
import uuid
from collections.abc import Callable, Iterator

import pytest

from kalda.testing import KaldaProcess

LARGE_MESSAGE_BYTES = 12_000_000
"""What the broker of these tests accepts, so that 10 MB messages with their overhead fit."""


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the broker under test.

    ``KALDA_TEST_BOOTSTRAP=host:port`` points the same tests at another broker, for example Apache Kafka, to
    see whether a test or the broker is wrong.
    """
    given = os.environ.get("KALDA_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    directory = tmp_path_factory.mktemp("broker") / "data"
    with KaldaProcess(directory, settings={"message.max.bytes": str(LARGE_MESSAGE_BYTES)}) as kalda:
        yield kalda.bootstrap


@pytest.fixture
def topic_name() -> Callable[[str], str]:
    """Makes topic names that no other test and no other run uses."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:10]}"
