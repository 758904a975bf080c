"""Sends a change to the process that writes, as its caller sent it here."""

import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import httpx

from kalda.http.registry.errors import forwarding_failed
from kalda.http.registry.identity import Identity

logger: Final = logging.getLogger(__name__)

FORWARD_HEADER: Final = "x-forward"
"""Marks a request that another process forwarded, as Confluent's registry does; it is not forwarded again."""

CONNECT_SECONDS: Final = 5.0
CONNECTIONS_MAX: Final = 64
_PASSED_HEADERS: Final = ("authorization", "cookie", "content-type", "accept")


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of the writer."""

    status: int
    body: bytes
    content_type: str


class Forwarder:
    """An HTTP client for the writer."""

    def __init__(self, read_timeout_ms: int, tls: ssl.SSLContext | None) -> None:
        self._client: Final = httpx.AsyncClient(
            timeout=httpx.Timeout(read_timeout_ms / 1000, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=CONNECTIONS_MAX),
            verify=False if tls is None else tls,
            trust_env=False,
            follow_redirects=False,
        )

    async def send(
        self, writer: Identity, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Answer:
        """Send a request and return its response with any status.

        Raises:
            HttpError: the writer cannot be reached, or does not answer in time (50003).
        """
        passed = {name: headers[name] for name in _PASSED_HEADERS if name in headers}
        try:
            response = await self._client.request(
                method, f"{writer.url}{target}", headers={**passed, FORWARD_HEADER: "true"}, content=body
            )
        except httpx.HTTPError as error:
            raise forwarding_failed(
                f"Error while forwarding the request to the leader {writer.url}: "
                f"{type(error).__name__} {error}"
            ) from None
        content_type = response.headers.get("content-type", "application/json")
        return Answer(response.status_code, response.content, content_type)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
