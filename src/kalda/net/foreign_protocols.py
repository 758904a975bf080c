"""Recognises TLS and HTTP on a plaintext Kafka listener, so that the log can name the peer's mistake.

Every Kafka request begins with a size of four bytes. The first bytes of TLS and HTTP read as sizes of 369 MB
and more; an error about such a size would not help the operator of the client.
"""

import logging
from enum import Enum
from typing import Final

from kalda.common.log_limiter import LogLimiter

FOREIGN_SIZE_MIN: Final = 0x16030000
"""The first four bytes of a TLS record, read as a size: the smallest of those recognised."""

REPORT_SECONDS: Final = 60.0
"""A misdirected client retries without end; one line each minute and address names it."""

_HTTP_METHODS: Final = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI ")


class ForeignProtocol(Enum):
    """A protocol that is recognised by its first bytes; the value is what a peer sent."""

    TLS = "a TLS ClientHello"
    HTTP = "an HTTP request"


def recognise(start: bytes | memoryview) -> ForeignProtocol | None:
    """Return the protocol that begins with these bytes, at least four, or None.

    Example: ``16 03 01 02 00 01`` is a TLS handshake record with a ClientHello, ``GET `` an HTTP request.
    """
    word = bytes(start[:6])
    # A record of type handshake (22), of any version from SSL 3.0 to TLS 1.3, then two bytes of length and
    # ClientHello's type, which may not have arrived.
    if word[0] == 22 and word[1] == 3 and word[2] <= 4 and word[5:] in (b"", b"\x01"):
        return ForeignProtocol.TLS
    return ForeignProtocol.HTTP if word[:4] in _HTTP_METHODS else None


def report_limiter(logger: logging.Logger) -> LogLimiter:
    """Return the limiter for the lines that name a peer's protocol: one for each address and minute."""
    return LogLimiter(logger, burst=1, period_seconds=REPORT_SECONDS)
