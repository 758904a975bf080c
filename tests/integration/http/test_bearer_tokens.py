"""Callers with OAuth tokens: the brokers check them, and the ACLs of the token's subject hold."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from kalda import Admin, NewTopic
from kalda.clients.admin.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.common.overriding import override
from kalda.testing import KaldaProcess
from kalda.testing.security import ClientConfigs
from tests.http_server import HttpProcess, http_process
from tests.identity_provider import CLIENT_SECRET, Provider, identity_provider

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLERS = "org.apache.kafka.common.security.oauthbearer"
CLAIM = "sasl.oauthbearer.sub.claim.name"


class OAuthCluster(ClientConfigs):
    """A broker whose principals are the claim `azp` of tokens."""

    def __init__(self, broker: KaldaProcess, provider: Provider) -> None:
        super().__init__()
        self._broker = broker
        self.provider = provider

    @property
    @override
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    @override
    def client_config(self, user: str = "admin", library: str = "kalda") -> dict[str, str]:  # type: ignore[override]  # no other library
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": f"{HANDLERS}.secured.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": f"{self.provider.url}/token",
            "sasl.jaas.config": f'{MODULE} required clientId="{user}" clientSecret="{CLIENT_SECRET}";',
            CLAIM: "azp",
        }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OAuthCluster]:
    with identity_provider() as provider:
        prefix = "listener.name.sasl_plaintext.oauthbearer."
        login = f'{MODULE} required clientId="admin" clientSecret="{CLIENT_SECRET}";'
        settings = {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
            "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
            "sasl.oauthbearer.expected.audience": "kafka",
            CLAIM: "azp",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:admin",
            f"{prefix}sasl.server.callback.handler.class": f"{HANDLERS}.OAuthBearerValidatorCallbackHandler",
            f"{prefix}sasl.login.callback.handler.class": f"{HANDLERS}.OAuthBearerLoginCallbackHandler",
            f"{prefix}sasl.jaas.config": login,
        }
        directory = tmp_path_factory.mktemp("oauth-http")
        with KaldaProcess(directory / "data", settings=settings) as broker:
            yield OAuthCluster(broker, provider)


@pytest.fixture(scope="module")
def gateway(cluster: OAuthCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpProcess]:
    with http_process(cluster, Path(tmp_path_factory.mktemp("oauth-gateway"))) as process:
        yield process


@pytest.fixture
def topic(cluster: OAuthCluster) -> str:
    """A topic that alice may use."""
    name = f"tokens-{uuid4().hex[:8]}"
    with Admin.from_config(cluster.client_config()) as admin:
        admin.create_topics([NewTopic(name, partitions=1, replication_factor=1)])
        pattern = ResourcePattern(ResourceType.TOPIC, name, PatternType.LITERAL)
        allow = AccessControlEntry("User:alice", "*", AclOperation.ALL, PermissionType.ALLOW)
        admin.create_acls([AclBinding(pattern, allow)])
    return name


def test_the_acls_of_a_tokens_subject_hold(cluster: OAuthCluster, gateway: HttpProcess, topic: str) -> None:
    """The subject is the claim that the brokers read: an equal `sub` makes nobody alice."""

    def status(token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.post(f"{gateway.url}/v1/topics/{topic}", json=1, headers=headers, timeout=60).status_code

    token = cluster.provider.token
    assert 200 == status(token("person", azp="alice"))
    assert 403 == status(token("person", azp="bob"))
    assert 403 == status(token("alice", azp="bob"))
    assert 401 == status(token("alice")), "it has no subject"
    assert 401 == status(token("x", azp="alice", exp=1_000))
    assert 401 == status(token("x", azp="alice", aud="web"))


def test_a_browser_sends_its_token_as_a_subprotocol(
    cluster: OAuthCluster, gateway: HttpProcess, topic: str
) -> None:
    """`new WebSocket` takes no headers; the token is not among what the server confirms."""
    url = f"ws://{gateway.address}/v1/topics/{topic}/stream?from=beginning"
    token = cluster.provider.token("x", azp="alice")

    def offer(token: str) -> list[Subprotocol]:
        return [Subprotocol("kalda"), Subprotocol(f"bearer.{token}")]

    headers = {"Authorization": f"Bearer {token}"}
    httpx.post(f"{gateway.url}/v1/topics/{topic}", json="x", headers=headers, timeout=60).raise_for_status()
    values: list[object] = []
    with connect(url, subprotocols=offer(token)) as opened:
        assert "kalda" == opened.subprotocol
        while not values:
            values = [each["record"]["value"] for each in json.loads(opened.recv(60)) if "record" in each]
    statuses = []
    for wrong in (offer("x.y.z"), offer(cluster.provider.token("x", azp="bob")), []):
        with pytest.raises(InvalidStatus) as raised, connect(url, subprotocols=wrong or None):
            pass
        statuses.append(raised.value.response.status_code)

    assert ["x"] == values
    assert [401, 403, 401] == statuses
