"""Logs a client in over an open connection: SaslHandshake, then the mechanism's messages.

The mechanism works in a thread: SCRAM hashes a password thousands of times, OAUTHBEARER may have to fetch a
token and GSSAPI a ticket.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.net.client.client_errors import SaslAuthenticationError
from kalda.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kalda.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kalda.protocol.schema import Message
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.security.sasl.mechanism import SaslClient, SaslError

NewLogin: TypeAlias = Callable[[str], SaslClient]
"""Begins a login at a host; called once for each connection."""

Exchange: TypeAlias = Callable[[Message, int], Awaitable[Message]]
"""Sends a request in a version and returns its response."""

_RENEW_FROM: Final = 0.85
_RENEW_TO: Final = 0.95
"""The parts of a session's life between which a client logs in again, as Kafka's clients do."""

_HANDSHAKE_VERSION: Final = 1
_ROUNDS_MAX: Final = 16
"""Messages of one login; no mechanism needs more than some four, and a token must not be sent for ever."""


async def log_in(
    peer: str, client: SaslClient, exchange: Exchange, latest: Callable[[ApiKey], int]
) -> float | None:
    """Log in, and return after how many seconds to log in again; None if the session does not end.

    Args:
        peer: The broker's address, for messages.
        client: The mechanism.
        exchange: Sends the requests.
        latest: Returns the version in which to send a request.

    Raises:
        SaslAuthenticationError: the broker refused the login, or broke the protocol of the mechanism.
        ClientError: an exchange failed.
    """
    handshake = await exchange(SaslHandshakeRequest(mechanism=client.mechanism), _HANDSHAKE_VERSION)
    assert isinstance(handshake, SaslHandshakeResponse), f"a {type(handshake).__name__}"
    if handshake.error_code:
        code = ErrorCode.of(handshake.error_code)
        raise SaslAuthenticationError(
            f"broker {peer} does not take the mechanism {client.mechanism} ({code.name}); it offers "
            f"{', '.join(handshake.mechanisms) or 'none'}"
        )
    version = latest(ApiKey.SASL_AUTHENTICATE)
    challenge = b""
    lifetime_ms = 0
    try:
        for _ in range(_ROUNDS_MAX):
            message = await asyncio.to_thread(client.respond, challenge)
            if client.is_complete and not message:
                break
            response = await exchange(SaslAuthenticateRequest(auth_bytes=message), version)
            assert isinstance(response, SaslAuthenticateResponse), f"a {type(response).__name__}"
            if response.error_code:
                reason = response.error_message or ErrorCode.of(response.error_code).message
                raise SaslAuthenticationError(f"broker {peer} refused the login: {reason}")
            challenge, lifetime_ms = response.auth_bytes, response.session_lifetime_ms
            if client.is_complete:
                break
        else:
            raise SaslAuthenticationError(
                f"broker {peer} has not ended the {client.mechanism} login after {_ROUNDS_MAX} messages"
            )
    except SaslError as error:
        raise SaslAuthenticationError(f"the login at broker {peer} failed: {error}") from None
    return renewal_seconds(lifetime_ms / 1000) if lifetime_ms > 0 else None


def renewal_seconds(lifetime_seconds: float) -> float:
    """Return after how many seconds of a session to log in again: not at once with other clients."""
    return lifetime_seconds * SYSTEM_RANDOM.uniform(_RENEW_FROM, _RENEW_TO)
