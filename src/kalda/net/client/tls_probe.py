"""Finds out whether a listener speaks TLS, for the error message of a client that came without it."""

import asyncio
import contextlib
import ssl
from typing import Final

from kalda.runtime.network import Network, receive, send_all
from kalda.runtime.system.network import SYSTEM_NETWORK

_RECORD_TYPES: Final = frozenset((21, 22))
"""Alert and handshake: what a server's first TLS record can be."""

_MAJOR_VERSION: Final = 3

_HEADER_BYTES: Final = 2
"""The bytes of the first record that are looked at: its type, and the major version."""


async def speaks_tls(
    host: str, port: int, *, timeout_seconds: float, network: Network = SYSTEM_NETWORK
) -> bool:
    """Return whether a listener answers a TLS greeting with TLS; False if it does not answer in time.

    Nothing is verified and nothing of the client is sent: the connection ends after the first answer.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    greeting = ssl.MemoryBIO()
    channel = context.wrap_bio(ssl.MemoryBIO(), greeting, server_hostname=host)
    with contextlib.suppress(ssl.SSLWantReadError):
        channel.do_handshake()
    answer = b""
    try:
        async with asyncio.timeout(timeout_seconds):
            stream = await network.connect(host, port, timeout_seconds=timeout_seconds)
            with contextlib.closing(stream):
                await send_all(stream, greeting.read())
                while len(answer) < _HEADER_BYTES:
                    received = await receive(stream, _HEADER_BYTES - len(answer))
                    if not received:
                        return False
                    answer += received
    except OSError:  # a time-out is one
        return False
    return answer[0] in _RECORD_TYPES and answer[1] == _MAJOR_VERSION
