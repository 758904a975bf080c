"""A cluster of one broker and one of three; each test of this folder runs on both.

``KALDA_TEST_BOOTSTRAP=host:port`` runs the tests of one broker on another one, e.g. Apache Kafka.
"""

from collections.abc import Callable, Iterator

import pytest

from kalda import Admin, AsyncAdmin, NewTopic
from kalda.testing import ProcessCluster
from tests.integration.clients.admin.waiting import wait_until

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


@pytest.fixture
def broker_id(admin: Admin) -> int:
    """The id of some broker."""
    return admin.describe_cluster().nodes[0].id


CreateTopics = Callable[..., None]


@pytest.fixture
def create(admin: Admin) -> CreateTopics:
    """Creates topics, and returns when the client's broker knows them; KRaft's controller does not wait."""

    def create_topics(*topics: NewTopic) -> None:
        admin.create_topics(topics).raise_for_errors()
        names = [topic.name for topic in topics]
        wait_until(lambda: not admin.describe_topics(names).errors)

    return create_topics
