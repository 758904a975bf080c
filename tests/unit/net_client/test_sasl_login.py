"""How a client logs in: what it sends to a broker that goes on asking."""

import asyncio
from collections import Counter

import pytest

from kalda.common.api_keys import ApiKey
from kalda.net.client.client_errors import SaslAuthenticationError
from kalda.net.client.sasl_login import log_in
from kalda.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kalda.protocol.messages.sasl_handshake import SaslHandshakeResponse
from kalda.protocol.schema import Message
from kalda.security.sasl.bearer_token import BearerToken
from kalda.security.sasl.mechanism import SaslClient
from kalda.security.sasl.oauthbearer import OAuthBearerClient
from kalda.security.sasl.plain import PlainClient


class Broker:
    """Answers each message of a login with the same bytes; counts them."""

    def __init__(self, challenge: bytes) -> None:
        self.challenge = challenge
        self.counts: Counter[type[Message]] = Counter()

    async def exchange(self, request: Message, version: int) -> Message:
        self.counts[type(request)] += 1
        if isinstance(request, SaslAuthenticateRequest):
            return SaslAuthenticateResponse(auth_bytes=self.challenge)
        return SaslHandshakeResponse(mechanisms=["PLAIN", "OAUTHBEARER"])

    def log_in(self, client: SaslClient) -> float | None:
        return asyncio.run(log_in("b:9092", client, self.exchange, latest))


def latest(key: ApiKey) -> int:
    return 2


def test_a_password_is_sent_once() -> None:
    """Java's client ignores what follows the answer to a complete login, too."""
    broker = Broker(b"more")
    assert broker.log_in(PlainClient("u", "secret")) is None
    assert 1 == broker.counts[SaslAuthenticateRequest]


def test_a_login_that_the_broker_does_not_end_fails() -> None:
    broker = Broker(b"more")
    client = OAuthBearerClient(lambda: BearerToken("t", "u", 0, 0, frozenset()), {})
    with pytest.raises(SaslAuthenticationError, match="after 16 messages"):
        broker.log_in(client)
    assert 16 == broker.counts[SaslAuthenticateRequest]
