"""Opens non-blocking TCP connections on the event loop, for clients and between brokers.

It negotiates nothing; the connections that use the socket do.

Names are resolved on a daemon thread. A resolver that does not answer may hold its thread for minutes, and
neither closing a loop nor leaving the program may wait for it.
"""

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from kalda.runtime.system.stream import SocketStream

T = TypeVar("T")


async def connect_socket(
    host: str,
    port: int,
    *,
    timeout_seconds: float,
    send_buffer_bytes: int = -1,
    receive_buffer_bytes: int = -1,
) -> SocketStream:
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
    except (socket.gaierror, UnicodeError):
        found = await on_daemon_thread(
            lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), f"resolve {host}"
        )
    share_seconds = timeout_seconds / len(found)
    failure: OSError = OSError("no address")
    for family, kind, protocol, _, address in found:
        sock = SocketStream(family, kind, protocol)
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


async def canonical_addresses(host: str, port: int) -> list[tuple[str, int]]:
    """Return (canonical name, port) for each address of `host`, without repeats.

    An address without a name stands for itself.

    Raises:
        OSError: the name is not known.
    """

    def look_up() -> list[tuple[str, int]]:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        names = [socket.getnameinfo(address, 0)[0] for *_, address in found]
        return [(name, port) for name in dict.fromkeys(names)]

    return await on_daemon_thread(look_up, f"resolve {host}")


async def on_daemon_thread(function: Callable[[], T], name: str) -> T:
    """Run a function on a daemon thread of its own; return its result.

    A caller that is cancelled leaves the thread to end by itself, and its result is dropped.

    Raises:
        OSError: `function` raised it, or it raised the `UnicodeError` of a name that DNS cannot hold.
    """
    pending: Future[T] = Future()
    # From here on a cancelled caller does not cancel `pending`, which the thread completes in any case.
    pending.set_running_or_notify_cancel()

    def run() -> None:
        try:
            pending.set_result(function())
        except UnicodeError as error:
            pending.set_exception(OSError(f"not a host name: {error}"))
        except BaseException as error:
            pending.set_exception(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # The interpreter ends and starts no threads any more, but a client may still be closed, for example
        # by `logging.shutdown`.
        run()
    return await asyncio.wrap_future(pending)
