"""How kafka-python connects where tests end brokers.

kafka-python 3.0 drops the socket of a connection that was refused without closing it: the garbage collector
finds it, in whatever test runs by then. Its proxies are classes that make connections, chosen by the scheme
of `proxy_url`; the one here connects directly, and closes what it could not connect.
"""

import socket
from typing import Any

from kafka.net import KafkaNetSocket

PROXY_URL = "closing://"
"""Given as `proxy_url` to a producer, a consumer or an admin client."""


class ClosingSocket(KafkaNetSocket):  # type: ignore[misc]  # kafka-python has no types
    SCHEMES = ("closing",)

    async def sock_connect(
        self, net: Any, sock: socket.socket, sockaddr: Any, timeout_at: float | None = None
    ) -> socket.socket:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)  # type: ignore[no-any-return]
        except BaseException:
            # A client that is closed ends its attempts by an exception of no kind.
            sock.close()
            raise
