"""A cluster of one broker and one of three; each test of this folder runs on both."""

from collections.abc import Iterator

import pytest

from kalda import Admin, AsyncAdmin
from kalda.testing import ProcessCluster

_SETTINGS = {"offsets.topic.num.partitions": "6"}


@pytest.fixture(scope="module", params=[1, 3], ids=["1 broker", "3 brokers"])
def servers(
    request: pytest.FixtureRequest, bootstrap: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a cluster; tests use topics and groups of their own."""
    if request.param == 1:
        yield bootstrap
    else:
        with ProcessCluster(tmp_path_factory.mktemp("cluster"), brokers=3, settings=_SETTINGS) as cluster:
            yield cluster.bootstrap


@pytest.fixture
def admin(servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=servers, default_api_timeout_ms=20_000) as client:
        yield client


@pytest.fixture
def async_admin(servers: str) -> AsyncAdmin:
    """A client that the test opens and closes."""
    return AsyncAdmin(bootstrap_servers=servers, default_api_timeout_ms=20_000)
