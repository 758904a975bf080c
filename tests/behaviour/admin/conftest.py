"""An admin client of the target, and what its tests need from it."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from kalda import Admin, AsyncAdmin, NewTopic
from tests.behaviour.conftest import wait_until
from tests.behaviour.targets import Target

CreateTopics = Callable[..., None]


@pytest.fixture
def servers(target: Target) -> str:
    """The address of the cluster; tests use topics and groups of their own."""
    return target.bootstrap


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


@pytest.fixture
def topic_name() -> Callable[[str], str]:
    """Makes topic names that no other test and no other run uses."""
    return lambda stem: f"{stem}-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def create(admin: Admin) -> CreateTopics:
    """Creates topics, and returns when the client's broker knows them; KRaft's controller does not wait."""

    def create_topics(*topics: NewTopic) -> None:
        admin.create_topics(topics)
        names = [topic.name for topic in topics]
        wait_until(
            "the broker knows the topics", lambda: not admin.describe_topics(names, outcomes=True).errors
        )

    return create_topics
