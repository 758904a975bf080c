"""One cluster with a server of `kalda http` for each test worker; tests use names of their own.

Both are processes: what tests share in their own process would count as left behind by one of them.
"""

from collections.abc import Iterator

import httpx
import pytest

from kalda.testing import ProcessCluster, Security
from tests.http_server import HttpCluster, http_process
from tests.shared_broker import NO_RETENTION

USERS = ("alice", "bob", "stranger")
"""Tests may give the first two rights, and nobody gives any to the third."""
"""The users of the secured cluster beside admin; they have no rights but what a test gives them."""


@pytest.fixture(scope="session")
def http_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpCluster]:
    """An open cluster of one broker."""
    directory = tmp_path_factory.mktemp("http-cluster")
    with (
        ProcessCluster(directory, brokers=1, settings=NO_RETENTION) as cluster,
        http_process(cluster, directory / "http") as http,
    ):
        yield HttpCluster(cluster, http.address)


@pytest.fixture(scope="session")
def secured_http_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpCluster]:
    """A cluster of one broker with logins by SCRAM and ACLs; the server acts as admin, a super user."""
    directory = tmp_path_factory.mktemp("secured-http-cluster")
    security = Security(users=USERS, protocol="SASL_PLAINTEXT", acls=True)
    with (
        ProcessCluster(directory, brokers=1, settings=NO_RETENTION, security=security) as cluster,
        http_process(cluster, directory / "http") as http,
    ):
        yield HttpCluster(cluster, http.address)


@pytest.fixture
def client(http_cluster: HttpCluster) -> Iterator[httpx.Client]:
    """An HTTP client of the open cluster's server."""
    with httpx.Client(base_url=http_cluster.url, timeout=30) as made:
        yield made


@pytest.fixture
def secured_client(secured_http_cluster: HttpCluster) -> Iterator[httpx.Client]:
    """An HTTP client of the secured cluster's server, without credentials."""
    with httpx.Client(base_url=secured_http_cluster.url, timeout=30) as made:
        yield made
