"""Logins by OAUTHBEARER: an identity provider that rotates its keys, clients of several libraries."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import jwt
import kafka
import pytest
from aiokafka.abc import AbstractTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaTokenProvider

from kalda import Admin, Producer
from kalda.net.client.client_errors import SaslAuthenticationError
from kalda.testing import KaldaProcess
from tests.identity_provider import Provider, identity_provider

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLERS = "org.apache.kafka.common.security.oauthbearer"


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with identity_provider() as made:
        yield made


@pytest.fixture(scope="module")
def broker(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaldaProcess]:
    """Its brokers log in to each other by OAUTHBEARER, too."""
    prefix = "listener.name.sasl_plaintext.oauthbearer."
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "sasl.oauthbearer.expected.audience": "kafka",
        f"{prefix}sasl.server.callback.handler.class": f"{HANDLERS}.OAuthBearerValidatorCallbackHandler",
        f"{prefix}sasl.login.callback.handler.class": f"{HANDLERS}.OAuthBearerLoginCallbackHandler",
        f"{prefix}sasl.jaas.config": f'{MODULE} required clientId="sparkapp" clientSecret="s-secret";',
    }
    with KaldaProcess(tmp_path_factory.mktemp("oauth") / "data", settings=settings) as process:
        yield process


def properties(bootstrap: str, url: str, secret: str = "s-secret") -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{HANDLERS}.secured.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.jaas.config": (
            f'{MODULE} required clientId="sparkapp" clientSecret="{secret}" scope="kafka" '
            'extension_traceId="7";'
        ),
    }


def test_clients_write_with_tokens(broker: KaldaProcess, provider: Provider) -> None:
    with Producer.from_config(properties(broker.bootstrap, f"{provider.url}/token")) as producer:
        assert 0 == producer.send("oauth", value=b"own", partition=0).result(60).offset
    assert {"grant_type": ["client_credentials"], "scope": ["kafka"]} == provider.requests[-1][1]

    def fetch(_: str) -> tuple[str, float]:
        return provider.token("rdkafka"), time.time() + 600

    rdkafka = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": fetch,
        }
    )
    rdkafka.produce("oauth", b"rdkafka", partition=0)
    assert 0 == rdkafka.flush(20)
    login = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
    }

    class Tokens(KafkaTokenProvider):  # type: ignore[misc]  # untyped library
        def token(self) -> str:
            return provider.token("python")

    python = kafka.KafkaProducer(**login, sasl_oauth_token_provider=Tokens())
    python.send("oauth", b"python", partition=0).get(60)
    python.close()

    class AioTokens(AbstractTokenProvider):  # type: ignore[misc]  # untyped library
        async def token(self) -> str:
            return provider.token("aio")

    async def write() -> int:
        async with aiokafka.AIOKafkaProducer(**login, sasl_oauth_token_provider=AioTokens()) as client:
            return int((await client.send_and_wait("oauth", b"aio", partition=0)).offset)

    assert 3 == asyncio.run(write())


def file_login(broker: KaldaProcess, tmp_path: Path, token: str) -> Admin:
    path = tmp_path / "token"
    path.write_text(token + "\n")
    return Admin.from_config(properties(broker.bootstrap, path.as_uri()))


def test_a_token_of_a_file_is_checked(broker: KaldaProcess, provider: Provider, tmp_path: Path) -> None:
    with file_login(broker, tmp_path, provider.token("filer")) as admin:
        admin.list_topics()
    forged = jwt.encode({"sub": "root", "iat": 1, "exp": 2**33}, "", "none", headers={"kid": "first"})
    for token in (provider.token("filer", aud="web"), provider.token("filer", exp=1_000), forged):
        with (
            file_login(broker, tmp_path, token) as admin,
            pytest.raises(SaslAuthenticationError, match="invalid_token"),
        ):
            admin.list_topics()
    assert "the token is invalid: Audience doesn't match" in broker.log()
    assert forged not in broker.log()


def test_a_client_that_gets_no_token_fails_with_the_endpoints_reason(
    broker: KaldaProcess, provider: Provider
) -> None:
    config = properties(broker.bootstrap, f"{provider.url}/token", secret="wrong")
    with (
        Admin.from_config(config) as admin,
        pytest.raises(SaslAuthenticationError, match=r"status 401: invalid_client \(no such client\)"),
    ):
        admin.list_topics()


def test_new_keys_are_read_when_a_token_names_one(broker: KaldaProcess, provider: Provider) -> None:
    """The refresh interval is an hour; the first token with the new key is refused and has the keys read."""
    provider.rotate("second")
    config = properties(broker.bootstrap, f"{provider.url}/token")
    deadline = time.monotonic() + 30
    while True:
        with Admin.from_config(config) as admin:
            try:
                admin.list_topics()
                break
            except SaslAuthenticationError:
                assert time.monotonic() < deadline, broker.log()
                time.sleep(0.2)


def test_sessions_end_with_their_tokens(broker: KaldaProcess, provider: Provider) -> None:
    """The client logs in again with a new token before the old one ends (KIP-368)."""
    provider.lifetime_seconds = 2
    try:
        with Producer.from_config(properties(broker.bootstrap, f"{provider.url}/token")) as producer:
            before = len(provider.requests)
            deadline = time.monotonic() + 60
            while len(provider.requests) - before < 2:
                assert time.monotonic() < deadline
                producer.send("sessions", value=b"x").result(60)
                time.sleep(0.05)
    finally:
        provider.lifetime_seconds = 600
