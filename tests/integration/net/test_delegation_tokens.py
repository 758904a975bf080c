"""Delegation tokens through brokers: made on one, used on another, renewed and ended by the tool."""

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda import Admin
from kalda.net.client.client_errors import BrokerResponseError, SaslAuthenticationError
from kalda.security.principal import USER, KafkaPrincipal
from kalda.testing import KaldaProcess

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SETTINGS = {
    # The listeners of several brokers keep the name that they have by default.
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'{PLAIN} required username="admin" password="admin-secret" '
        'user_admin="admin-secret" user_alice="alice-secret";'
    ),
    "delegation.token.secret.key": "a-shared-secret",
}


def login(bootstrap: str, mechanism: str, module: str) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": module,
    }


def plain(bootstrap: str, user: str) -> dict[str, str]:
    return login(bootstrap, "PLAIN", f'{PLAIN} required username="{user}" password="{user}-secret";')


def token_login(bootstrap: str, token_id: str, hmac: bytes) -> dict[str, str]:
    password = base64.b64encode(hmac).decode()
    module = f'{SCRAM} required username="{token_id}" password="{password}" tokenauth="true";'
    return login(bootstrap, "SCRAM-SHA-256", module)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaldaProcess]:
    directory = tmp_path_factory.mktemp("tokens") / "data"
    with KaldaProcess(directory, brokers=2, settings=SETTINGS) as process:
        yield process


def test_a_token_logs_in_on_every_broker_until_it_is_ended(brokers: KaldaProcess) -> None:
    first, second = brokers.bootstrap.split(",")
    with Admin.from_config(plain(first, "alice")) as admin:
        token = admin.create_delegation_token([KafkaPrincipal(USER, "admin")])
        assert "alice" == token.owner.name
        deadline = time.monotonic() + 60
        # The second broker, which may be asked, hears of the token by a watch.
        while not (described := admin.describe_delegation_tokens()):
            assert time.monotonic() < deadline
        assert [token.token_id] == [each.token_id for each in described]
    config = token_login(second, token.token_id, token.hmac)
    deadline = time.monotonic() + 60
    while True:
        with Admin.from_config(config) as user:
            try:
                user.list_topics()
                break
            except SaslAuthenticationError:
                # The second broker hears of the token by a watch.
                assert time.monotonic() < deadline
    with Admin.from_config(config) as user, pytest.raises(BrokerResponseError, match="REQUEST_NOT_ALLOWED"):
        user.create_delegation_token()
    wrong = token_login(second, token.token_id, b"wrong")
    with Admin.from_config(wrong) as user, pytest.raises(SaslAuthenticationError):
        user.list_topics()
    with Admin.from_config(plain(second, "admin")) as renewer:
        assert renewer.renew_delegation_token(token.hmac, renew_period_ms=10_000) < token.expires_at_ms
        renewer.expire_delegation_token(token.hmac)
        with pytest.raises(BrokerResponseError, match="DELEGATION_TOKEN_NOT_FOUND"):
            renewer.renew_delegation_token(token.hmac)
    deadline = time.monotonic() + 60
    while is_accepted(config):
        # The second broker hears of the end by a watch, if the first one was asked for it.
        assert time.monotonic() < deadline


def is_accepted(config: dict[str, str]) -> bool:
    with Admin.from_config(config) as user:
        try:
            user.list_topics()
        except SaslAuthenticationError:
            return False
        return True


def test_the_tool_manages_tokens(brokers: KaldaProcess, tmp_path: Path) -> None:
    file = tmp_path / "alice.properties"
    file.write_text("\n".join(f"{k}={v}" for k, v in plain(brokers.bootstrap, "alice").items()))

    def run(*arguments: str) -> str:
        command = [
            sys.executable,
            "-m",
            "kalda",
            "delegation-tokens",
            *arguments,
            "--command-config",
            str(file),
        ]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    (token,) = json.loads(run("create", "--renewer-principal", "User:bob", "--json"))["tokens"]
    assert ["User:bob"] == token["renewers"]
    assert "The token ends at" in run("renew", "--hmac", token["hmac"], "--renew-time-period", "5000")
    assert "The token ends at" in run("expire", "--hmac", token["hmac"])
    assert "a-shared-secret" not in brokers.log()
    assert token["hmac"] not in brokers.log()
