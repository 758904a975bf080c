"""Defines `PeerConnection`, a connection from this broker to another, and `DialOptions`, how to open one.

It is the connection of clients with one request in flight, whose responses are all received into the same
memory: a response of megabytes costs no new pages. It is not a pool and it does not retry.
"""

import asyncio
from dataclasses import dataclass

from kalda.common import invariants
from kalda.common.api_keys import ApiKey
from kalda.net.client.api_versions import BROKER_SOFTWARE_NAME
from kalda.net.client.broker_connection import BrokerConnection
from kalda.net.client.client_errors import ClientError, UnsupportedApiError
from kalda.net.client.sasl_login import NewLogin
from kalda.protocol.schema import Message
from kalda.security.tls.client import TlsClient


@dataclass(frozen=True, slots=True, kw_only=True)
class DialOptions:
    """How to open a connection to a broker."""

    client_id: str
    timeout_seconds: float
    receive_buffer_bytes: int = -1
    """-1 leaves the socket's receive buffer to the system."""
    tls: TlsClient | None = None
    """None for a plaintext connection."""
    login: NewLogin | None = None
    """None if no login is needed."""


class PeerConnection(BrokerConnection):
    """A connection to another broker, with one request in flight at most; a `Dialer` opens it.

    A view in a response (records, or what `request_raw` returns) is valid until the next request. A request
    that fails, also by cancellation, closes the connection.
    """

    IN_FLIGHT_MAX = 1
    REUSES_MEMORY = True
    SOFTWARE_NAME = BROKER_SOFTWARE_NAME
    OWN_SIDE = "this broker"

    def version_of(self, api_key: ApiKey) -> int:
        """The highest version of a request that both sides know.

        Raises:
            ConnectionError: there is none; this peer cannot be asked.
        """
        try:
            return self.versions.latest(api_key)
        except UnsupportedApiError as error:
            raise ConnectionError(str(error)) from None

    async def request(
        self, request: Message, *, timeout_seconds: float, version: int | None = None
    ) -> Message:
        """Send a request and await its response; without `version`, in the highest that both sides have.

        Raises:
            MessageError: the version cannot carry the request; nothing was sent.
            ConnectionError: anything else; the connection is closed.
        """
        if version is None:
            api_key = request.SCHEMA.api_key
            assert api_key is not None, f"{request.SCHEMA.name} is not a request"
            version = self.version_of(api_key)
        try:
            if self.renew_at is not None:
                await self._maybe_renew_login(self.renew_at, timeout_seconds)
            response = await self.send(request, version, timeout_seconds)
        except asyncio.CancelledError:
            self.close()
            raise
        except ClientError as error:
            self.close(error)
            raise ConnectionError(str(error)) from error
        if invariants.enabled:
            self.check_invariants()
        return response

    async def request_raw(
        self, api_key: ApiKey, version: int, body: bytes | list[bytes], *, timeout_seconds: float
    ) -> memoryview:
        """Send the body of a request and await the body of its response, both in the caller's encoding.

        Raises:
            ConnectionError: it failed; the connection is closed.
        """
        try:
            if self.renew_at is not None:
                await self._maybe_renew_login(self.renew_at, timeout_seconds)
            if self.failure is not None:
                raise self.failure
            chunks = (body,) if isinstance(body, bytes) else body
            parts = self._protocol.send_body(api_key, version, chunks)
            response: memoryview = await self._send(parts, api_key, timeout_seconds, is_raw=True)
            return response
        except asyncio.CancelledError:
            self.close()
            raise
        except ClientError as error:
            self.close(error)
            raise ConnectionError(str(error)) from error

    async def _maybe_renew_login(self, renew_at: float, timeout_seconds: float) -> None:
        """Log in again if the session ends soon (KIP-368)."""
        if self._loop.time() >= renew_at:
            await self.renew_login(timeout_seconds)

    def _remedy(self) -> str:
        return ""
