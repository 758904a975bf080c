"""Sessions that end (KIP-368): a client logs in again over the same connection, however busy it is."""

import asyncio
import random

import pytest

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.net.client import sasl_login
from kalda.net.client.client_errors import SaslAuthenticationError
from kalda.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kalda.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kalda.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kalda.protocol.schema import Message
from tests.integration.clients.test_network_client import ALL, client_of, wait_until
from tests.integration.net_client.fake_broker import CLOSE, VERSIONS, FakeBroker, Reply, cluster_of

LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_jaas_config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
    ),
}
WITH_SASL = {**VERSIONS, ApiKey.SASL_HANDSHAKE: (0, 1), ApiKey.SASL_AUTHENTICATE: (0, 2)}


class SessionBroker(FakeBroker):
    """A broker whose sessions end; it serves nothing behind the end, and nothing within a login."""

    def __init__(self, lifetime_seconds: float, *, grace_seconds: float = 0.0) -> None:
        super().__init__(self._answer, versions=WITH_SASL)
        self.lifetime_seconds = lifetime_seconds
        self.grace_seconds = grace_seconds
        self.logins = 0
        self.misplaced: list[Message] = []
        self.refusal = ErrorCode.NONE
        self._is_logging_in = False
        self._ends_at = 0.0

    def end_session(self) -> None:
        """End the session now."""
        self._ends_at = asyncio.get_running_loop().time() - 1

    def _answer(self, request: Message) -> Reply:
        now = asyncio.get_running_loop().time()
        if isinstance(request, SaslHandshakeRequest):
            self._is_logging_in = True
            return SaslHandshakeResponse(mechanisms=["PLAIN"])
        if isinstance(request, SaslAuthenticateRequest):
            self._is_logging_in = False
            self.logins += 1
            self._ends_at = now + self.lifetime_seconds + self.grace_seconds
            return SaslAuthenticateResponse(
                error_code=self.refusal, session_lifetime_ms=round(self.lifetime_seconds * 1000)
            )
        assert isinstance(request, MetadataRequest)
        if self._is_logging_in or now > self._ends_at:
            self.misplaced.append(request)
            return CLOSE
        return cluster_of(self)


async def test_a_busy_connection_logs_in_again_and_no_request_fails() -> None:
    """Requests were always in flight, so the session ended and requests failed with it."""
    # A busy machine may run the client late; without another login the four never come.
    async with SessionBroker(0.4, grace_seconds=10) as broker, client_of(broker, **LOGIN) as client:
        await client.refresh_metadata(timeout_ms=60_000)

        sent: list[asyncio.Future[Message]] = []

        def send(_: object = None) -> None:
            # As producers do: the next request leaves with a response, before others were read.
            if broker.logins >= 4:
                return
            if client.is_ready(0):
                sent.append(client.send_nowait(0, ALL, 12, 60_000, send))
            else:
                waiting.create_task(wait())

        async def wait() -> None:
            await client.ready(0)
            send()

        async with asyncio.timeout(60), asyncio.TaskGroup() as waiting:
            for _ in range(4):
                send()
            await wait_until(lambda: broker.logins >= 4)
        assert len(await asyncio.gather(*sent)) > 20
        assert ([], 1) == (broker.misplaced, broker.connections)


async def test_an_idle_connection_logs_in_again_when_it_is_used() -> None:
    """Even behind the end of its session, when a broker takes nothing but another login."""
    async with SessionBroker(0.05, grace_seconds=60) as broker, client_of(broker, **LOGIN) as client:
        await client.refresh_metadata(timeout_ms=60_000)
        before = broker.logins
        await asyncio.sleep(0.06)
        assert not client.is_ready(0)
        broker.end_session()
        await client.send(0, ALL, MetadataResponse)
        assert broker.logins > before
        assert ([], 1) == (broker.misplaced, broker.connections)


async def test_sessions_of_a_millisecond_do_not_lead_to_logins_without_pauses() -> None:
    """Each request would send the password again."""
    async with SessionBroker(0.001, grace_seconds=60) as broker, client_of(broker, **LOGIN) as client:
        await client.refresh_metadata(timeout_ms=60_000)
        for _ in range(100):
            await client.send(0, ALL, MetadataResponse)
            await asyncio.sleep(0)
        # The back-off grows to a second, and a hundred requests take less on any machine that tests run on.
        assert broker.logins < 60


async def test_a_refused_renewal_is_the_error_of_the_next_request() -> None:
    async with SessionBroker(0.05) as broker, client_of(broker, **LOGIN) as client:
        await client.refresh_metadata(timeout_ms=60_000)
        broker.refusal = ErrorCode.SASL_AUTHENTICATION_FAILED
        await asyncio.sleep(0.06)
        with pytest.raises(SaslAuthenticationError, match="refused the login"):
            await client.send(0, ALL, MetadataResponse)
        await wait_until(lambda: broker.open_count == 0)


def test_clients_do_not_all_log_in_at_once() -> None:
    """As in Java: at a random point between 85 and 95 % of a session."""
    random.seed(3)
    found = [sasl_login.renewal_seconds(1000.0) for _ in range(200)]
    assert 850 <= min(found) < 860
    assert 940 < max(found) <= 950
