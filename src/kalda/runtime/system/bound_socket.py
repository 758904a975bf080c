"""Makes the sockets of listeners, so that every server gives a host the same meaning."""

import socket
from typing import Final

_WILDCARDS: Final = ("", "::")
"""Hosts that stand for every interface, of IPv4 and of IPv6; ``0.0.0.0`` is every interface of IPv4."""


def bound_socket(host: str, port: int, *, receive_buffer_bytes: int = -1) -> socket.socket:
    """Return a non-blocking socket bound to an address; the system chooses a port if `port` is 0.

    An empty host and ``::`` accept connections of IPv4 and IPv6, as a Java server does, or of IPv4 alone on a
    host without IPv6. A name with addresses of both families is bound to the first one of IPv4. -1 leaves the
    size of the receive buffer to the operating system.

    Resolving a name may block.

    Raises:
        OSError: the name is not known, or the address cannot be bound.
    """
    is_dual = host in _WILDCARDS and socket.has_dualstack_ipv6()
    infos = socket.getaddrinfo(
        "::" if is_dual else host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, _, _, _, address = min(infos, key=lambda info: info[0] != socket.AF_INET)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not is_dual)
        if receive_buffer_bytes >= 0:
            # Before listening: the window scale is settled in the handshake.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def probe(host: str, port: int) -> None:
    """Bind an address and release it.

    Raises:
        OSError: it cannot be bound.
    """
    bound_socket(host, port).close()
