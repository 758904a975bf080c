"""One broker for each module of tools' tests."""

from collections.abc import Iterator

import pytest

from tests.integration.tools.commands import Commands
from tests.shared_broker import shared_broker


@pytest.fixture(scope="module")
def kalda(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """The command line, with a broker of its own."""
    with shared_broker(tmp_path_factory.mktemp("broker")) as bootstrap:
        yield Commands(bootstrap)
