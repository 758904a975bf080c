"""Handles the requests of one connection until its client has logged in by SASL.

The order of Kafka's ``SaslServerAuthenticator``: ApiVersions once, if the client wants it, SaslHandshake with
the mechanism, then the mechanism's messages, as frames of their own after SaslHandshake v0 and in
SaslAuthenticate after v1. Any other request closes the connection. A refused login is answered after
``connection.failed.authentication.delay.ms`` and the connection closes.

Where sessions end (``connections.max.reauth.ms``, or credentials that expire), the authenticator stays in
front of the dispatcher: it lets the client log in again over the same connection, as the same principal
(KIP-368), and closes the connection at the first request after the end.

ApiVersions is the only request of an unauthenticated peer that reaches the dispatcher.
"""

import asyncio
import logging
from collections.abc import Sequence
from struct import Struct
from typing import Final, Protocol, TypeVar

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.net.connection import Connection, FrameHandler
from kalda.protocol import codec, framing, registry
from kalda.protocol.headers import RequestHeader, read_request_header, response_header
from kalda.protocol.messages.api_versions import ApiVersionsRequest
from kalda.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kalda.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.schema import Message
from kalda.security.principal import KafkaPrincipal
from kalda.security.sasl.mechanism import SaslError, SaslServer

M = TypeVar("M", bound=Message)

_API_KEY: Final = Struct(">h")

REAUTHENTICATION_SECONDS_MIN: Final = 1.0
"""Time between two logins over one connection, as in Kafka: a login costs far more than a request."""


class LoginRules(Protocol):
    """The part of the broker that an authenticator calls."""

    @property
    def failure_delay_ms(self) -> int:
        """The delay of the response to a refused login, in milliseconds."""

    @property
    def frame_bytes_max(self) -> int:
        """The largest request of clients that have logged in."""

    @property
    def login_bytes_max(self) -> int:
        """The largest request during a login."""

    def max_reauth_ms(self, listener: str, mechanism: str) -> int:
        """Return the longest time that a session may last, in milliseconds; 0 is without a limit."""

    def mechanisms(self, listener: str) -> Sequence[str]:
        """Return the mechanisms that a listener offers."""

    def new_server(self, listener: str, mechanism: str) -> SaslServer:
        """Begin a login."""

    def frame_handler(self) -> FrameHandler:
        """Return the handler of the requests of clients that have logged in."""

    def time_ms(self) -> int:
        """Return the time in milliseconds since 1970."""

    def monotonic(self) -> float:
        """Return the seconds of a clock that never goes back."""

    def succeeded(self, connection: Connection, mechanism: str) -> None:
        """Count and audit a login."""

    def failed(self, connection: Connection, mechanism: str | None, reason: str) -> None:
        """Count and audit a refused login."""


