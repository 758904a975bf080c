"""Who may use which subject on a cluster with logins."""

from collections.abc import Iterator

import httpx
import pytest

from kalda import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    Admin,
    NewTopic,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from tests.http_server import HttpCluster, served

TOPIC = "access-orders"
SCHEMA = {"schema": '"int"'}


@pytest.fixture(scope="module")
def orders(secured_http_cluster: HttpCluster) -> str:
    """A topic that alice may write to and describe, and that bob may not."""
    with Admin.from_config(secured_http_cluster.cluster.client_config()) as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 1)])
        entry = AccessControlEntry("User:alice", "*", AclOperation.WRITE, PermissionType.ALLOW)
        admin.create_acls([AclBinding(ResourcePattern(ResourceType.TOPIC, TOPIC), entry)])
    return TOPIC


def client_of(http: HttpCluster, user: str) -> httpx.Client:
    return httpx.Client(base_url=http.url, auth=http.auth(user), timeout=60)


@pytest.fixture
def alice(secured_http_cluster: HttpCluster) -> Iterator[httpx.Client]:
    with client_of(secured_http_cluster, "alice") as client:
        yield client


@pytest.fixture
def bob(secured_http_cluster: HttpCluster) -> Iterator[httpx.Client]:
    with client_of(secured_http_cluster, "bob") as client:
        yield client


@pytest.fixture
def admin(secured_http_cluster: HttpCluster) -> Iterator[httpx.Client]:
    with client_of(secured_http_cluster, "admin") as client:
        yield client


def code(response: httpx.Response) -> tuple[int, int]:
    return response.status_code, response.json()["error_code"]


def test_credentials_are_needed(secured_client: httpx.Client) -> None:
    response = secured_client.get("/subjects")

    assert (401, 40101) == code(response)
    assert response.headers["www-authenticate"].startswith("Basic")


def test_a_wrong_password_is_refused(secured_client: httpx.Client) -> None:
    assert (401, 40101) == code(secured_client.get("/subjects", auth=("alice", "wrong")))


def test_the_acls_of_the_topic_are_those_of_its_subjects(
    alice: httpx.Client, bob: httpx.Client, admin: httpx.Client, orders: str
) -> None:
    subject = f"{orders}-value"
    versions = f"/subjects/{subject}/versions"

    assert (403, 40301) == code(bob.post(versions, json=SCHEMA))
    registered = alice.post(versions, json=SCHEMA)
    assert 200 == registered.status_code, registered.text
    assert 200 == alice.get(f"{versions}/1").status_code
    assert (403, 40301) == code(bob.get(f"{versions}/1"))
    assert (403, 40301) == code(alice.put(f"/config/{subject}", json={"compatibility": "NONE"}))
    assert (403, 40301) == code(alice.delete(f"/subjects/{subject}"))
    assert (403, 40301) == code(alice.post("/subjects/of-no-topic/versions", json=SCHEMA))
    assert 200 == admin.post("/subjects/of-no-topic/versions", json=SCHEMA).status_code
    assert (403, 40301) == code(alice.put("/config", json={"compatibility": "NONE"}))


def test_lists_have_what_the_caller_may_read(
    alice: httpx.Client, bob: httpx.Client, admin: httpx.Client, orders: str
) -> None:
    admin.post(f"/subjects/{orders}-key/versions", json=SCHEMA)
    admin.post("/subjects/of-no-topic-either/versions", json=SCHEMA)

    assert f"{orders}-key" in alice.get("/subjects").json()
    assert "of-no-topic-either" not in alice.get("/subjects").json()
    assert [] == bob.get("/subjects").json()
    assert {"of-no-topic-either", f"{orders}-key"} <= set(admin.get("/subjects").json())


def test_an_id_is_read_by_any_user_that_logs_in(
    admin: httpx.Client, bob: httpx.Client, secured_client: httpx.Client, orders: str
) -> None:
    """A consumer needs the schema of each record that it may read."""
    schema_id = admin.post(f"/subjects/{orders}-value/versions", json=SCHEMA).json()["id"]

    assert 200 == bob.get(f"/schemas/ids/{schema_id}").status_code
    assert 401 == secured_client.get(f"/schemas/ids/{schema_id}").status_code


def test_without_credentials_nothing_is_changed_where_reading_is_allowed(
    secured_http_cluster: HttpCluster,
) -> None:
    settings = {"http.anonymous": "true", "leader.eligibility": "false"}
    with (
        served(secured_http_cluster.cluster, settings) as http,
        httpx.Client(base_url=http.url, timeout=60) as client,
    ):
        assert 200 == client.get("/subjects").status_code
        assert (403, 40301) == code(client.post("/subjects/a/versions", json=SCHEMA))
        assert 401 == client.get("/subjects", auth=("alice", "wrong")).status_code
