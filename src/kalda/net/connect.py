"""Opens non-blocking TCP connections on the event loop, for clients and between brokers.

It negotiates nothing; the connections that use the socket do.
"""

import asyncio
import socket


async def connect_socket(
    host: str,
    port: int,
    *,
    timeout_seconds: float,
    send_buffer_bytes: int = -1,
    receive_buffer_bytes: int = -1,
) -> socket.socket:
    """Connect to the first address of `host` that accepts; each address gets its share of the time.

    -1 leaves the size of a buffer to the operating system.

    Raises:
        OSError: the name is not known, or no address accepted.
        TimeoutError: the time is up.
    """
    loop = asyncio.get_running_loop()
    try:
        # A numeric address needs no resolver, which would cost a thread.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    share_seconds = timeout_seconds / len(found)
    failure: OSError = OSError("no address")
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Before the connection is made, since the window's scale is agreed on then.
            if receive_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            if send_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            async with asyncio.timeout(share_seconds):
                await loop.sock_connect(sock, address)
            if sock.getsockname() == sock.getpeername():
                # TCP lets a socket connect to itself when the kernel picks the dead broker's port for it.
                raise ConnectionRefusedError("no listener; the socket connected to itself")
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure
