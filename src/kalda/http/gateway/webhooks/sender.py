"""Sends one record to a webhook's URL, signed, and says whether the receiver has taken it."""

import asyncio
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

import httpcore

from kalda.http.gateway.cloud_events import STRUCTURED_TYPE, binary_headers, structured_event
from kalda.http.gateway.streams.recent_records import BytesRecord
from kalda.http.gateway.streams.rendering import render_record
from kalda.http.gateway.webhooks.addresses import CheckedNetwork, ForbiddenAddressError, IPNetwork
from kalda.http.gateway.webhooks.signing import signature_headers
from kalda.http.gateway.webhooks.subscription import Subscription

RESPONSE_BYTES_MAX: Final = 64 * 1024
"""What is read of a response so that the connection can be used again; behind it the connection is closed."""
RETRY_AFTER_SECONDS_MAX: Final = 300.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """How an attempt ended."""

    is_taken: bool
    error: str = ""
    is_final: bool = False
    """Whether another attempt is useless."""
    retry_after_s: float = 0.0
    """How long the receiver asks to wait."""
    status: int = 0
    """The receiver's, 0 without a response."""


class Sender:
    """The connections to receivers.

    Args:
        allowed: Networks that are not public, and allowed nevertheless.
        requests_max: Requests at once; others wait.
    """

    def __init__(self, allowed: Sequence[IPNetwork], requests_max: int) -> None:
        self._slots: Final = asyncio.Semaphore(requests_max)
        self._pool: Final = httpcore.AsyncConnectionPool(
            ssl_context=ssl.create_default_context(),
            max_connections=requests_max,
            keepalive_expiry=30.0,
            network_backend=CheckedNetwork(allowed),
        )

    async def send(self, subscription: Subscription, record: BytesRecord) -> Attempt:
        """Send a record once. Redirects are not followed: the receiver's address is what was checked."""
        body, headers = _message(subscription, record)
        message_id = f"{record.topic}-{record.partition}-{record.offset}"
        headers |= signature_headers(subscription.secret, message_id, int(time.time()), body)
        headers["user-agent"] = "kalda-webhook"
        timeout_s = subscription.timeout_ms / 1000
        try:
            async with self._slots, asyncio.timeout(timeout_s):
                return await self._request(subscription.url, headers, body, timeout_s)
        except TimeoutError:
            return Attempt(False, f"no response within {subscription.timeout_ms} ms")
        except ForbiddenAddressError as error:
            return Attempt(False, str(error))
        except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, OSError) as error:
            return Attempt(False, f"{type(error).__name__}: {error}"[:500])

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.aclose()

    async def _request(self, url: str, headers: dict[str, str], body: bytes, timeout_s: float) -> Attempt:
        times = dict.fromkeys(("connect", "read", "write", "pool"), timeout_s)
        pairs = [(name.encode(), text.encode("latin-1", "replace")) for name, text in headers.items()]
        async with self._pool.stream(
            "POST", url, headers=pairs, content=body, extensions={"timeout": times}
        ) as response:
            size = 0
            async for chunk in response.aiter_stream():
                size += len(chunk)
                if size > RESPONSE_BYTES_MAX:
                    break
            if 200 <= response.status < 300:
                return Attempt(True, status=response.status)
            return Attempt(
                False,
                f"the receiver answered {response.status}",
                response.status == 410,
                _retry_after_s(response.headers),
                response.status,
            )


def _message(subscription: Subscription, record: BytesRecord) -> tuple[bytes, dict[str, str]]:
    """Return the body of a request and the headers that describe it."""
    match subscription.format:
        case "cloudevents":
            return structured_event(record).encode(), {"content-type": STRUCTURED_TYPE}
        case "value" | "cloudevents-binary":
            content_type = next((v for n, v in record.headers if n == "content-type" and v), b"")
            headers = {"content-type": content_type.decode("latin-1") or "application/octet-stream"}
            if not headers["content-type"].isprintable():
                headers["content-type"] = "application/octet-stream"
            if subscription.format == "cloudevents-binary":
                headers |= binary_headers(record)
            return record.value or b"", headers
        case _:
            return render_record(record).encode(), {"content-type": "application/json"}


def _retry_after_s(headers: Sequence[tuple[bytes, bytes]]) -> float:
    text = next((value.decode("latin-1") for name, value in headers if name.lower() == b"retry-after"), "")
    if text.isascii() and text.isdigit() and len(text) < 10:
        seconds = float(text)
    else:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), RETRY_AFTER_SECONDS_MAX)
