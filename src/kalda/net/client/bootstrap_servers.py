"""Reads the setting `bootstrap.servers`: the brokers that a client asks first."""

from typing import Final

from kalda.net.client.client_errors import ClientConfigError

_PORT_MAX: Final = 65_535


def parse_bootstrap_servers(text: str) -> tuple[tuple[str, int], ...]:
    """Read ``host:port[,host:port…]``; IPv6 addresses stand in brackets, ``[::1]:9092``.

    Raises:
        ClientConfigError: an entry has no port, or no server is named at all.
    """
    servers = []
    for entry in (part.strip() for part in text.split(",")):
        if not entry:
            continue
        host, colon, port = entry.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) <= _PORT_MAX):
            raise ClientConfigError(f"`bootstrap.servers` has {entry!r}, which is not host:port")
        servers.append((host, int(port)))
    if not servers:
        raise ClientConfigError("`bootstrap.servers` names no server; set it to host:port[,host:port…]")
    return tuple(servers)
