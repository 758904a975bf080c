"""Defines `TlsClient`, the TLS of the connections that a process opens."""

import ssl


class TlsClient:
    """The context of connections to brokers; it may be replaced, and open connections keep the former."""

    __slots__ = ("context",)

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context
