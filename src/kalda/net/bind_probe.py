"""Finds out whether an address can be listened on."""

import socket


def probe(host: str, port: int) -> None:
    """Bind an address and release it; an empty host means every interface.

    Raises:
        OSError: it cannot be bound.
    """
    # The listener makes the same choice: IPv4 unless the host is an IPv6 address.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    infos = socket.getaddrinfo(
        host or None, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, kind, protocol, _, address = infos[0]
    with socket.socket(family, kind, protocol) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
