"""Finds out why a tool gets no ZooKeeper session, where the reason shows without waiting.

A ZooKeeper client tries its servers again and again, because one may be starting. These reasons do not pass:
nothing listens there, or a listener speaks another protocol.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from kalda.clients.errors import BrokerConnectionError, ClientError, TlsError
from kalda.net.client.broker_connection import BrokerConnection
from kalda.net.client.tls_probe import speaks_tls
from kalda.runtime.network import address_text

_SECONDS_MAX: Final = 0.5
"""How long a server may take to answer the probe; the tool goes on waiting for a slower one."""

_PORT_DEFAULT: Final = 2181


async def no_session_reason(servers: str, option: str, *, uses_tls: bool) -> str | None:
    """Return why none of the servers of ``host:port,…[/chroot]`` gives a session; None if one still may."""
    reasons = await asyncio.gather(
        *(_reason(host, port, uses_tls=uses_tls) for host, port in _addresses(servers))
    )
    if None in reasons:
        return None
    found = "; ".join(each for each in reasons if each is not None)
    return f"{found}; {option}={servers} takes the client port of ZooKeeper or `kalda zookeeper`"


def _addresses(servers: str) -> Sequence[tuple[str, int]]:
    addresses = []
    for server in servers.partition("/")[0].split(","):
        host, _, port = server.rpartition(":")
        if host and port.isdecimal():
            addresses.append((host.strip("[]"), int(port)))
        else:
            addresses.append((server.strip("[]"), _PORT_DEFAULT))
    return addresses


async def _reason(host: str, port: int, *, uses_tls: bool) -> str | None:
    address = address_text(host, port)
    try:
        connection = await BrokerConnection.open(
            host, port, client_id="kalda", timeout_seconds=_SECONDS_MAX, finds_tls=not uses_tls
        )
    except TlsError:
        return f"{address} speaks TLS, and --zk-tls-config-file, which says how, is not given"
    except BrokerConnectionError as error:
        if isinstance(error.__cause__, OSError):
            return str(error)
        if uses_tls and not await speaks_tls(host, port, timeout_seconds=_SECONDS_MAX):
            return f"{address} does not speak TLS, but --zk-tls-config-file asks for it"
        return None  # what a ZooKeeper server does with a request of Kafka's protocol
    except ClientError:
        return None
    connection.close()
    return f"{address} speaks Kafka, not ZooKeeper"
