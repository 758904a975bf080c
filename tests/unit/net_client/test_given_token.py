"""A server that logs in as its callers has their tokens already."""

import base64
import json

import pytest

from kalda.net.client.oauth_login import new_oauth_login
from kalda.security.sasl.jaas import JaasConfig
from kalda.security.sasl.mechanism import SaslError

DEFAULTS = {
    "sasl.oauthbearer.sub.claim.name": "sub",
    "sasl.oauthbearer.scope.claim.name": "scope",
    "sasl.login.refresh.window.factor": "0.8",
    "sasl.login.refresh.window.jitter": "0.05",
    "sasl.login.refresh.min.period.seconds": "60",
    "sasl.login.refresh.buffer.seconds": "300",
}


def token(**claims: object) -> str:
    parts = [json.dumps(each).encode() for each in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in parts) + "."


def first_message(value: str) -> bytes:
    jaas = JaasConfig.parse(f'OAuthBearerLoginModule required token="{value}";')
    return new_oauth_login(jaas, DEFAULTS.get)("broker").respond(b"")


def test_the_token_of_the_login_module_is_sent() -> None:
    given = token(sub="alice", exp=4_000_000_000)

    assert f"auth=Bearer {given}".encode() in first_message(given)


@pytest.mark.parametrize("value", ["x", token(sub="alice"), token(exp=1)])
def test_a_token_without_claims_is_an_error(value: str) -> None:
    with pytest.raises(SaslError):
        first_message(value)