class SaslAuthenticator:
    """The login of one connection."""

    __slots__ = (
        "_began_again_at",
        "_expires_at",
        "_has_raw_tokens",
        "_has_versions",
        "_mechanism",
        "_rules",
        "_serve",
        "_server",
        "_session",
    )

    def __init__(self, rules: LoginRules) -> None:
        self._rules: Final = rules
        self._serve: FrameHandler = rules.frame_handler()
        self._server: SaslServer | None = None
        """The mechanism at work; None before SaslHandshake and after the login."""
        self._mechanism: str | None = None
        self._has_raw_tokens = False
        self._has_versions = False
        """Whether the client has asked for the versions that are served."""
        self._session: tuple[KafkaPrincipal, str] | None = None
        """The identity and mechanism of a completed login whose session will end."""
        self._expires_at: float | None = None
        """Monotonic seconds, as the next."""
        self._began_again_at: float | None = None
        """When the client began its last login but the first."""

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """Handle one frame of a client that has not logged in, or whose session ends."""
        if self._session is not None and self._server is None:
            self._on_frame_of_session(connection, frame)
            return
        try:
            if self._has_raw_tokens:
                self._on_raw_token(connection, bytes(frame))
            else:
                self._on_request(connection, frame)
        except ProtocolError as error:
            self._close(connection, f"a malformed request before the login: {error}")

    def _on_frame_of_session(self, connection: Connection, frame: memoryview) -> None:
        key = _API_KEY.unpack_from(frame)[0] if len(frame) >= _API_KEY.size else -1
        now = self._rules.monotonic()
        begun = self._began_again_at
        if key == ApiKey.SASL_HANDSHAKE and (begun is None or now - begun >= REAUTHENTICATION_SECONDS_MIN):
            self._began_again_at = now
            try:
                self._on_request(connection, frame)
            except ProtocolError as error:
                self._close(connection, f"a malformed request for another login: {error}")
        elif self._expires_at is not None and now > self._expires_at:
            self._close(connection, "the session has expired; the client did not log in again")
        else:
            # Also a login that comes too early: the dispatcher answers it with ILLEGAL_SASL_STATE.
            self._serve(connection, frame)

    def _on_request(self, connection: Connection, frame: memoryview) -> None:
        header, position = read_request_header(frame)
        if header.api_key == ApiKey.API_VERSIONS and self._server is None and not self._has_versions:
            # A client may try again in a version that is served.
            self._has_versions = header.api_version <= ApiVersionsRequest.SCHEMA.versions.highest
            self._serve(connection, frame)
        elif header.api_key == ApiKey.SASL_HANDSHAKE and self._server is None:
            self._on_handshake(connection, header, _decoded(SaslHandshakeRequest, header, frame, position))
        elif header.api_key == ApiKey.SASL_AUTHENTICATE and self._server is not None:
            self._on_token(connection, header, _decoded(SaslAuthenticateRequest, header, frame, position))
        else:
            self._close(connection, f"request {header.api_key} before the login is complete")

    def _on_handshake(
        self, connection: Connection, header: RequestHeader, request: SaslHandshakeRequest
    ) -> None:
        offered = list(self._rules.mechanisms(connection.listener))
        response = SaslHandshakeResponse(mechanisms=offered)
        if self._session is not None and request.mechanism != self._session[1]:
            response.error_code = ErrorCode.ILLEGAL_SASL_STATE
            self._refuse(
                connection,
                f"the client logged in by {self._session[1]} and wants {request.mechanism} now",
                _reply(header, response),
            )
        elif request.mechanism not in offered:
            response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            self._refuse(
                connection,
                f"the mechanism {request.mechanism} is not among {', '.join(offered)}",
                _reply(header, response),
            )
        else:
            self._mechanism = request.mechanism
            self._server = self._rules.new_server(connection.listener, request.mechanism)
            self._has_raw_tokens = header.api_version == 0
            connection.frame_bytes_max = self._rules.login_bytes_max
            connection.send(_reply(header, response))

    def _on_token(
        self, connection: Connection, header: RequestHeader, request: SaslAuthenticateRequest
    ) -> None:
        try:
            answer, lifetime_ms = self._step(connection, request.auth_bytes)
        except SaslError as error:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error)
            )
            self._refuse(connection, error.detail, _reply(header, response))
            return
        is_complete = self._complete(connection, lifetime_ms)
        connection.send(
            _reply(
                header,
                SaslAuthenticateResponse(
                    auth_bytes=answer, session_lifetime_ms=lifetime_ms or 0 if is_complete else 0
                ),
            )
        )

    def _on_raw_token(self, connection: Connection, token: bytes) -> None:
        try:
            answer, lifetime_ms = self._step(connection, token)
        except SaslError as error:
            # The frames of the mechanism have no place for an error.
            self._refuse(connection, error.detail, None)
            return
        self._complete(connection, lifetime_ms)
        connection.send(framing.frame([answer]))

    def _step(self, connection: Connection, token: bytes) -> tuple[bytes, int | None]:
        """Pass a message to the mechanism; return its answer, and how long a complete session lasts."""
        server = self._server
        assert server is not None, "a message of a mechanism before SaslHandshake"
        answer = server.respond(token)
        if server.principal is None:
            return answer, None
        if self._session is not None and server.principal != self._session[0]:
            raise SaslError(
                f"Cannot change principals during re-authentication from {self._session[0]} to "
                f"{server.principal}"
            )
        limits = []
        if server.expires_at_ms is not None:
            limits.append(max(0, server.expires_at_ms - self._rules.time_ms()))
        assert self._mechanism is not None
        max_reauth_ms = self._rules.max_reauth_ms(connection.listener, self._mechanism)
        if max_reauth_ms > 0:
            limits.append(max_reauth_ms)
        return answer, min(limits, default=None)

    def _complete(self, connection: Connection, lifetime_ms: int | None) -> bool:
        """Admit the client if its login is complete; return whether it is."""
        server, mechanism = self._server, self._mechanism
        assert server is not None
        assert mechanism is not None
        principal = server.principal
        if principal is None:
            return False
        self._server = None
        self._has_raw_tokens = False
        connection.principal = principal
        connection.decisions, connection.writable_names = None, ()
        self._serve = self._rules.frame_handler()
        if lifetime_ms is None:
            connection.handle_with(self._serve)
        else:
            self._session = principal, mechanism
            self._expires_at = self._rules.monotonic() + lifetime_ms / 1000
        connection.frame_bytes_max = self._rules.frame_bytes_max
        self._rules.succeeded(connection, mechanism)
        return True

    def _refuse(self, connection: Connection, reason: str, reply: bytes | None) -> None:
        """Answer a refused login after a while and close; what the peer sends meanwhile is dropped."""
        self._rules.failed(connection, self._mechanism, reason)
        connection.handle_with(_drop)
        ticket = connection.open_reply()

        def end() -> None:
            if reply is not None:
                connection.reply(ticket, reply)
            connection.close(f"login refused: {reason}", logging.DEBUG)

        asyncio.get_running_loop().call_later(self._rules.failure_delay_ms / 1000, end)

    def _close(self, connection: Connection, reason: str) -> None:
        if self._session is None or self._server is not None:
            self._rules.failed(connection, self._mechanism, reason)
        connection.close(reason, logging.INFO)


def _drop(connection: Connection, frame: memoryview) -> None:
    """Ignore a frame of a peer whose login was refused."""


def _decoded(request_class: type[M], header: RequestHeader, frame: memoryview, position: int) -> M:
    """Decode a request.

    Raises:
        ProtocolError: it is malformed, or of a version that is not served.
    """
    versions = request_class.SCHEMA.versions
    if not versions.lowest <= header.api_version <= versions.highest:
        raise ProtocolError(f"{request_class.__name__} has no version {header.api_version}")
    return codec.decode(request_class, header.api_version, frame, position)


def _reply(header: RequestHeader, response: Message) -> bytes:
    api_key = ApiKey(header.api_key)
    head = response_header(
        header.correlation_id, registry.response_header_version(api_key, header.api_version)
    )
    return framing.frame([head, codec.encode(response, header.api_version)])
